"""Where the change between two checkpoints lives: activation patching and weight grafting."""
