"""What scores without an outcome say of success: a scale is read from the whole set.

A reader takes no outcome from a score outside [0, 1]. Of scores of 1 and -1 it would leave the
wins alone, of .1 and 1.1 the losses alone: a rate of 100 or of 0 %. So, over all runs of all logs:

1. The score that outcomes are taken from is the one that equals every outcome there is, and lies
   outside [0, 1] in every run that has none; without any outcome the only score, or one that is
   named as a success.
2. Inside [0, 1] outcomes stand as they are. But where every run has one and the same score and
   that is neither 0 nor 1, nobody knows what it was worth: success is not told.
3. Outside, a score of two values is read: the larger is a success. Of any other (a mean of
   rewards, a length) success is not told.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from forensics.phrases import printable
from forensics.readers.rollout_text import named_outcome

CURE: Final = "log with each run a score from 0 (lost) to 1 (won), such as `success`"
DIGITS: Final = 6  # sums and float32 differ in what follows


@dataclass(frozen=True, kw_only=True)
class ScoreScale:
    """How the score `score` is read. `values`: the two that it takes, the lost one first; `()`:
    success is not told. `reading`: one sentence that says so.
    """

    score: str
    values: tuple[float, ...]
    reading: str

    def outcome(self, run: Mapping[str, Any]) -> float | None:
        """1.0, 0.0, or `None` where it is not told, of a row with `rewards` and `end`."""
        value = dict(run["rewards"] or ()).get(self.score)
        if value is None or not self.values or run["end"] == "errored":
            return None
        return float(round(value, DIGITS) == self.values[1])


def score_scale(runs: Iterable[Mapping[str, Any]]) -> ScoreScale | None:
    """The scale of a whole set of rows with `outcome`, `rewards` and `end`; `None` where
    outcomes stand as they are.
    """
    seen: dict[str, set[float]] = {}
    known, equal, others = 0, Counter[str](), set[str]()
    for run in runs:
        outcome = run["outcome"]
        if run["end"] == "errored":  # it has none, whatever its score
            continue
        known += outcome is not None
        for name, value in dict(run["rewards"] or ()).items():
            if value is None:
                continue
            seen.setdefault(name, set()).add(round(value, DIGITS))
            if outcome is None and 0 <= value <= 1:
                others.add(name)
            equal[name] += outcome == value
    sources = [name for name in sorted(seen) if equal[name] == known and name not in others]
    if not known:
        sources = [name for name in sources if len(seen) == 1 or named_outcome({name: 1.0})]
    scales = [_scale(name, sorted(seen[name])) for name in sources]
    return None if None in scales else next(iter(scales), None)


def _scale(name: str, values: list[float]) -> ScoreScale | None:
    low, high, which = values[0], values[-1], f"The score '{printable(name)}'"
    told = named_outcome({name: 1.0}) or len(values) > 1 or low in (0, 1)
    if low >= 0 and high <= 1 and told:
        return None
    if len(values) == 2:
        reading = f"{which} is {low:g} or {high:g}; {high:g} is read as success."
        return ScoreScale(score=name, values=(low, high), reading=reading)
    why = (
        f"{which} is {low:g} in every run, which tells no scale"
        if low == high
        else f"{which} lies between {low:g} and {high:g} and takes more than two values"
    )
    return ScoreScale(score=name, values=(), reading=f"{why}, so success is not told; {CURE}.")
