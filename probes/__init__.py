"""Numbers read off a model: step grades, the KL split, linear probes. Nothing here yet."""
