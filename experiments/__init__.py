"""Studies: a question, a decision rule written before running, a result table."""
