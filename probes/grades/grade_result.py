"""What a grading found, and that in plain sentences, each with the figure that
proves it and what it is held against.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forensics.phrases import capital, percent, plural, point_range, points, printable
from forensics.policies import Agreement
from forensics.report import plain
from forensics.rollout_logs import OpenedLog
from probes.grades.attribution import Attribution
from probes.grades.comparison import ScoreTable
from probes.grades.grade_sides import UNNAMED
from probes.grades.shortcut_contrast import StepContrast
from probes.grades.step_grades import GradedRun
from probes.grades.task_halves import Selected
from probes.kl.kl_split import KlSplit
from probes.linear.instrument import Probed, summary

NAMED_KINDS: Final = 3
FAR: Final = 0.05  # nats a token between sampler and scorer that are told


@dataclass(frozen=True, kw_only=True)
class Grading:
    """What was found. What could not be told is `None`, with its reason in
    `missing`.

    `attempts`: of each declared channel the kinds of steps that try it.
    `agreement`: of the log-probabilities that the sampler told with the
    scorer's, where the policy made the runs.
    """

    log: OpenedLog
    runs: tuple[GradedRun, ...]
    policy: str
    reference: str
    beta: float
    attempts: Mapping[str, tuple[str, ...]]
    comparison: ScoreTable
    split: KlSplit | None
    shortcuts: Mapping[str, StepContrast]
    attribution: tuple[Attribution, ...]
    selected: Selected | None
    missing: tuple[str, ...]
    inputs: Mapping[str, Any]
    agreement: Agreement | None = None
    probes: tuple[Probed, ...] = ()


def title(grading: Grading) -> str:
    """`2,400 runs graded by what RL made likelier`."""
    return f"{plural(len(grading.runs), 'run')} graded by what RL made likelier"


def facts(grading: Grading) -> list[str]:
    """Short ones."""
    steps = sum(len(run.steps) for run in grading.runs)
    without = sum(step.grade is None for run in grading.runs for step in run.steps)
    again = sum(run.retokenised for run in grading.runs)
    return [
        plural(grading.comparison.tasks, "task"),
        plural(steps, "step"),
        *([f"{without:,} without a grade"] if without else []),
        *([f"{again:,} runs without token ids, tokenised again"] if again else []),
        "mean over a step's tokens, mean over steps",
    ]


def sentences(grading: Grading) -> list[str]:
    """What was found, then what could not be told."""
    return [
        *_ranking(grading),
        *_shortcuts(grading),
        *_split(grading),
        *_attributed(grading),
        *_selected(grading),
        *_agreement(grading),
        *probe_sentences(grading.probes),
        *grading.missing,
    ]


def _ranking(grading: Grading) -> Iterator[str]:
    first, *others = grading.comparison.rows
    if first.auroc is None:
        yield (
            "How well the grade tells successes from failures is not known:"
            f" {printable(first.missing or '', 200)}"
        )
        return
    rival = max(others, key=lambda row: row.auroc.estimate if row.auroc else -1.0, default=None)
    against = ""
    if rival is not None and rival.auroc is not None:
        lead = f", a difference of {_value(rival.advantage_auroc)}" if rival.advantage_auroc else ""
        against = f"; the highest baseline here, {rival.score}, has {_value(rival.auroc)}{lead}"
    yield (
        "The progress advantage tells a success from a failure with an AUROC of"
        f" {_value(first.auroc)}{against}."
    )
    best = first.best
    if best is not None:
        yield (
            f"The run it chooses among {best.n} of a task succeeds in"
            f" {percent(best.chosen.estimate)}, against {percent(best.mean.estimate)} at random"
            f" ({points(best.gain.estimate)} points, {point_range(best.gain.low, best.gain.high)})"
            f" and {percent(best.oracle.estimate)} where any of them succeeds."
        )


def _shortcuts(grading: Grading) -> Iterator[str]:
    for name, effect in grading.shortcuts.items():
        verb = (
            "rewards"
            if effect.low > 0
            else "punishes"
            if effect.high < 0
            else "does not clearly tell apart"
        )
        yield (
            f"The grade {verb} steps that try {printable(name)}: {plain(effect.inside, 2)} nats a"
            f" token there, {plain(effect.outside, 2)} elsewhere (difference {_value(effect)},"
            f" {plural(effect.clusters, 'task')}). It measures what RL rewarded, not what is right."
        )


def _split(grading: Grading) -> Iterator[str]:
    split = grading.split
    if split is None:
        return
    sentence = f"KL(policy || reference) is {split.total.estimate:.2f} nats a run"
    if not grading.log.own:
        unknown = grading.policy.startswith(UNNAMED)  # no weights here say which runs are its own
        whose = (
            "of which no one here knows who made them"
            if unknown
            else "which the policy did not make"
        )
        sentence = f"At the tokens of these runs, {whose}, {sentence}"
    shares = sorted(
        (
            (part.share.estimate, kind)
            for kind, part in split.by_kind.items()
            if part.share and part.share.estimate
        ),
        reverse=True,
    )
    most = ", ".join(
        f"{percent(share)} on `{printable(kind)}`"
        for share, kind in shares[:NAMED_KINDS]
        if share > 0
    )
    yield (
        f"{sentence}; most of it went to: {most}."
        if most
        else f"{sentence}; no shares: {split.undefined}."
    )


def _attributed(grading: Grading) -> Iterator[str]:
    parts = [
        f"{one.predictor} {percent(one.at.estimate)} ({percent(one.near.estimate)} within one)"
        for one in grading.attribution
    ]
    if parts:
        yield (
            f"{capital('the')} step that lost a run is found in"
            f" {plural(grading.attribution[0].runs, 'run')} by: {', '.join(parts)}."
        )


def _selected(grading: Grading) -> Iterator[str]:
    selected = grading.selected
    if selected is not None:
        yield (
            f"Of the aggregations, {selected.aggregation.name} does best on half of the tasks"
            f" (AUROC {selected.selecting.estimate:.2f}); on the other half it has"
            f" {_value(selected.reported)}, the default {_value(selected.default)}."
        )


def _agreement(grading: Grading) -> Iterator[str]:
    agreement = grading.agreement
    if agreement is not None and agreement.mean is not None and agreement.mean > FAR:
        yield (
            f"The sampler told log-probabilities that lie {agreement.mean:.2f} nats a token from"
            f" these (at most {agreement.largest:.2f}): the runs were drawn at another temperature,"
            " with a cut-off or in another precision."
        )


def _value(estimate: Any) -> str:
    return f"{plain(estimate.estimate, 2)} ({plain(estimate.low, 2)} to {plain(estimate.high, 2)})"


def probe_sentences(probes: Sequence[Probed]) -> Iterator[str]:
    """What the probes tell, what the text does, and where their directions lie."""
    for one in probes:
        if one.measured is None:
            reason = one.missing.reason if one.missing else ""
            yield f"{probe_name(one)} cannot be probed: {reason.rstrip('.')}."
            continue
        yield summary(one.about, one.measured)
        if one.measured.unread:
            yield f"That leaves out {plural(one.measured.unread, 'step')} that could not be read."
        if one.measured.transfer is not None:
            moved = _value(one.measured.transfer.auroc)
            yield f"Fitted to the reference's own runs, the same probe has {moved} there."
        if one.decoders is not None:
            (latent, cosine), p_value = one.decoders.nearest[0], one.decoders.p_value
            chance = f"; p = {p_value:.2g} against probes of shuffled labels"
            yield (
                f"Its direction at {one.decoders.site} lies nearest to latent {latent} of the diff"
                f" (cosine {plain(cosine, 2)}{'' if p_value is None else chance})."
            )


def probe_name(one: Probed) -> str:
    """What a probe was asked."""
    return "A run's success" if one.about is None else f"A step that tries {printable(one.about)}"
