"""A log and its policy opened, looked through, and told: commands, tables,
pages, and the instrument of every case.
"""
