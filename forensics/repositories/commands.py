"""The commands on repositories. Light at import."""
