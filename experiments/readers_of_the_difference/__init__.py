"""Which reader of the difference of two checkpoints deserves the page? By `rule_2/rule.md`."""
