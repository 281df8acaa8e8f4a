"""What is linearly readable before a step: the shortcut to come, the success to
come. For a case as evidence (off by default), for a log beside its grades.

1. The runs of the first `tasks` tasks by name are read at the deciding tokens
   of their actions, under the policy that made them.
2. `probes.shortcut`: for each declared channel, AUROC of "this step will try
   it" on held-out tasks.
   `probes.success`: AUROC of "this run will succeed", read before its last
   action.
3. Beside each: labels shuffled by task as control (the whole distribution is a
   figure), text-only baselines on the same tasks, the difference of means, each
   site, and the transfer before -> after: a probe fitted to the first
   checkpoint's own runs and activations, read on those of the last.
4. Where a diff is given, each probe is held against the decoders of its
   dictionary (`dictionary_alignment`).

Where the text does as well, the summary says so: then the activations hold
nothing of the decision that a reader of the text could not know. It reads
activations of whole logs, so in a case it runs only where `tasks` is set.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from forensics.case import Case
from forensics.errors import MissingInput, UserError, refused_as_missing
from forensics.instruments import AnswerMaker, instrument
from forensics.phrases import plural, printable
from forensics.protocols import Channel
from forensics.records import (
    Control,
    Evidence,
    Figure,
    Interval,
    Scalar,
    Series,
    Table,
    Undefined,
)
from probes.linear.dictionary_alignment import Decoders, LatentAlignment, latent_alignment
from probes.linear.probe_data import ProbeData, Question, RunActivations, will_succeed, will_use
from probes.linear.probe_evaluation import ProbeConfig, ProbeEvaluation, ProbeReport, measure

SHORTCUT: Final = "probes.shortcut"
SUCCESS: Final = "probes.success"
LAYER: Final = "features"
METHOD: Final = (
    "L2-regularised logistic regression on activations at the last token before the action"
)


def summary(about: str | None, measured: ProbeReport) -> str:
    """What was found beside what the text tells. `about`: the shortcut, `None` for success."""
    probe, best = measured.logistic, measured.best_text
    what = "a run's success" if about is None else f"a step that tries {printable(about)}"
    row = probe.baselines[best]
    if row.advantage.low > 0:
        beside = f"more than the text tells ({best}: {row.auroc.estimate:.2f})"
    elif row.advantage.high < 0:
        beside = f"less than the text tells ({best}: {row.auroc.estimate:.2f})"
    else:
        beside = (
            f"which is not told apart from what the text tells ({best}: {row.auroc.estimate:.2f})"
        )
    return (
        f"Activations before the action announce {what} with an AUROC of {probe.auroc.estimate:.2f}"
        f" ({probe.auroc.low:.2f} to {probe.auroc.high:.2f}) on"
        f" {plural(probe.tasks, 'held-out task')}, {beside}."
    )


def table(measured: ProbeReport) -> Table:
    """Every reading with its interval, the text baselines with the probe's lead over them."""
    probe, plain, moved = measured.logistic, measured.mean_difference, measured.transfer
    rows: list[tuple[Scalar, ...]] = [
        ("logistic probe, site chosen inside", *probe.auroc.ends, None, None, None),
        ("difference of means, site chosen inside", *plain.auroc.ends, None, None, None),
        *(
            (f"logistic probe at {site}", *one.ends, None, None, None)
            for site, one in probe.by_site.items()
        ),
        *((name, *one.auroc.ends, *one.advantage.ends) for name, one in probe.baselines.items()),
    ]
    if permuted := sorted(probe.shuffled):
        rows.append(
            (
                f"labels shuffled by task, {plural(len(permuted), 'time')}: mean, least, most",
                sum(permuted) / len(permuted),
                permuted[0],
                permuted[-1],
                None,
                None,
                None,
            )
        )
    if moved is not None:
        rows.append(("logistic probe fitted before training", *moved.auroc.ends, None, None, None))
    columns = ("reading", "AUROC", "low", "high", "probe minus this", "low", "high")
    return Table(title="What announces it, on held-out tasks", columns=columns, rows=tuple(rows))


