"""Policies with planted causes ("organisms"): how they are built, and where the
bundled ones lie.
"""
