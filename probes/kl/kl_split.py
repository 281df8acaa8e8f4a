"""Where RL spent its KL: every sampled token's KL goes to one place on each
axis, summed for each task; the sums become shares of the whole, with intervals
by task (ours; docs/methods.md).

1. Axes: `choice` and `content` by step kind (together they are everything),
   `turn`, `token class`. Each adds up to the whole, by construction.
2. Two estimators side by side. *Plain*: the sampled token's log-ratio.
   *Conditional*: the KL at the position, a choice token's by alternative. Both
   have the same expectation, class by class; the conditional one has the
   smaller spread.
3. A share is a ratio of sums over tasks, and may be negative or above 1 (a
   choice that after makes *less* often than before has a negative term)
   (`forensics.statistics.ratio`).

`KL(after || before)` on the runs of *after*, nats a run: what it costs to tell
after's runs from before's. It is not symmetric: on the runs of *before*, with
the roles exchanged, it is another number, and says what before did that after
gave up. A whole that cannot be told from 0, or is below `least` nats a run (two
roundings of one policy), has no shares.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np

from forensics.policies import Readout, TokenScores
from forensics.protocols import Channel
from forensics.records import Trajectory
from forensics.statistics import Estimate, ratio, too_few
from probes.kl.command_tokens import (
    CLASSES,
    ELSE,
    CommandTrie,
    Phrases,
    TokenKind,
    learn_trie,
    token_classes,
)

MOST_TURNS: Final = 12  # turns with a place of their own; later ones share the last
CONDITIONAL, PLAIN = 0, 1
LEAST: Final = 1e-3  # nats a run
NO_CHANNEL: Final = "no declared channel"


@dataclass(frozen=True, kw_only=True)
class KlPlan:
    """What is known before scoring: the lexicon of the log, and how its
    trajectories are cut into phrases.

    `readout`: what the scorer must take down, beside its standard columns.
    """

    phrases: Phrases
    lexicon: CommandTrie
    readout: Readout


def plan_kl(runs: Iterable[Trajectory], policy: Any) -> KlPlan:
    """Reads a log twice (`runs` must be iterable again and again). `policy`:
    the one that made it, with its tokenizer.

    The readout holds for these runs in this order. Runs without token ids are
    tokenised as the scorer does it.
    """
    from forensics.policies import lacks_token_ids, with_token_ids
    from probes.kl.kl_readout import KlReadout, position_key

    def tokenised() -> Iterator[Trajectory]:
        return (with_token_ids(run, policy) if lacks_token_ids(run) else run for run in runs)

    tokenizer = policy.tokenizer if "tokens" in policy.capabilities else None
    phrases = Phrases(tokenizer)
    lexicon = learn_trie(
        chain.from_iterable(parts for run in tokenised() for _, parts in phrases.of(run))
    )
    choices = [
        (position_key(number, step, place), one.choice)
        for number, run in enumerate(tokenised())
        for step, places in token_places(run, phrases, lexicon)
        for place, one in enumerate(places)
        if one.choice >= 0
    ]
    keys, nodes = np.array(choices, np.int64).reshape(-1, 2).T
    classes = None if tokenizer is None else token_classes(tokenizer, len(tokenizer))
    readout = KlReadout(lexicon, keys.copy(), nodes.copy(), classes)
    return KlPlan(phrases=phrases, lexicon=lexicon, readout=readout)


def token_places(
    run: Trajectory, phrases: Phrases, lexicon: CommandTrie
) -> Iterator[tuple[int, list[TokenKind]]]:
    """Of each step in which the policy drew something, where its tokens stand."""
    for step, parts in phrases.of(run):
        yield step, [place for phrase in parts for place in lexicon.places(phrase.tokens)]


@dataclass(kw_only=True)
class KlTally:
    """Takes scored trajectories, one at a time.

    `tasks`: of each task the sums over its runs, nats: `choice` and `content`
    `[2, kinds]`, `turn` `[2, MOST_TURNS]`, `token class` `[2, classes]` (a row
    an estimator); `tokens [kinds]` that were sampled, and the number of `runs`.
    `unread`: steps that the scorer could not read whole. `conditional`: whether
    the scorer gave whole distributions (a server does not: then plain sums
    alone are known).
    """

    plan: KlPlan
    tasks: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    unread: int = 0
    retokenised: int = 0
    conditional: bool = True

    def add(self, scored: TokenScores) -> None:
        """Counts one trajectory. Tokens that were not read are left out."""
        kinds = self.plan.lexicon.kinds
        sums = self.tasks.setdefault(
            scored.trajectory.task,
            {
                "choice": np.zeros((2, len(kinds))),
                "content": np.zeros((2, len(kinds))),
                "turn": np.zeros((2, MOST_TURNS)),
                "token class": np.zeros((2, len(CLASSES))),
                "tokens": np.zeros(len(kinds)),
                "runs": np.zeros(()),
            },
        )
        sums["runs"] += 1
        self.unread += len(scored.unread)
        self.retokenised += scored.retokenised
        self.conditional &= "kl" in scored.columns
        read = np.isfinite(scored.ratio)
        steps = token_places(scored.trajectory, self.plan.phrases, self.plan.lexicon)
        places = [place for _, tokens in steps for place in tokens]
        assert len(places) == len(scored.token), "the tally and the scorer see different tokens"
        if not read.any():
            return
        ratio = scored.ratio[read]
        kl = scored.columns["kl"][read] if "kl" in scored.columns else np.full(len(ratio), np.nan)
        weights = np.stack([place.weights for place in places])[read]
        chosen = np.array([place.choice >= 0 for place in places])[read]
        by_kind = with_rest(scored, [f"choice {kind}" for kind in kinds[:-1]], kl, read)
        sums["tokens"] += weights.sum(0)
        sums["choice"] += np.stack([by_kind[chosen].sum(0), ratio[chosen] @ weights[chosen]])
        sums["content"] += np.stack([values[~chosen] @ weights[~chosen] for values in (kl, ratio)])
        actions = np.array([number for number, _ in scored.trajectory.actions] or [0])
        turn = np.searchsorted(actions, scored.step[read], side="right") - 1
        for row, values in ((CONDITIONAL, kl), (PLAIN, ratio)):
            np.add.at(sums["turn"][row], np.clip(turn, 0, MOST_TURNS - 1), values)
        classes = getattr(self.plan.readout, "classes", None)
        if classes is None:  # nothing to say without a tokenizer
            sums["token class"] += np.nan
            return
        names = [f"class {name}" for name in CLASSES[:-1]]
        sums["token class"][CONDITIONAL] += with_rest(scored, names, kl, read).sum(0)
        token = scored.token[read]
        own = np.where(
            token < len(classes), classes[np.minimum(token, len(classes) - 1)], len(CLASSES) - 1
        )
        np.add.at(sums["token class"][PLAIN], own, ratio)


def with_rest(
    scored: TokenScores, names: list[str], whole: np.ndarray, read: np.ndarray
) -> np.ndarray:
    """Columns side by side `[tokens, names + 1]`; the last is what is left of the whole."""
    if any(name not in scored.columns for name in names):
        return np.full((len(whole), len(names) + 1), np.nan)
    columns = [scored.columns[name][read] for name in names]
    parts = np.stack(columns, 1) if names else np.zeros((len(whole), 0))
    return np.concatenate([parts, (whole - parts.sum(1))[:, None]], 1)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One place of an axis. `nats`: a run; `choice` and `content`: its two
    parts, where the axis has them.

    `share`: of the whole, `None` where there is none. `plain`: nats by the plain
    estimator, and `difference_error`: the standard error by task of plain minus
    conditional. `tokens`: share of the sampled tokens.
    """

    nats: float
    share: Estimate | None
    plain: float
    difference_error: float | None
    choice: float | None = None
    content: float | None = None
    tokens: Estimate | None = None

    def row(self) -> dict[str, float | None]:
        """As JSON: `share`, `low`, `high`, ..., and what the axis has of `choice`,
        `content`, `tokens`, `tokens_low`, `tokens_high`.
        """
        share, low, high = self.share.ends if self.share else (None,) * 3
        tokens, tokens_low, tokens_high = self.tokens.ends if self.tokens else (None,) * 3
        row = {"nats": self.nats, "share": share, "low": low, "high": high, "plain": self.plain}
        row |= {"difference_error": self.difference_error}
        kinds = {"choice": self.choice, "content": self.content, "tokens": tokens}
        kinds |= {"tokens_low": tokens_low, "tokens_high": tokens_high}
        return row | {name: value for name, value in kinds.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class KlSplit:
    """The split of one log. `total`: nats a run. `undefined`: why there are no
    shares, else `None`.
    """

    total: Estimate
    plain: float
    runs: int
    unread: int
    retokenised: int
    conditional: bool
    undefined: str | None
    choice: Part
    content: Part
    by_kind: Mapping[str, Part]
    by_channel: Mapping[str, Part]
    by_turn: Mapping[str, Part]
    by_token_class: Mapping[str, Part]

    @property
    def axes(self) -> dict[str, Mapping[str, Part]]:
        """Every axis by its name; what choosing took and what writing did are the `part`."""
        return {
            "step kind": self.by_kind,
            "channel": self.by_channel,
            "turn": self.by_turn,
            "token class": self.by_token_class,
            "part": {"choice": self.choice, "content": self.content},
        }

    @property
    def disagreement(self) -> float | None:
        """How far the two estimators lie apart at most, kind by kind, in
        standard errors.

        Something else is left out: what no run of the log did has no plain
        reading.
        """
        far = [
            abs(part.plain - part.nats) / part.difference_error
            for kind, part in self.by_kind.items()
            if part.difference_error and kind != ELSE
        ]
        return max(far, default=None)


def kl_split(
    scores: Iterable[TokenScores],
    plan: KlPlan,
    channels: Sequence[Channel] = (),
    level: float = 0.95,
    least: float = LEAST,
) -> KlSplit:
    """The split of scored runs, whose scorer had the plan's readout. Raises as `split_of` does."""
    tally = KlTally(plan=plan)
    for scored in scores:
        tally.add(scored)
    return split_of(tally, channels, level, least)


def split_of(
    tally: KlTally, channels: Sequence[Channel] = (), level: float = 0.95, least: float = LEAST
) -> KlSplit:
    """What the tally says; tasks are sorted, so that the order of runs matters for
    nothing but rounding. Raises `MissingInput` where it holds fewer than two tasks.
    """
    tasks = [tally.tasks[task] for task in sorted(tally.tasks)]
    if len(tasks) < 2:
        raise too_few(len(tasks))
    by_task = {axis: np.stack([sums[axis] for sums in tasks]) for axis in tasks[0]}
    row, runs = CONDITIONAL if tally.conditional else PLAIN, by_task["runs"]
    wholes = by_task["turn"].sum(2)
    total = ratio(wholes[:, row], runs, level=level)
    undefined = None
    if total.estimate < least:
        undefined = (
            f"the two policies hardly differ on these runs ({total.estimate:.2g} nats a run)"
        )
    elif total.low <= 0:
        undefined = "the KL of these runs cannot be told from 0; more tasks would tell"
    parts = _Parts(by_task=by_task, wholes=wholes, row=row, level=level, shares=undefined is None)
    kinds = tally.plan.lexicon.kinds
    by_kind = {kind: parts.of_kinds([number]) for number, kind in enumerate(kinds)}
    tried = {  # two channels that one kind tries both have it
        channel.name: [i for i, kind in enumerate(kinds) if kind in channel.attempts]
        for channel in channels
    }
    if tried:
        taken = set(chain.from_iterable(tried.values()))
        tried[NO_CHANNEL] = [i for i in range(len(kinds)) if i not in taken]
    turns, classes = by_task["turn"], by_task["token class"]
    told = [turn for turn in range(MOST_TURNS) if np.abs(turns[:, :, turn]).sum() > 0]
    return KlSplit(
        total=total,
        plain=float(wholes[:, PLAIN].sum() / runs.sum()),
        runs=int(runs.sum()),
        unread=tally.unread,
        retokenised=tally.retokenised,
        conditional=tally.conditional,
        undefined=undefined,
        choice=parts.part(by_task["choice"].sum(2)),
        content=parts.part(by_task["content"].sum(2)),
        by_kind={
            kind: part
            for kind, part in by_kind.items()
            if kind != ELSE or part.nats or (part.tokens and part.tokens.estimate)
        },
        by_channel={name: parts.of_kinds(numbers) for name, numbers in tried.items()},
        by_turn={
            (str(turn) if turn < MOST_TURNS - 1 else f"{turn} and later"): parts.part(
                turns[:, :, turn]
            )
            for turn in told
        },
        by_token_class=(
            {name: parts.part(classes[:, :, i]) for i, name in enumerate(CLASSES)}
            if np.isfinite(classes[:, row]).all()
            else {}
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Makes parts from sums by task `[tasks, ...]`. `wholes [tasks, 2]`; `row`:
    of the estimator that is told; `shares`: whether there are any.
    """

    by_task: Mapping[str, np.ndarray]
    wholes: np.ndarray
    row: int
    level: float
    shares: bool

    def part(self, sums: np.ndarray, **more: Any) -> Part:
        """`sums [tasks, 2]`"""
        runs = float(self.by_task["runs"].sum())
        share = error = None  # by task, of the difference of the two estimators, nats a run
        if self.shares:
            share = ratio(sums[:, self.row], self.wholes[:, self.row], level=self.level)
        if self.row == CONDITIONAL:
            apart = sums[:, PLAIN] - sums[:, CONDITIONAL]
            rest = apart - apart.sum() / runs * self.by_task["runs"]
            error = float(rest.std(ddof=1) * len(rest) ** 0.5 / runs)
        return Part(
            nats=float(sums[:, self.row].sum() / runs),
            share=share,
            plain=float(sums[:, PLAIN].sum() / runs),
            difference_error=error,
            **more,
        )

    def of_kinds(self, numbers: list[int]) -> Part:
        """The steps of some kinds."""
        choice, content = (
            self.by_task[axis][:, :, numbers].sum(2) for axis in ("choice", "content")
        )
        tokens, runs = self.by_task["tokens"], float(self.by_task["runs"].sum())
        share = ratio(tokens[:, numbers].sum(1), tokens.sum(1), level=self.level)
        return self.part(
            choice + content,
            choice=float(choice[:, self.row].sum() / runs),
            content=float(content[:, self.row].sum() / runs),
            tokens=replace(share, low=max(0.0, share.low), high=min(1.0, share.high)),
        )
