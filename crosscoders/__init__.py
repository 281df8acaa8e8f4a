"""Activation diffing between two checkpoints: patching, grafting, crosscoders, steering. Nothing here yet."""
