"""Samplers over HTTP."""
