"""How far the reviewer and the rules agree, by family: a share with its
interval, Cohen's kappa, and the counts.

1. Only findings count on which both say yes or no; how many are open on either
   side is told beside it.
2. *Share*: tasks are the independent units. With one finding for each task the
   interval is exact (Clopper and Pearson); with several it is that of
   `share`.
3. *Kappa* (Cohen 1960): the agreement above what the two shares of yes would
   give by chance; none where they leave nothing above it, which is so when both
   always say the same.

Agreement is no accuracy: neither of them is the truth.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forensics.errors import MissingInput
from forensics.phrases import percent, plural
from forensics.records import Evidence, Interval, Provenance, Undefined
from forensics.records.evidence import Scalar
from forensics.statistics import clopper_pearson, share

LEVEL = 0.95
AGREEMENT = "review.agreement"
KAPPA = "review.kappa"
METHOD = "a language model reads the flagged steps"
CURE = "Scan more logs, or ask another reviewer; its answers and reasons are in review.jsonl."


@dataclass
class Counts:
    """Findings of one family: `[rule, reviewer]` where both tell, and the
    others. `tasks`: task -> [agree, told].
    """

    both: dict[tuple[bool, bool], int] = field(default_factory=dict)
    open_by_rule: int = 0
    undefined: int = 0
    tasks: dict[str, list[int]] = field(default_factory=dict)

    def add(self, task: str, rule: bool | None, answer: bool | None) -> None:
        self.open_by_rule += rule is None
        self.undefined += answer is None
        if rule is None or answer is None:
            return
        self.both[rule, answer] = self.both.get((rule, answer), 0) + 1
        seen = self.tasks.setdefault(task, [0, 0])
        seen[0] += rule == answer
        seen[1] += 1

    @property
    def told(self) -> int:
        return sum(self.both.values())

    @property
    def agree(self) -> int:
        return sum(count for (rule, answer), count in self.both.items() if rule == answer)


def agreement(
    rows: Iterable[Mapping[str, Any]], provenance: Provenance
) -> list[Evidence | Undefined]:
    """Share and kappa for each family in reviews (`family`, `task`, `rule`,
    `answer`), and over all of them.
    """
    whole, families = Counts(), dict[str, Counts]()
    for row in rows:
        for counts in (whole, families.setdefault(row["family"], Counts())):
            counts.add(row["task"], row["rule"], row["answer"])
    parts = [(None, whole), *sorted(families.items())] if families else []
    return [finding for about, counts in parts for finding in _answers(about, counts, provenance)]


def _answers(
    about: str | None, counts: Counts, provenance: Provenance
) -> Iterator[Evidence | Undefined]:
    shared: dict[str, Any] = {
        "about": about,
        "layer": "review",
        "method": METHOD,
        "provenance": provenance,
    }
    if not counts.told:
        reason = "There is no finding on which both the rules and the reviewer say yes or no."
        for question in (AGREEMENT, KAPPA):
            yield Undefined(question=question, **shared, cure=CURE, reason=reason)
        return
    told: dict[str, Scalar] = {
        f"rule {rule}, reviewer {answer}": counts.both.get((rule == "yes", answer == "yes"), 0)
        for rule in ("yes", "no")
        for answer in ("yes", "no")
    }
    told |= {"rule open": counts.open_by_rule, "reviewer undefined": counts.undefined}
    counted = {"n": counts.told, "clusters": len(counts.tasks), "diagnostics": told}
    rate, found = counts.agree / counts.told, kappa(counts.both)
    where = "" if about is None else f" on {about}"
    yield Evidence(
        question=AGREEMENT,
        **shared,
        **counted,
        estimate=rate,
        unit="share",
        interval=interval_of(counts),
        summary=(
            f"Rules and reviewer agree{where} on {percent(rate)} of"
            f" {plural(counts.told, 'finding')} of {plural(len(counts.tasks), 'task')}; neither is"
            " the truth."
        ),
    )
    if found is None:
        reason = "Rules and reviewer say one and the same of every finding, which chance would give"
        yield Undefined(question=KAPPA, **shared, cure=CURE, reason=f"{reason} too.")
        return
    summary = f"Cohen's kappa of rules and reviewer{where} is {found:.2f}."
    yield Evidence(
        question=KAPPA, **shared, **counted, estimate=found, unit="kappa", summary=summary
    )


def interval_of(counts: Counts) -> Interval | None:
    """Of the share that agrees; `None` for findings of a single task."""
    if len(counts.tasks) < 2:
        return None
    if all(told == 1 for _, told in counts.tasks.values()):
        low, high = clopper_pearson(counts.agree, counts.told, level=LEVEL)
        return Interval(low=low, high=high, level=LEVEL)
    agree, told = np.array(list(counts.tasks.values()), float).T
    try:
        return share(agree, told, level=LEVEL).interval
    except MissingInput:
        return None


def kappa(both: Mapping[tuple[bool, bool], int]) -> float | None:
    """Cohen's kappa of a table of counts `[rule, reviewer]`; `None` where
    chance alone gives full agreement.
    """
    total = sum(both.values())
    if not total:
        return None
    seen = sum(both.get((same, same), 0) for same in (True, False)) / total
    by_rule, by_reviewer = (sum(n for pair, n in both.items() if pair[at]) / total for at in (0, 1))
    chance = by_rule * by_reviewer + (1 - by_rule) * (1 - by_reviewer)
    return None if chance >= 1 - 1e-12 else (seen - chance) / (1 - chance)


def not_reviewed(families: Sequence[str], provenance: Provenance) -> list[Evidence | Undefined]:
    """What a review that was broken off leaves of the agreement."""
    reason = "The reviewer stopped answering before every finding was reviewed."
    cure = "Run the same command again with --resume; what was answered is not asked again."
    return [
        Undefined(
            question=AGREEMENT,
            about=about,
            layer="review",
            method=METHOD,
            provenance=provenance,
            reason=reason,
            cure=cure,
        )
        for about in (None, *families)
    ]
