"""Paired activations of several checkpoints on the same tokens."""
