"""Where a gain comes from, tested source by source: one file a family of tests.

Each family is an instrument. Most play both policies once more in an *altered
world* (`altered_world`) and compare the gain there with the gain in the world
as it is (`source_study`).
"""
