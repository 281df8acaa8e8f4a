"""The embedded worlds: `mini-repo`, a coding agent in miniature, and `prompts`,
a user's own questions.
"""
