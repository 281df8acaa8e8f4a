"""The score layer: the gain, and how much of it survives when every declared
shortcut is scrubbed for both sides.

1. Stream the runs of *before* and of every *after* in the open world and in the
   world without any channel; with two to four channels in every world between,
   with more in the worlds with one channel open or one shut.
2. `G = mean over tasks of (after - before)` in the open world, `G0` the same in
   the scrubbed world; genuine = G0, phantom = G - G0. All are contrasts over
   one table of cells, paired by task and crossed with training seeds, so that
   they add up. The policy before training, which was not trained on the
   shortcuts, is the placebo of scrubbing: what it loses.
3. G0 once more with breakage imputed, because a policy trained on a shortcut
   may be thrown off by the scrubbed world rather than lack the skill.
4. Each channel's part: its Shapley value.
5. Control: the same contrast between two halves of the before policy's own
   runs.

Runs that the token budget kept from acting, or cut off, must not pass for
losses without a word. A prompt that fills the budget ends its run before the
first action, with the score 0: where more than one in a hundred of a side's
runs never acted, scores of that world are not compared at all; fewer are named
as a gap. A run cut off later counts as lost, as the settings say, and many of
them are named as a gap. Where most runs of both sides were cut off, the scores
are about the budget and not about the policies, and are not compared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, instrument
from forensics.layers import decomposition as parts
from forensics.layers.bounds import WORDS
from forensics.layers.decomposition import OPEN, Panel, Runs, Weights, World
from forensics.phrases import percent, plural, point_range, points, printable
from forensics.records import Control, Evidence, Figure, Provenance, Series, Table, Undefined
from forensics.records.evidence import Scalar
from forensics.records.gain_test import GainTest
from forensics.runs import Condition
from forensics.statistics import Contrast
from forensics.statistics.shapley import first_and_last_weights, shapley_weights

Diagnostics = dict[str, Scalar]
MOST_SILENT = 0.01  # of the runs of one side in one world
MOST_CUT = 0.5  # of the runs of each side in one world


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """`level` of every interval; `exact_channels`: up to so many channels every
    world between is run.
    """

    level: float = 0.95
    exact_channels: int = 4


PARTS = {
    "gain.total": "gain",
    "gain.genuine": "genuine",
    "gain.phantom": "phantom",
    "gain.genuine_imputed": "genuine, breakage imputed",
    "gain.phantom_imputed": "phantom, breakage imputed",
}
QUESTIONS = (*parts.open_weights(), *parts.scrubbed_weights(OPEN), "gain.channel")


@dataclass(frozen=True, kw_only=True)
class WorldRuns:
    """What could be read: runs of each world, the fully scrubbed world, the
    channels to share out the phantom part among (empty where not every world
    was there), and what was missing.
    """

    worlds: dict[World, tuple[Runs, tuple[Runs, ...]]]
    scrubbed: World | None = None
    channels: tuple[str, ...] = ()
    missing: MissingInput | None = None
    basis: str = "re-run"


def most_episodes(case: Case, config: ScoreConfig) -> int:
    """Both sides in every world that `read_case` reads."""
    names = tuple(sorted(channel.name for channel in case.channels))
    worlds = 2 + len(worlds_between(names, config.exact_channels)) if names else 1
    return worlds * (1 + len(case.afters)) * len(case.tasks) * case.budget.samples


SCRUBBING = GainTest(
    name="scrubbing",
    kind="declared",
    excludes="shortcuts of the world",
    place=10,
    shares="gain.channel",
    todo="close it where policies are trained and scored",
)


@instrument(
    name="score",
    layer="score",
    questions=QUESTIONS,
    config=ScoreConfig(),
    episodes=most_episodes,
    gain_tests=(SCRUBBING,),
)
def score(case: Case, config: ScoreConfig) -> Iterator[Evidence | Undefined]:
    """Answer every question the case has runs for; raise `MissingInput` for the rest."""
    reading = read_case(case, config)
    provenance = score.configured(**vars(config)).provenance(case)
    yield from findings(reading, config, provenance)
    if reading.missing is not None:
        raise reading.missing


def read_case(case: Case, config: ScoreConfig) -> WorldRuns:
    """Stream every world the case can give; the open one is required (`MissingInput`)."""
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    worlds = {OPEN: _read_world(case, OPEN)}
    basis = "re-run" if case.runs_models else "logs alone"
    try:
        everything = channel_names(case)
        worlds[everything] = _read_world(case, everything)
    except MissingInput as missing:
        return WorldRuns(worlds=worlds, missing=missing, basis=basis)
    between: dict[World, tuple[Runs, tuple[Runs, ...]]] = {}
    try:
        for world in worlds_between(everything, config.exact_channels):
            between[world] = _read_world(case, world)
    except MissingInput as missing:
        return WorldRuns(worlds=worlds, scrubbed=everything, missing=missing)
    return WorldRuns(worlds=worlds | between, scrubbed=everything, channels=everything)


def channel_names(case: Case) -> World:
    """Every channel of the environment, sorted; from logs without one, the
    largest set they were scrubbed of.
    """
    names = {channel.name for channel in case.channels} or set().union(
        *(without for _, without in case.stored)
    )
    if names:
        return tuple(sorted(names))
    if case.environment is None:
        raise MissingInput(
            "The logs hold no scrubbed world, so a genuine gain cannot be told from a phantom one"
            " by a re-run.",
            "Give the checkpoints and an environment that declares its channels to `forensics"
            " investigate`.",
        )
    raise MissingInput(
        f"No shortcut to scrub: the environment {printable(case.environment.name)} declares no"
        " channel, so a genuine gain cannot be told from a phantom one by a re-run.",
        "Declare the shortcuts as channels of the environment, each with a scrubbed twin of the"
        " world.",
    )


def worlds_between(everything: World, exact_channels: int) -> list[World]:
    """The worlds that attribution takes beside the open and the fully scrubbed one."""
    count = len(everything)
    sizes = range(1, count) if count <= exact_channels else sorted({1, count - 1} - {count, 0})
    return [world for size in sizes for world in combinations(everything, size)]


def _read_world(case: Case, world: World) -> tuple[Runs, tuple[Runs, ...]]:
    before, *afters = (
        parts.read_runs(case.rollouts(side, Condition(scrubbed=world)).rows(*parts.COLUMNS))
        for side in ("before", *case.afters)
    )
    require_acting(world, before, afters)
    return before, tuple(afters)


def largest_share(sides: Iterable[Runs], what: Literal["silent", "cut"]) -> float:
    """The largest share of such runs among several sides (0 without runs)."""
    return max(
        (getattr(runs, what) / total for runs in sides if (total := float(runs.counts.sum()))),
        default=0.0,
    )


def require_acting(world: World, before: Runs, afters: Sequence[Runs]) -> None:
    """Raises `MissingInput` where the runs of a world do not tell enough about the policies."""
    if any(runs.lost == 1 for runs in (before, *afters)):
        side = "before" if before.lost == 1 else "after"
        raise MissingInput(
            f"No run {side} training{_where(world)} has a score: they errored, or the world told"
            " none.",
            "Find out why, and run them again.",
        )
    both = "{} of the runs before training and {} of those after it".format
    where = _where(world)
    silent = largest_share([before], "silent"), largest_share(afters, "silent")
    if max(silent) > MOST_SILENT:
        raise MissingInput(
            f"{both(*map(percent, silent))}{where} never acted, as where a prompt leaves no room"
            " for an action, so their scores say nothing.",
            "Raise `--max-tokens` above the longest prompt, or leave the longest tasks out.",
        )
    cut = largest_share([before], "cut"), largest_share(afters, "cut")
    if min(cut) > MOST_CUT:
        raise MissingInput(
            f"{both(*map(percent, cut))}{where} were cut off by the token budget, so their scores"
            " are about the budget.",
            "Raise `--max-tokens`.",
        )


def _where(world: World) -> str:
    return f" with {' and '.join(map(printable, world))} scrubbed" if world else ""


def silent_shares(worlds: Mapping[World, tuple[Runs, tuple[Runs, ...]]]) -> dict[str, float]:
    """What the gain says of it: the largest share over the worlds for each
    side; nothing where no run is concerned.
    """
    before = [before for before, _ in worlds.values()]
    after = [runs for _, afters in worlds.values() for runs in afters]
    shares = {
        "never_acted_before": largest_share(before, "silent"),
        "never_acted_after": largest_share(after, "silent"),
        "cut_off_before": largest_share(before, "cut"),
        "cut_off_after": largest_share(after, "cut"),
        "lost_before": max(runs.lost for runs in before),
        "lost_after": max(runs.lost for runs in after),
    }
    return {name: value for name, value in shares.items() if value}


def findings(reading: WorldRuns, config: ScoreConfig, provenance: Provenance) -> Iterator[Evidence]:
    """Every answer that a reading supports, in a fixed order. Pure: no files, no randomness."""
    panel = parts.paired(reading.worlds, reading.scrubbed)
    control = parts.control_panel(reading.worlds, reading.scrubbed)
    make = AnswerMaker(layer="score", method="score", provenance=provenance)
    maker = Maker(reading=reading, panel=panel, control=control, level=config.level, make=make)
    questions = parts.open_weights()
    if reading.scrubbed is not None:
        questions |= parts.scrubbed_weights(reading.scrubbed)
    made = {question: maker.evidence(question, weights) for question, weights in questions.items()}
    figure = whiskers(
        "The gain and its parts",
        {part: made[question] for question, part in PARTS.items() if question in made},
    )
    table = Table(
        title="Scores and gains",
        columns=("quantity", "estimate", "low", "high", "runs", "tasks", "A/A control"),
        rows=tuple(
            (
                question,
                one.estimate,
                one.interval and one.interval.low,
                one.interval and one.interval.high,
                one.n,
                one.clusters,
                one.control and one.control.estimate,
            )
            for question, one in made.items()
        ),
    )
    made["gain.total"] = made["gain.total"].model_copy(update={"artifacts": (figure, table)})
    yield from made.values()
    shares = {share.about or "": share for share in channel_answers(maker, config)}
    for number, share in enumerate(shares.values()):
        artifacts = (whiskers("The phantom part by channel", shares),) if number == 0 else ()
        yield share.model_copy(update={"artifacts": artifacts})


def whiskers(title: str, shown: Mapping[str, Evidence]) -> Figure:
    """Answers with their intervals, by the name that each has in the figure."""
    intervals = [one.interval for one in shown.values()]
    series = Series(
        name="estimate",
        x=tuple(shown),
        y=tuple(one.estimate for one in shown.values()),
        low=tuple(interval and interval.low for interval in intervals),
        high=tuple(interval and interval.high for interval in intervals),
    )
    return Figure(title=title, form="points", y_label="score difference", series=(series,))


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Turns weights into evidence: estimate, control, diagnostics, sentence."""

    reading: WorldRuns
    panel: Panel
    control: Panel | None
    level: float
    make: AnswerMaker

    def evidence(
        self,
        question: str,
        weights: Weights,
        *,
        about: str | None = None,
        more: Diagnostics | None = None,
        method: str = "",
    ) -> Evidence:
        estimate = self.panel.at_worst(weights, self.level)
        crossed = "crossed with training seeds" if estimate.seeds > 1 else "one training seed"
        return self.make.evidence(
            question,
            estimate,
            about=about,
            method=f"{method}paired contrast over tasks, {crossed}",
            unit="score" if question.startswith("score.") else "score difference",
            n=self.panel.runs_behind(weights),
            control=self._control(question, weights),
            diagnostics=self._diagnostics(estimate) | (more or {}),
            summary=self._sentence(question, about, estimate),
        )

    def _control(self, question: str, weights: Weights) -> Control | None:
        if self.control is None or question.startswith("score."):
            return None
        null = self.control.estimate(weights, self.level)
        name = "A/A: the same contrast between two halves of the before policy's own runs"
        return Control(name=name, estimate=null.estimate, interval=null.interval)

    def _diagnostics(self, estimate: Contrast) -> Diagnostics:
        scrubbed = self.reading.scrubbed
        return {
            "seeds": estimate.seeds,
            "training_noise_measured": estimate.seeds > 1,
            "half_width_tasks": estimate.half_width_tasks,
            "half_width_training": estimate.half_width_training,
            "seed_deviation": estimate.seed_deviation,
            "tasks_dropped": self.panel.tasks_dropped,
            "runs_dropped": self.panel.runs_dropped,
            "scrubbed": None if scrubbed is None else ", ".join(map(printable, scrubbed)),
            "basis": self.reading.basis,
            **silent_shares(self.reading.worlds),
        }

    def _sentence(self, question: str, about: str | None, estimate: Contrast) -> str:
        names = " and ".join(map(printable, self.reading.scrubbed or ()))
        level = f"{100 * estimate.level:g} % interval"
        if question.startswith("score."):
            ends = f"{percent(estimate.low)} to {percent(estimate.high)}"
            value = f"{percent(estimate.estimate)} ({level} {ends})"
        else:
            ends = point_range(estimate.low, estimate.high, 1)
            value = f"{points(estimate.estimate, 1)} points ({level} {ends})"
        text = WORDS["score"][question].format(
            value=value, scrubbed=names, channel=printable(about or "")
        )
        return f"{text} over {plural(estimate.clusters, 'task')}."


