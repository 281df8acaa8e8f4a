"""At which step would each layer have noticed an echo or a collapse? Question
and decision rule are in the README.
"""
