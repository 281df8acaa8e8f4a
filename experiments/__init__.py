"""Studies: a question, a decision rule written before running, a result table.

A new study's run has a folder with `rule.md`, a commit of its own before the
run, and later `table.json` and `table.md`;
`tests/experiments/test_rules_first.py` holds the order against the git history.

Alive are `phantom_gain` (`make truth`) and `real_model` (`make real`). Of a
finished one its pages stay; they name the commit at which it runs.
"""
