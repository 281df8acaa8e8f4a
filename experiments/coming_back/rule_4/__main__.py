"""See rule.md."""

from pathlib import Path

from experiments.coming_back.rule_3.__main__ import carry_out

if __name__ == "__main__":
    cache = Path(".truth-cache/coming-back-4")
    raise SystemExit(carry_out(22, range(61, 81), Path(__file__).parent, cache))
