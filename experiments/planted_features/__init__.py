"""Do the methods find features that are known to be in one model only?"""
