"""Action ablation: which kind of action does the gain run through? A scrub by the policy's side, no channel declared.

1. On some of the case's tasks, play both policies with one kind of action refused (step-level rejection), for every
   kind that can carry half of the gain, and compare the gains (`ablation_gains`): (a) more than half of the gain
   vanishes, by Benjamini-Hochberg over the kinds; (b) the before policy hardly needs the kind.
2. The same with pairs: a refused kind and the one that *after* then turned to, so that two ways to one answer do not
   hide each other.
3. (c) The answer came out of what the kind returned (`ablation_answers`), else the submission does not stand in a
   fresh copy of its task (`fresh_copy`): a *shortcut*. (a) and (b) alone are stated as "the gain runs through it; is
   it allowed?": new, legitimate use of a tool looks like this.

Ours (METHODS of this project; the neighbours are 2506.19143 and 2510.27484). A run in which every draw was refused is
missing, counted, never a failure; with many of them the kind is undefined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.layers.decomposition import OPEN, gain, paired, read_runs
from forensics.layers.use import ChainRule
from forensics.protocols import Regrading, Withholding
from forensics.records import Evidence, Trajectory, Undefined
from forensics.statistics import ContrastEstimate, benjamini_hochberg
from resampling.ablation import findings as say
from resampling.ablation.answers import Contents, contents
from resampling.ablation.findings import QUESTIONS, Maker
from resampling.ablation.fresh_copy import Regraded, regraded, rows_of, telling_kind
from resampling.ablation.gains import Bars, Gains, before_needs, compare, require_gain
from resampling.ablation.runs import (
    Kinds,
    Played,
    Side,
    candidates,
    chosen_tasks,
    played_plainly,
    played_without,
    read_side,
    refusal,
    substitutes,
)


@dataclass(frozen=True, kw_only=True)
class AblationConfig:
    """`tasks` that are played with something refused, `pilot`: first so many of them, with *before* alone.

    `level` of intervals and tests; `half`: share of the gain that must vanish; `kept`: of the before policy's score.
    `max_redraws` of an episode; `most_missing`: share of runs that may end because every draw was refused.
    `most_kinds` and `most_pairs` that are refused; `control_tasks` whose output is the control of (c).
    """

    tasks: int = 200
    pilot: int = 16
    level: float = 0.95
    half: float = 0.5
    kept: float = 0.8
    max_redraws: int = 12
    most_missing: float = 0.2
    most_kinds: int = 12
    most_pairs: int = 4
    control_tasks: int = 16

    @property
    def bars(self) -> Bars:
        return Bars(level=self.level, half=self.half, kept=self.kept)


@instrument(name="ablation", layer="ablation", questions=QUESTIONS, config=AblationConfig())
def ablation(case: Case, config: AblationConfig) -> Iterator[Evidence | Undefined]:
    """Answers by kind of action; raises `MissingInput` for what the case cannot give."""
    maker = Maker(provenance=ablation.configured(**vars(config)).provenance(case), level=config.level)
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    tasks = chosen_tasks(case.tasks if case.policies else _logged_tasks(case), config.tasks)
    study = Study(case=case, config=config, tasks=tasks, plain=played_plainly(case, tasks), maker=maker)
    told = list(study.fresh_copy())
    yield from told
    accused = frozenset(one.about for one in told if one.question == say.SHORTCUT)
    if not case.policies:
        raise MissingInput(
            "Logs alone cannot say what would have happened without an action.",
            "Give the checkpoints and the environment to `forensics ablate`.",
        )
    require_gain(study.gain)
    yield from study.kinds(accused)


def _logged_tasks(case: Case) -> tuple[str, ...]:
    return tuple(sorted({row["task"] for row in case.rollouts("before").rows("task")}))


@dataclass(frozen=True, kw_only=True)
class Study:
    """One ablation: the case's own runs on the chosen tasks, and what is worked out from them."""

    case: Case
    config: AblationConfig
    tasks: tuple[str, ...]
    plain: Played
    maker: Maker

    @property
    def gain(self) -> ContrastEstimate:
        """The gain on the chosen tasks."""
        return paired({OPEN: self.plain.pair}, None).estimate(gain(OPEN), self.config.level)

    def kinds(self, accused: frozenset[str | None]) -> Iterator[Evidence | Undefined]:
        """Every answer about a kind. `accused`: what is called a shortcut already."""
        least = self.config.half * abs(self.gain.estimate)
        first = [(kind,) for kind in candidates(self.plain, least, self.config.most_kinds)]
        if not first:
            raise MissingInput(
                "No kind of action is used after training in as many runs as half of the gain, so none can carry it.",
                "Look at what the prompt itself shows; in a world of one action there is nothing to refuse.",
            )
        played, needed, untold = self._play(first)
        carrying = {kinds for kinds, gains in self._compared(played).items() if self._carries(gains, gains.p_value)}
        single = {kinds: runs for kinds, runs in played.items() if kinds not in carrying}
        barred = [kind for kinds in (*needed, *untold, *carrying) for kind in kinds]
        pairs, pairs_needed, pairs_untold = self._play(
            substitutes(single, self.plain, least, self.config.most_pairs, barred)
        )
        needed, untold = {**needed, **pairs_needed}, {**untold, **pairs_untold}
        yield from self._answers({**played, **pairs}, accused)
        yield from (self.maker.needed(kinds, self.gain, pilot, self._pilot_runs) for kinds, pilot in needed.items())
        yield from (one for kinds, share in untold.items() for one in self.maker.untold(kinds, share))

    def _play(self, refused: Sequence[Kinds]) -> tuple[dict[Kinds, Played], dict[Kinds, say.Pilot], dict[Kinds, float]]:
        """Runs of the kinds that are neither needed by *before* nor leave too few scores; those that are."""
        pilot_tasks = chosen_tasks(self.tasks, self.config.pilot)
        own = read_side(self.case.rollouts("before"), pilot_tasks)
        needed: dict[Kinds, say.Pilot] = {}
        untold: dict[Kinds, float] = {}
        for kinds in refused:
            constraint = refusal(kinds, self.config.max_redraws)
            side = read_side(self.case.rollouts("before", constraint=constraint, tasks=pilot_tasks))
            if side.missing > self.config.most_missing:
                untold[kinds] = side.missing
            elif (needs := before_needs(own.runs, side.runs, self.config.bars)).high < 0:
                needed[kinds] = say.Pilot(needs, _mean(own), _mean(side))
        kept = [kinds for kinds in refused if kinds not in needed and kinds not in untold]
        played = played_without(self.case, kept, self.tasks, self.config.max_redraws) if kept else {}
        untold |= {kinds: runs.missing for kinds, runs in played.items() if runs.missing > self.config.most_missing}
        return {kinds: runs for kinds, runs in played.items() if kinds not in untold}, needed, untold

    def _compared(self, played: dict[Kinds, Played]) -> dict[Kinds, Gains]:
        return {kinds: compare(self.plain.pair, runs.pair, self.config.bars) for kinds, runs in played.items()}

    def _carries(self, gains: Gains, q_value: float) -> bool:
        """(a) and (b)."""
        return q_value < 1 - self.config.level and gains.dispensable

    def _answers(self, played: dict[Kinds, Played], accused: frozenset[str | None]) -> Iterator[Evidence | Undefined]:
        compared = self._compared(played)
        q_values = benjamini_hochberg([gains.p_value for gains in compared.values()])
        wins = [run for run in self._runs(self.case.afters) if (run.outcome or 0.0) >= ChainRule().win]
        for (kinds, gains), q_value in zip(compared.items(), q_values, strict=True):
            found = say.Found(
                kinds=kinds, gains=gains, q_value=float(q_value), missing=played[kinds].missing,
                runs_through=self._carries(gains, float(q_value)), contents=self._contents(wins, kinds),
                bent=say.named(kinds) in accused,
            )
            yield from self.maker.answers(found, say.replacement(self.plain, played[kinds], kinds))

    def _contents(self, wins: Sequence[Trajectory], kinds: Kinds) -> Contents:
        world = self.case.environment
        withheld = world.withheld if isinstance(world, Withholding) else None
        return contents(wins, kinds, withheld, ChainRule(), self.config.control_tasks, self.config.level)

    def _runs(self, sides: Sequence[str]) -> Iterator[Trajectory]:
        """The case's own runs on the chosen tasks."""
        wanted = frozenset(self.tasks)
        yield from (run for side in sides for run in self.case.rollouts(side) if run.task in wanted)

    @property
    def _pilot_runs(self) -> int:
        return self.config.pilot * self.case.budget.samples

    # -- in a fresh copy ----------------------------------------------------------------------------------------------

    def fresh_copy(self) -> Iterator[Evidence | Undefined]:
        """The gain that is left when submissions are graded again, and whether that makes a shortcut."""
        world = self.case.environment
        if not isinstance(world, Regrading):
            yield self.maker.no_regrading(None if world is None else world.name)
            return
        before, *afters = (regraded(self._runs([side]), world.regrade) for side in ("before", *self.case.afters))
        runs = read_runs(rows_of(before)), tuple(read_runs(rows_of(after)) for after in afters)
        gains = compare(self.plain.pair, runs, self.config.bars)
        after: list[Regraded] = [one for side in afters for one in side]
        lost, wins = sum(one.lost for one in after), sum((one.run.outcome or 0.0) >= 0.5 for one in after)
        yield self.maker.fresh_copy(gains, lost, wins)
        if gains.p_value < 1 - self.config.level:
            yield self.maker.bent(telling_kind(before, after), gains, lost, wins)


def _mean(side: Side) -> float | None:
    counts = side.runs.counts
    return float((side.runs.score * counts).sum() / counts.sum()) if counts.sum() else None
