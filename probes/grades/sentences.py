"""A grading in plain sentences: each with the figure that proves it and what it is held against."""

from collections.abc import Iterator
from typing import Any, Final

from forensics.wording import MINUS, capital, percent, plural, point_range, points, printable
from probes.grades.comparing import Compared
from probes.grades.probing import probe_sentences
from probes.grades.running import Grading
from probes.scoring.served import UNNAMED

NAMED_KINDS: Final = 3
FAR: Final = 0.05  # nats a token between sampler and scorer that are told


def title(grading: Grading) -> str:
    """`2,400 runs graded by what RL made likelier`."""
    return f"{plural(len(grading.runs), 'run')} graded by what RL made likelier"


def facts(grading: Grading) -> list[str]:
    """Short ones."""
    steps = sum(len(run.steps) for run in grading.runs)
    without = sum(step.grade is None for run in grading.runs for step in run.steps)
    again = sum(run.retokenised for run in grading.runs)
    return [plural(grading.comparison.tasks, "task"), plural(steps, "step"),
            *([f"{without:,} without a grade"] if without else []),
            *([f"{again:,} runs without token ids, tokenised again"] if again else []),
            "mean over a step's tokens, mean over steps"]


def sentences(grading: Grading) -> list[str]:
    """What was found, then what could not be told."""
    return [*_ranking(grading), *_shortcuts(grading), *_split(grading), *_attribution(grading), *_selected(grading),
            *_agreement(grading), *probe_sentences(grading.probes), *grading.missing]


def _ranking(grading: Grading) -> Iterator[str]:
    first, *others = grading.comparison.rows
    if first.auroc is None:
        yield f"How well the grade tells successes from failures is not known: {printable(first.missing or '', 200)}"
        return
    rival = max(others, key=lambda row: row.auroc.estimate if row.auroc else -1.0, default=None)
    yield (f"The progress advantage tells a success from a failure with an AUROC of {_value(first.auroc)}"
           f"{_against(rival)}.")
    best = first.best
    if best is not None:
        yield (f"The run it chooses among {best.n} of a task succeeds in {percent(best.chosen.estimate)}, against "
               f"{percent(best.mean.estimate)} at random ({points(best.gain.estimate)} points, "
               f"{point_range(best.gain.low, best.gain.high)}) and {percent(best.oracle.estimate)} where any of them "
               "succeeds.")


def _against(rival: Compared | None) -> str:
    if rival is None or rival.auroc is None:
        return ""
    lead = f", a difference of {_value(rival.advantage_auroc)}" if rival.advantage_auroc else ""
    return f"; the highest baseline here, {rival.score}, has {_value(rival.auroc)}{lead}"


def _shortcuts(grading: Grading) -> Iterator[str]:
    for name, found in grading.shortcuts.items():
        verb = "rewards" if found.low > 0 else "punishes" if found.high < 0 else "does not clearly tell apart"
        yield (f"The grade {verb} steps that try {printable(name)}: {_number(found.inside)} nats a token there, "
               f"{_number(found.outside)} elsewhere (difference {_value(found)}, {plural(found.tasks, 'task')}). It "
               "measures what RL rewarded, not what is right.")


def _split(grading: Grading) -> Iterator[str]:
    split = grading.split
    if split is None:
        return
    told = f"KL(policy || reference) is {split.total:.2f} nats a run"
    if not grading.log.own:
        unknown = grading.policy.startswith(UNNAMED)  # no weights here say which runs are its own
        whose = "of which no one here knows who made them" if unknown else "which the policy did not make"
        told = f"At the tokens of these runs, {whose}, {told}"
    shares = sorted(((part.share, kind) for kind, part in split.by_kind.items() if part.share), reverse=True)
    most = ", ".join(f"{percent(share)} on `{printable(kind)}`" for share, kind in shares[:NAMED_KINDS] if share > 0)
    yield f"{told}; most of it went to: {most}." if most else f"{told}; no shares: {split.undefined}."


def _attribution(grading: Grading) -> Iterator[str]:
    parts = [f"{one.predictor} {percent(one.at.estimate)} ({percent(one.near.estimate)} within one)"
             for one in grading.attribution]
    if parts:
        yield (f"{capital('the')} step that lost a run is found in {plural(grading.attribution[0].runs, 'run')} by: "
               f"{', '.join(parts)}.")


def _selected(grading: Grading) -> Iterator[str]:
    found = grading.selected
    if found is not None:
        yield (f"Of the aggregations, {found.aggregation.name} does best on half of the tasks (AUROC "
               f"{found.selecting.estimate:.2f}); on the other half it has {_value(found.reported)}, the default "
               f"{_value(found.default)}.")


def _agreement(grading: Grading) -> Iterator[str]:
    found = grading.agreement
    if found is not None and found.mean is not None and found.mean > FAR:
        yield (f"The sampler told log-probabilities that lie {found.mean:.2f} nats a token from these (at most "
               f"{found.largest:.2f}): the runs were drawn at another temperature, with a cut-off or in another "
               "precision.")


def _value(found: Any) -> str:
    return f"{_number(found.estimate)} ({_number(found.low)} to {_number(found.high)})"


def _number(value: float) -> str:
    text = f"{abs(value):.2f}"
    return f"{MINUS}{text}" if value < 0 and float(text) else text
