"""Sparse dictionaries over activations: what they are, their training, saved ones."""
