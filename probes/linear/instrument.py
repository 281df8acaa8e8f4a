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
   dictionary (`latent_alignment`).

Where the text does as well, the summary says so: then the activations hold
nothing of the decision that a reader of the text could not know. It reads
activations of whole logs, so in a case it runs only where `tasks` is set.

How a probe lies to the directions of a dictionary that `forensics diff` saved:
what its latents write into the after model.

Only the files are read (`dictionary/cfg.json`,
`dictionary/sae_weights.safetensors`): a crosscoder of two models, whose latents
lie in the order before-only, shared, after-only. One scale holds for all
activations, so cosines need no units.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.case import Case
from forensics.errors import MissingInput, UserError, refused_as_missing
from forensics.instruments import AnswerMaker, instrument
from forensics.phrases import plural, printable
from forensics.policies import read_object
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
from probes.linear.probe_data import ProbeData, Question, RunActivations, will_succeed, will_use
from probes.linear.probe_evaluation import (
    ProbeConfig,
    ProbeEvaluation,
    ProbeReport,
    measure,
    null_directions,
    train_probe,
)

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
    decoders: "LatentAlignment | None" = None
    missing: MissingInput | None = None


def probe_runs(
    own: Callable[[], RunActivations],
    before: Callable[[], RunActivations],
    channels: Sequence[Channel],
    config: ProbeConfig,
    *,
    sites: Sequence[str] = (),
    decoders: "Decoders | None" = None,
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


# -- directions of a dictionary ----------------------------------------------------------

Floats = np.ndarray
FOLDER: Final = "dictionary"
CONFIG: Final = "cfg.json"
WEIGHTS: Final = "sae_weights.safetensors"
FORMAT: Final = "policy-forensics-dictionary"
VERSION: Final = 1
CURE: Final = "give the folder that `forensics diff` wrote for this pair"


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """`cosines [directions]`; `p_value` of the largest of them in size, `None`
    without null directions to hold it against.
    """

    cosines: Floats
    p_value: float | None


def alignment(direction: Floats, directions: Floats, nulls: Floats | None = None) -> Alignment:
    """Cosines of a probe's direction with others, such as the decoders of a
    dictionary.

    `direction [features]`, `directions [others, features]`. `nulls [shuffles,
    features]`: directions of probes fitted to shuffled labels on the same
    activations. They share the activations' uneven spread, so they are the
    null; a direction drawn evenly over the sphere would flatter every cosine. A
    cosine is not a cause: steer along it. Raises `UserError` where the widths
    differ.
    """
    wide = np.atleast_2d(np.asarray(directions, np.float64))
    if wide.shape[1] != len(direction):
        raise UserError(
            f"directions of width {wide.shape[1]} do not go with a probe of width {len(direction)};"
            " read both at the same site"
        )
    cosines = _cosines(np.atleast_2d(direction), wide)[0]
    if nulls is None:
        return Alignment(cosines=cosines, p_value=None)
    beaten = np.abs(_cosines(np.atleast_2d(nulls), wide)).max(1) >= np.abs(cosines).max()
    return Alignment(cosines=cosines, p_value=float((1 + beaten.sum()) / (1 + len(beaten))))


def _cosines(first: Floats, second: Floats) -> Floats:
    """`[first, second]`; 0 with a direction of length 0."""
    lengths = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    cosines: Floats = np.divide(
        first @ second.T, lengths, out=np.zeros_like(lengths), where=lengths > 0
    )
    return cosines


@dataclass(frozen=True, kw_only=True)
class Decoders:
    """`directions [latents, features]` of the after model at `site`; `first`:
    the number of the first latent.
    """

    site: str
    first: int
    directions: np.ndarray


@dataclass(frozen=True, kw_only=True)
class LatentAlignment:
    """How a probe lies to the decoders at `site`: the `nearest` latents with
    their cosines, the largest in size first.

    `p_value`: of the largest, against probes of shuffled labels.
    """

    site: str
    nearest: tuple[tuple[int, float], ...]
    p_value: float | None


def read_decoders(folder: Path, policy: str) -> Decoders:
    """`policy`: the content hash of the checkpoint after training. Raises
    `UserError` for a diff of another one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    place = folder.expanduser() / FOLDER
    if not (place / CONFIG).is_file():
        raise UserError(f"{folder} holds no {FOLDER}/{CONFIG}; {CURE}")
    content = read_object(place / CONFIG)
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise UserError(
            f"{place / CONFIG} is not that of a dictionary of ours in version {VERSION}; {CURE}"
        )
    about = content.get("metadata")
    if not isinstance(about, dict):
        raise UserError(f"{place / CONFIG} does not say which checkpoints it is of; {CURE}")
    if about.get("after") != policy:
        raise UserError(
            f"the diff in {folder} is of another checkpoint ({about.get('after')}) than the policy "
            f"({policy}); {CURE}"
        )
    try:
        tensors = load_file(place / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{place / WEIGHTS} cannot be read as safetensors ({error}); copy or save it again"
        ) from None
    try:
        first, directions = _directions(content["dictionary"], tensors)
        return Decoders(site=str(about["site"]), first=first, directions=directions)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{place} does not hold a dictionary of two models ({error}); {CURE}"
        ) from None


def _directions(config: dict[str, Any], tensors: dict[str, Any]) -> tuple[int, np.ndarray]:
    """The after model's own rows, behind the shared ones where these are tied.
    Raises `KeyError`, `ValueError`.
    """
    if config["models"] != 2:
        raise ValueError(f"it speaks of {config['models']} models")
    part = config["partition"]
    rows = [tensors["decoders.1"]]
    if part["tied"]:
        rows.insert(0, tensors["tied_decoder"])
    directions = np.concatenate(rows).astype(np.float64)
    if (
        directions.shape != (part["latents"] - part["before_only"], config["width"])
        or not np.isfinite(directions).all()
    ):
        raise ValueError("its decoders are not what its configuration says")
    return int(part["before_only"]), directions


def latent_alignment(
    readings: ProbeData, decoders: Decoders, *, shuffles: int, seed: int, most: int = 3
) -> LatentAlignment:
    """A probe of all rows at the decoders' site against them. Raises
    `UserError` where widths or labels do not fit.
    """
    probe = train_probe(readings.activations[decoders.site], readings.labels)
    nulls = null_directions(readings, decoders.site, shuffles, seed=seed) if shuffles else None
    lies: Alignment = alignment(probe.direction, decoders.directions, nulls)
    order = np.argsort(-np.abs(lies.cosines), kind="stable")[:most]
    return LatentAlignment(
        site=decoders.site,
        p_value=lies.p_value,
        nearest=tuple((decoders.first + int(i), float(lies.cosines[i])) for i in order),
    )
