"""A shortcut that nobody declared: is it noticed, and is anyone accused without one?"""
