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

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.phrases import percent, plural
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.evidence import Scalar
from forensics.statistics import Estimate, binomial, share_by_task

AGREEMENT = "review.agreement"
KAPPA = "review.kappa"
METHOD = "a language model reads the flagged steps"
CURE = "Scan more logs, or ask another reviewer; its answers and reasons are in review.jsonl."
Review = tuple[str, bool | None, bool | None]  # the task; what rule and reviewer say


def agreement(
    rows: Iterable[Mapping[str, Any]], provenance: Provenance
) -> list[Evidence | Undefined]:
    """Share and kappa for each family in reviews (`family`, `task`, `rule`,
    `answer`), and over all of them.
    """
    whole: list[Review] = []
    families: dict[str, list[Review]] = {}
    for row in rows:
        for reviews in (whole, families.setdefault(row["family"], [])):
            reviews.append((row["task"], row["rule"], row["answer"]))
    make = AnswerMaker(layer="review", method=METHOD, provenance=provenance)
    parts = [(None, whole), *sorted(families.items())] if families else []
    return [answer for about, reviews in parts for answer in _answers(make, about, reviews)]


def _answers(
    make: AnswerMaker, about: str | None, reviews: Sequence[Review]
) -> Iterator[Evidence | Undefined]:
    told = [
        (task, rule, answer)
        for task, rule, answer in reviews
        if rule is not None and answer is not None
    ]
    if not told:
        reason = "There is no finding on which both the rules and the reviewer say yes or no."
        for question in (AGREEMENT, KAPPA):
            yield make.undefined(question, MissingInput(reason, CURE), about)
        return
    both = Counter((rule, answer) for _, rule, answer in told)
    tasks = len({task for task, _, _ in told})
    counts: dict[str, Scalar] = {
        f"rule {rule}, reviewer {answer}": both[rule == "yes", answer == "yes"]
        for rule in ("yes", "no")
        for answer in ("yes", "no")
    }
    counts["rule open"] = sum(rule is None for _, rule, _ in reviews)
    counts["reviewer undefined"] = sum(answer is None for _, _, answer in reviews)
    shared: dict[str, Any] = {
        "about": about,
        "n": len(told),
        "clusters": tasks,
        "diagnostics": counts,
    }
    rate = (both[True, True] + both[False, False]) / len(told)
    where = "" if about is None else f" on {about}"
    yield make.evidence(
        AGREEMENT,
        _share(told, tasks) or rate,
        **shared,
        unit="share",
        summary=(
            f"Rules and reviewer agree{where} on {percent(rate)} of"
            f" {plural(len(told), 'finding')} of {plural(tasks, 'task')}; neither is the truth."
        ),
    )
    found = kappa(both)
    if found is None:
        reason = "Rules and reviewer say one and the same of every finding, which chance would give"
        yield make.undefined(KAPPA, MissingInput(f"{reason} too.", CURE), about)
        return
    summary = f"Cohen's kappa of rules and reviewer{where} is {found:.2f}."
    yield make.evidence(KAPPA, found, **shared, unit="kappa", summary=summary)


def _share(told: Sequence[Review], tasks: int) -> Estimate | None:
    """The share that agrees; `None` for findings of a single task, which give no interval."""
    if tasks < 2:
        return None
    if tasks == len(told):
        return binomial(sum(rule == answer for _, rule, answer in told), tasks)
    return share_by_task((task, rule == answer, 1) for task, rule, answer in told)


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


def not_reviewed(families: Sequence[str], provenance: Provenance) -> list[Undefined]:
    """What a review that was broken off leaves of the agreement."""
    missing = MissingInput(
        "The reviewer stopped answering before every finding was reviewed.",
        "Run the same command again with --resume; what was answered is not asked again.",
    )
    make = AnswerMaker(layer="review", method=METHOD, provenance=provenance)
    return [make.undefined(AGREEMENT, missing, about) for about in (None, *families)]
