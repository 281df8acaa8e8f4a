"""Does one dedicated feature carry what training changed? Positive controls first."""
