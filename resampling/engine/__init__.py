"""Continuing traces: by a local policy, by many workers, from what is stored."""
