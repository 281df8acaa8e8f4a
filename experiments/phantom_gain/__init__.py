"""Does the verdict name the planted cause? The question and its decision rule
are in the README beside this.
"""