def figure(probe: ProbeEvaluation) -> Figure:
    """The probe, the text and shuffled labels side by side."""
    readings = {"probe": probe.auroc} | {name: one.auroc for name, one in probe.baselines.items()}
    estimates, lows, highs = zip(*(one.ends for one in readings.values()), strict=True)
    shuffles = sorted(probe.shuffled)
    return Figure(
        title="The probe, the text and shuffled labels",
        form="points",
        y_label="AUROC on held-out tasks",
        series=(
            Series(
                name="readings",
                x=tuple(readings),
                y=estimates,
                low=lows,
                high=highs,
            ),
            Series(
                name="shuffled labels", x=("shuffled labels",) * len(shuffles), y=tuple(shuffles)
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Probed:
    """One question. `about`: the shortcut, `None` for success. What cannot be
    told is `None`, why is in `missing`.
    """

    about: str | None
    measured: ProbeReport | None = None
    decoders: LatentAlignment | None = None
    missing: MissingInput | None = None


def probe_runs(
    own: Callable[[], RunActivations],
    before: Callable[[], RunActivations],
    channels: Sequence[Channel],
    config: ProbeConfig,
    *,
    sites: Sequence[str] = (),
    decoders: Decoders | None = None,
) -> Iterator[Probed]:
    """An answer to each question. `own`, `before`: read the runs of the policy
    and of the first checkpoint, once, when the first question wants them.

    `sites`: that are probed (none: all that were read). What `own` raises but
    `MissingInput` is raised here.
    """
    own, before = cache(own), cache(before)
    questions: list[tuple[str | None, Question]] = [
        *((channel.name, will_use(channel.attempts)) for channel in channels),
        (None, will_succeed()),
    ]
    for about, question in questions:

        def asked_before(question: Question = question) -> ProbeData:
            return before().asked(question)

        try:
            data = own().asked(question)
            probed = data.at(sites) if sites else data
            measured = measure(probed, asked_before, config)
        except MissingInput as missing:
            yield Probed(about=about, missing=missing)
            continue
        lies = None
        if decoders is not None:
            lies = latent_alignment(data, decoders, shuffles=config.shuffles, seed=config.seed)
        yield Probed(about=about, measured=measured, decoders=lies)


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """`tasks`: of how many tasks the runs are read (0: off). `sites`:
    TransformerLens names (none: the residual stream behind every layer of a
    model that is run here, at most eight of them evenly spread). `shuffles` of
    the labels. `level` of intervals.
    """

    tasks: int = 0
    sites: tuple[str, ...] = ()
    shuffles: int = 39
    level: float = 0.95


@instrument(name="linear", layer=LAYER, questions=(SHORTCUT, SUCCESS), config=LinearConfig())
def linear(case: Case, config: LinearConfig) -> Iterator[Evidence | Undefined]:
    """Answers both questions; raises `MissingInput` for what the case cannot
    give, and where it is off.
    """
    if not config.tasks:
        raise MissingInput(
            "Linear probes are off: they read activations of whole logs.",
            "Measure them on this case with `forensics grade CASE --linear-probes 60`"
            " (docs/grades.md).",
        )
    if not case.runs_models:
        raise MissingInput(
            "Logs alone show no activations.", "Give the checkpoints to `forensics investigate`."
        )
    case.require_afters()
    answers = linear.answers(case, config, METHOD)
    if not case.channels:
        missing = MissingInput(
            "The environment declares no channel.",
            "Ask about step kinds with `probes.linear.will_use`.",
        )
        yield answers.undefined(SHORTCUT, missing)
    for one in probe_runs(
        lambda: _read(case, case.afters[0], config),
        lambda: _read(case, "before", config),
        case.channels,
        ProbeConfig(shuffles=config.shuffles, level=config.level, seed=case.seed),
    ):
        question = SUCCESS if one.about is None else SHORTCUT
        if one.measured is None:
            assert one.missing is not None
            yield answers.undefined(question, one.missing, one.about)
        else:
            yield _evidence(question, one.about, answers, one.measured)


def _read(case: Case, side: str, config: LinearConfig) -> RunActivations:
    log = case.rollouts(side)
    tasks = set(sorted({row["task"] for row in log.rows("task")})[: config.tasks])
    runs = [run for run in log if run.task in tasks]
    policy: Any = case.policy(side)
    with refused_as_missing(f"The runs of `{side}` show no activations"):
        return RunActivations.of(
            policy,
            runs,
            config.sites or usual_sites(policy),
            lambda done, of: case.progress(f"activations {case.said(side)}", done, of),
        )


def usual_sites(policy: Any) -> tuple[str, ...]:
    """The residual stream behind every layer, at most eight, evenly spread.
    Raises `UserError` without a model.
    """
    from forensics.policies import decoder_layers

    if "weights" not in policy.capabilities:
        raise UserError("the layers of this policy are not known; name the sites")
    layers = range(len(decoder_layers(policy.model)))
    return tuple(f"blocks.{layer}.hook_resid_post" for layer in layers[:: -(-len(layers) // 8)])


def _evidence(
    question: str, about: str | None, answers: AnswerMaker, measured: ProbeReport
) -> Evidence:
    probe, best, moved = measured.logistic, measured.best_text, measured.transfer
    ordered = sorted(probe.shuffled)
    extra: dict[str, Scalar] = {
        "positives": probe.positives,
        "unread_steps": measured.unread,
        "difference_of_means": measured.mean_difference.auroc.estimate,
        "best_text_baseline": best,
        "above_best_text": probe.baselines[best].advantage.estimate,
        "above_best_text_low": probe.baselines[best].advantage.low,
        "before_to_after": None if moved is None else moved.auroc.estimate,
    }
    return answers.evidence(
        question,
        probe.auroc,
        about=about,
        unit="AUROC",
        n=probe.rows,
        clusters=probe.tasks,
        control=(
            Control(
                name=f"{len(ordered)} shuffles of the labels by task",
                estimate=sum(ordered) / len(ordered),
                interval=Interval(
                    low=ordered[0], high=ordered[-1], level=(len(ordered) - 1) / (len(ordered) + 1)
                ),
                p_value=probe.p_value,
            )
            if ordered
            else None
        ),
        diagnostics=extra,
        artifacts=(table(measured), figure(probe)),
        summary=summary(about, measured),
    )
