"""What transcripts tell without a model: which features of a run rose from before to after.

A feature is named where more after runs have it by Fisher's exact test, one-sided, with a
Benjamini-Hochberg q of at most .05 over all features that at least `LEAST` runs have; what is
said are the `SAID` of largest rise.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy.stats import fisher_exact

from forensics.records import Trajectory
from forensics.statistics import benjamini_hochberg

RUNS, LEAST, SAID, LEVEL = 100, 5, 10, 0.05
MARKS: Final = ".,:;!?"


def features(run: Trajectory) -> Iterator[str]:
    """See the module's text."""
    shown: dict[str, set[str]] = {"user": set(), "tool": set()}
    first = True
    for step in run.steps:
        if step.role != "assistant":
            shown.setdefault(step.role, set()).update(_words(step.text))
            continue
        words = _words(step.text)
        for kind in step.kinds:
            yield f"kind {kind}"
        if first and step.kinds:
            yield f"first {step.kinds[0]}"
        first = False
        yield from (f"word {word}" for word in words)
        yield from (f"words {one} {other}" for one, other in pairwise(words))
        for role, seen in shown.items():
            if words and seen.issuperset(words):
                yield f"copied from {role}"


def _words(text: str) -> list[str]:
    return [word for raw in text.split() if (word := raw.strip(MARKS))]


def named(before: Sequence[Trajectory], after: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """What is said of these runs, the largest rise first."""
    counts = [
        Counter(one for run in side for one in set(features(run))) for side in (before, after)
    ]
    numbers = len(before), len(after)
    asked = sorted(one for one in counts[0] | counts[1] if counts[0][one] + counts[1][one] >= LEAST)
    p = [
        fisher_exact(
            [
                [counts[1][one], numbers[1] - counts[1][one]],
                [counts[0][one], numbers[0] - counts[0][one]],
            ],
            alternative="greater",
        ).pvalue
        for one in asked
    ]
    q = benjamini_hochberg(np.array(p)) if p else []
    found = [
        {
            "feature": one,
            "before": counts[0][one] / numbers[0],
            "after": counts[1][one] / numbers[1],
            "q": float(level),
        }
        for one, level in zip(asked, q, strict=True)
        if level <= LEVEL
    ]
    return sorted(found, key=lambda one: (one["before"] - one["after"], one["feature"]))[:SAID]
