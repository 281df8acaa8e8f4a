"""Numbers of each latent of a dictionary, how good a dictionary is, and the
controls that must show nothing.
"""