def channel_answers(maker: Maker, config: ScoreConfig) -> Iterator[Evidence]:
    """One answer for each channel; nothing where a world it takes is missing."""
    channels = maker.reading.channels
    if len(channels) <= config.exact_channels:
        for channel, weights in shapley_weights(channels).items():
            yield maker.evidence(
                "gain.channel", _gains(weights, channels), about=channel, method="Shapley value, "
            )
        return
    for channel, (first, last) in first_and_last_weights(channels).items():
        alone, left_out = _gains(first, channels), _gains(last, channels)
        # positive where the channel helps others, negative where it is redundant
        both = parts.add((1, left_out), (-1, alone))
        interaction: Diagnostics = {}
        contrasts = {"only_one_open": alone, "leave_one_out": left_out, "interaction": both}
        for name, contrast in contrasts.items():
            ends = maker.panel.at_worst(contrast, maker.level).ends
            interaction |= zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)
        yield maker.evidence(
            "gain.channel",
            parts.add((0.5, alone), (0.5, left_out)),
            about=channel,
            method="mean of only-one-open and leave-one-out, ",
            more=interaction,
        )


def _gains(weights: dict[frozenset[str], float], channels: World) -> Weights:
    """Weights on worlds by their open channels, as weights on cells."""
    shut = {world: tuple(c for c in channels if c not in world) for world in weights}
    return parts.add(*((weight, parts.gain(shut[world])) for world, weight in weights.items()))
