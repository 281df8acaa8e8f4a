"""The scanner on logs that nobody here wrote, and on organisms whose truth the
environment knows.
"""
