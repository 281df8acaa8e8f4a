"""Which reader of the difference between two checkpoints deserves the page? See `rule.md`."""
