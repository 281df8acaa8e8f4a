"""Continuing traces: by a policy here, by a server, by many workers, from what is stored."""
