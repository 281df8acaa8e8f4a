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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.instruments import instrument
from forensics.records import Control, Evidence, Figure, Interval, Provenance, Series, Table, Undefined
from forensics.records.evidence import Scalar
from forensics.wording import plural, printable
from probes.linear.evaluating import Evaluation, ProbeConfig, evaluate_probe
from probes.linear.ranking import Estimate
from probes.linear.readings import Question, Readings, will_succeed, will_use

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
                           "From Python, measure the case with `linear.configured(tasks=60)` (docs/grades.md).")
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
        found = evaluate_probe(readings, config=settings)
        plain = evaluate_probe(readings, config=replace(settings, method="difference", shuffles=0))
    except MissingInput as missing:
        return _undefined(question, about, provenance, missing)
    moved = _transfer(case, config, asked, readings, replace(settings, shuffles=0))
    return _evidence(question, about, provenance, found, plain, moved)


def _read(case: Case, side: str, config: LinearConfig, asked: Question) -> Readings:
    from probes.linear.collecting import collect_activations

    log = case.rollouts(side)
    tasks = set(sorted({row["task"] for row in log.rows("task")})[: config.tasks])
    runs = sorted((run for run in log if run.task in tasks), key=lambda run: run.id)
    policy: Any = case.policy(side)
    try:
        return collect_activations(
            policy, runs, sites=config.sites or _sites(policy), question=asked,
            progress=lambda done: case.progress(f"activations of {side}", done, len(runs)),
        )
    except UserError as error:
        raise MissingInput(f"The runs of `{side}` show no activations: {error}.", "Mend what it names.") from error


def _sites(policy: Any) -> tuple[str, ...]:
    from forensics.policies.sites import decoder_layers

    if not hasattr(policy, "model"):
        raise UserError("the layers of this policy are not known; name the sites")
    layers = range(len(decoder_layers(policy.model)))
    return tuple(f"blocks.{layer}.hook_resid_post" for layer in layers[:: -(-len(layers) // 8)])


def _transfer(
    case: Case, config: LinearConfig, asked: Question, after: Readings, settings: ProbeConfig
) -> Evaluation | None:
    """`None` where the policy before never does what is asked about, or has no runs."""
    try:
        return evaluate_probe(_read(case, "before", config, asked), after, settings)
    except (MissingInput, UserError):
        return None


def _evidence(
    question: str, about: str | None, provenance: Provenance, found: Evaluation, plain: Evaluation,
    moved: Evaluation | None,
) -> Evidence:
    ordered = sorted(found.shuffled)
    best = max(found.baselines, key=lambda name: found.baselines[name].auroc.estimate)
    extra: dict[str, Scalar] = {
        "positives": found.positives, "difference_of_means": plain.auroc.estimate, "best_text_baseline": best,
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
        diagnostics=extra, artifacts=(_table(found, plain, moved), _figure(found)),
        summary=_summary(about, found, best),
    )


def _summary(about: str | None, found: Evaluation, best: str) -> str:
    what = "a run's success" if about is None else f"a step that tries {printable(about)}"
    row = found.baselines[best]
    if row.advantage.low > 0:
        beside = f"more than the text tells ({best}: {row.auroc.estimate:.2f})"
    elif row.advantage.high < 0:
        beside = f"less than the text tells ({best}: {row.auroc.estimate:.2f})"
    else:
        beside = f"which is not told apart from what the text tells ({best}: {row.auroc.estimate:.2f})"
    return (f"Activations before the action announce {what} with an AUROC of {found.auroc.estimate:.2f} "
            f"({found.auroc.low:.2f} to {found.auroc.high:.2f}) on {plural(found.tasks, 'held-out task')}, {beside}.")


def _table(found: Evaluation, plain: Evaluation, moved: Evaluation | None) -> Table:
    rows: list[tuple[Scalar, ...]] = [
        ("logistic probe, site chosen inside", *_ends(found.auroc), None, None, None),
        ("difference of means, site chosen inside", *_ends(plain.auroc), None, None, None),
        *((f"logistic probe at {site}", *_ends(one), None, None, None) for site, one in found.by_site.items()),
        *((name, *_ends(one.auroc), *_ends(one.advantage)) for name, one in found.baselines.items()),
    ]
    if dealt := sorted(found.shuffled):
        rows.append((f"labels shuffled by task, {plural(len(dealt), 'time')}: mean, least, most",
                     sum(dealt) / len(dealt), dealt[0], dealt[-1], None, None, None))
    if moved is not None:
        rows.append(("logistic probe fitted before training", *_ends(moved.auroc), None, None, None))
    columns = ("reading", "AUROC", "low", "high", "probe minus this", "low", "high")
    return Table(title="What announces it, on held-out tasks", columns=columns, rows=tuple(rows))


def _figure(found: Evaluation) -> Figure:
    readings: Mapping[str, Estimate] = {"probe": found.auroc} | {
        name: one.auroc for name, one in found.baselines.items()}
    ends = list(readings.values())
    shuffles = sorted(found.shuffled)
    return Figure(
        title="The probe, the text and shuffled labels", form="points", y_label="AUROC on held-out tasks",
        series=(
            Series(name="readings", x=tuple(readings), y=tuple(one.estimate for one in ends),
                   low=tuple(one.low for one in ends), high=tuple(one.high for one in ends)),
            Series(name="shuffled labels", x=("shuffled labels",) * len(shuffles), y=tuple(shuffles)),
        ),
    )


def _ends(one: Estimate) -> tuple[float, float, float]:
    return one.estimate, one.low, one.high


def _interval(one: Estimate) -> Interval:
    return Interval(low=one.low, high=one.high, level=one.level)


def _undefined(question: str, about: str | None, provenance: Provenance, missing: MissingInput) -> Undefined:
    return Undefined(question=question, about=about, layer=LAYER, method=METHOD, provenance=provenance,
                     reason=missing.reason, cure=missing.cure)
