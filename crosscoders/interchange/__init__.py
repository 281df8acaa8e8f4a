"""Dictionaries in files, ours and other libraries'."""
