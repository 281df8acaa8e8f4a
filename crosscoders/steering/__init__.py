"""Causal tests of features: ablate, scale or add them while a policy acts, next
to controls of equal size.
"""
