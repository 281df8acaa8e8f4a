"""The diff of two checkpoints from end to end: the command, its files, the page, the instrument."""
