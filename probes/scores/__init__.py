"""Sampled tokens of whole logs, scored under two checkpoints in one streaming pass."""
