"""Causal readings by sampling again: action ablation, potentials, cliff tokens. Nothing here yet."""
