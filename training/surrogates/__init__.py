"""Losses that are chosen by name: one file and one entry point each."""
