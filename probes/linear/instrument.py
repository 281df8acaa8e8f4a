"""What is linearly readable before a step, as evidence: the shortcut to come, the success to come. Off by default.

1. Runs of the first checkpoint after training are read at the deciding tokens of their actions, under that checkpoint.
2. `probes.shortcut`: for each declared channel, AUROC of "this step will try it" on held-out tasks.
   `probes.success`: AUROC of "this run will succeed", read before its last action.
3. Beside each: labels shuffled by task as control (the whole distribution is a figure), text-only baselines on the same
   tasks, the difference of means, each site, and the transfer before -> after: a probe fitted to the first checkpoint's
   own runs and activations, read on those of the last.

Where the text does as well, the summary says so: then the activations hold nothing of the decision that a reader of
the text could not know. It reads activations of whole logs, so it runs only where `tasks` is set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.instruments import instrument
from forensics.records import Control, Evidence, Interval, Provenance, Undefined
from forensics.records.evidence import Scalar
from probes.linear.evaluating import ProbeConfig
from probes.linear.measuring import Measured, measure
from probes.linear.ranking import Estimate
from probes.linear.readings import Question, Readings, will_succeed, will_use
from probes.linear.telling import figure, summary, table

SHORTCUT: Final = "probes.shortcut"
SUCCESS: Final = "probes.success"
LAYER: Final = "features"
METHOD: Final = "L2-regularised logistic regression on activations at the last token before the action"


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """`tasks`: of how many tasks the runs are read (0: off). `sites`: TransformerLens names (none: the residual stream
    behind every layer of a model that is run here, at most eight of them evenly spread). `shuffles` of the labels.
    `level` of intervals."""

    tasks: int = 0
    sites: tuple[str, ...] = ()
    shuffles: int = 39
    level: float = 0.95


@instrument(name="linear", layer=LAYER, questions=(SHORTCUT, SUCCESS), config=LinearConfig())
def linear(case: Case, config: LinearConfig) -> Iterator[Evidence | Undefined]:
    """Answers both questions; raises `MissingInput` for what the case cannot give, and where it is off."""
    if not config.tasks:
        raise MissingInput("Linear probes are off: they read activations of whole logs.",
                           "Measure them on this case with `forensics grade CASE --linear-probes 60` (docs/grades.md).")
    if not case.policies:
        raise MissingInput("Logs alone show no activations.", "Give the checkpoints to `forensics investigate`.")
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    provenance = linear.configured(**vars(config)).provenance(case)
    if not case.channels:
        yield _undefined(SHORTCUT, None, provenance, MissingInput(
            "The environment declares no channel.", "Ask about step kinds with `probes.linear.will_use`."))
    for channel in case.channels:
        yield _answer(case, config, provenance, SHORTCUT, channel.name, will_use(channel.attempts))
    yield _answer(case, config, provenance, SUCCESS, None, will_succeed())


def _answer(
    case: Case, config: LinearConfig, provenance: Provenance, question: str, about: str | None, asked: Question
) -> Evidence | Undefined:
    settings = ProbeConfig(shuffles=config.shuffles, level=config.level, seed=case.seed)
    try:
        readings = _read(case, case.afters[0], config, asked)
        measured = measure(readings, lambda: _read(case, "before", config, asked), settings)
    except MissingInput as missing:
        return _undefined(question, about, provenance, missing)
    return _evidence(question, about, provenance, measured)


def _read(case: Case, side: str, config: LinearConfig, asked: Question) -> Readings:
    from probes.linear.collecting import collect_activations

    log = case.rollouts(side)
    tasks = set(sorted({row["task"] for row in log.rows("task")})[: config.tasks])
    runs = sorted((run for run in log if run.task in tasks), key=lambda run: run.id)
    policy: Any = case.policy(side)
    try:
        return collect_activations(
            policy, runs, sites=config.sites or usual_sites(policy), question=asked,
            progress=lambda done: case.progress(f"activations of {side}", done, len(runs)),
        )
    except UserError as error:
        raise MissingInput(f"The runs of `{side}` show no activations: {error}.", "Mend what it names.") from error


def usual_sites(policy: Any) -> tuple[str, ...]:
    """The residual stream behind every layer, at most eight, evenly spread. Raises `UserError` without a model."""
    from forensics.policies.sites import decoder_layers

    if not hasattr(policy, "model"):
        raise UserError("the layers of this policy are not known; name the sites")
    layers = range(len(decoder_layers(policy.model)))
    return tuple(f"blocks.{layer}.hook_resid_post" for layer in layers[:: -(-len(layers) // 8)])


def _evidence(question: str, about: str | None, provenance: Provenance, measured: Measured) -> Evidence:
    found, best, moved = measured.found, measured.best_text, measured.moved
    ordered = sorted(found.shuffled)
    extra: dict[str, Scalar] = {
        "positives": found.positives, "unread_steps": measured.unread,
        "difference_of_means": measured.plain.auroc.estimate,
        "best_text_baseline": best,
        "above_best_text": found.baselines[best].advantage.estimate,
        "above_best_text_low": found.baselines[best].advantage.low,
        "before_to_after": None if moved is None else moved.auroc.estimate,
    }
    return Evidence(
        question=question, about=about, layer=LAYER, method=METHOD, provenance=provenance,
        estimate=found.auroc.estimate, unit="AUROC", interval=_interval(found.auroc), n=found.rows,
        clusters=found.tasks, control=Control(
            name=f"{len(ordered)} shuffles of the labels by task", estimate=sum(ordered) / len(ordered),
            interval=Interval(low=ordered[0], high=ordered[-1], level=(len(ordered) - 1) / (len(ordered) + 1)),
            p_value=found.p_value,
        ) if ordered else None,
        diagnostics=extra, artifacts=(table(measured), figure(found)),
        summary=summary(about, measured),
    )


def _interval(one: Estimate) -> Interval:
    return Interval(low=one.low, high=one.high, level=one.level)


def _undefined(question: str, about: str | None, provenance: Provenance, missing: MissingInput) -> Undefined:
    return Undefined(question=question, about=about, layer=LAYER, method=METHOD, provenance=provenance,
                     reason=missing.reason, cure=missing.cure)
