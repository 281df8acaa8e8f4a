"""The book: every sampled token's KL goes to one place on each axis, summed for each task.

Axes: `choice` and `content` by step kind (together they are everything), `turn`, `token class`. Two estimators side by
side. *Plain*: the sampled token's log-ratio. *Conditional*: the KL at the position, a choice token's by alternative.
Both have the same expectation, class by class; the conditional one has the smaller spread. Each axis adds up to the
whole, for each estimator, by construction.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from forensics.records import Trajectory
from probes.kl.classes import CLASSES, token_classes
from probes.kl.lexicon import Lexicon, Place, learn
from probes.kl.phrases import Phrases, position_key
from probes.scored import Readout, Scored

MOST_TURNS: Final = 12  # turns with a place of their own; later ones share the last
CONDITIONAL, PLAIN = 0, 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is known before scoring: the lexicon of the log, and how its trajectories are cut into phrases.

    `readout`: what the scorer must take down, beside its standard columns.
    """

    phrases: Phrases
    lexicon: Lexicon
    readout: Readout


def plan_split(runs: Iterable[Trajectory], policy: Any) -> Plan:
    """Reads a log twice (`runs` must be iterable again and again). `policy`: the one that made it, with its tokenizer.

    The readout holds for these runs in this order. Runs without token ids are tokenised as the scorer does it.
    """
    from probes.kl.readout import KlReadout

    tokenizer = getattr(policy, "tokenizer", None)
    phrases = Phrases(tokenizer)
    lexicon = learn(chain.from_iterable(parts for run in _told(runs, policy) for _, parts in phrases.of(run)))
    keys, nodes = _choice_keys(_told(runs, policy), phrases, lexicon)
    classes = None if tokenizer is None else token_classes(tokenizer, len(tokenizer))
    return Plan(phrases=phrases, lexicon=lexicon, readout=KlReadout(lexicon, keys, nodes, classes))


def _told(runs: Iterable[Trajectory], policy: Any) -> Iterator[Trajectory]:
    from probes.scoring.retokenise import with_token_ids

    for run in runs:
        bare = any(step.token_ids is None for step in run.steps)
        yield with_token_ids(run, policy) if bare else run


def _choice_keys(
    runs: Iterable[Trajectory], phrases: Phrases, lexicon: Lexicon
) -> tuple[np.ndarray, np.ndarray]:
    """Keys of the choice tokens of a log, ascending, and the number of the node before each."""
    keys: list[int] = []
    nodes: list[int] = []
    for number, run in enumerate(runs):
        for step, places in _places(run, phrases, lexicon):
            for place, one in enumerate(places):
                if one.choice >= 0:
                    keys.append(position_key(number, step, place))
                    nodes.append(one.choice)
    return np.array(keys, np.int64), np.array(nodes, np.int64)


def _places(run: Trajectory, phrases: Phrases, lexicon: Lexicon) -> Iterator[tuple[int, list[Place]]]:
    for step, parts in phrases.of(run):
        yield step, [place for phrase in parts for place in lexicon.places(phrase.tokens)]


@dataclass(kw_only=True)
class Sheet:
    """Sums over the runs of one task, nats. Every axis `[2, its labels]`; `tokens [kinds]`: sampled tokens."""

    choice: np.ndarray
    content: np.ndarray
    turn: np.ndarray
    token_class: np.ndarray
    tokens: np.ndarray
    runs: int = 0


@dataclass(kw_only=True)
class Book:
    """Takes scored trajectories, one at a time. `unread`: steps that the scorer could not read whole.

    `conditional`: whether the scorer gave whole distributions (a server does not: then plain sums alone are known).
    """

    plan: Plan
    sheets: dict[str, Sheet] = field(default_factory=dict)
    unread: int = 0
    retokenised: int = 0
    conditional: bool = True

    def add(self, scored: Scored) -> None:
        """Books one trajectory. Tokens that were not read are left out."""
        sheet = self.sheets.setdefault(scored.trajectory.task, self._blank())
        sheet.runs += 1
        self.unread += len(scored.unread)
        self.retokenised += scored.retokenised
        self.conditional &= "kl" in scored.columns
        read = np.isfinite(scored.ratio)
        places = [one for _, found in _places(scored.trajectory, self.plan.phrases, self.plan.lexicon)
                  for one in found]
        assert len(places) == len(scored.token), "the book and the scorer see different tokens"
        if read.any():
            self._book(sheet, scored, places, read)

    def _blank(self) -> Sheet:
        kinds = len(self.plan.lexicon.kinds)
        return Sheet(choice=np.zeros((2, kinds)), content=np.zeros((2, kinds)), turn=np.zeros((2, MOST_TURNS)),
                     token_class=np.zeros((2, len(CLASSES))), tokens=np.zeros(kinds))

    def _book(self, sheet: Sheet, scored: Scored, places: list[Place], read: np.ndarray) -> None:
        weights = np.stack([place.weights for place in places])[read]
        chosen = np.array([place.choice >= 0 for place in places])[read]
        ratio = scored.ratio[read]
        kl = scored.columns["kl"][read] if "kl" in scored.columns else np.full(len(ratio), np.nan)
        by_kind = _told_apart(scored, [f"choice {kind}" for kind in self.plan.lexicon.kinds[:-1]], kl, read)
        sheet.tokens += weights.sum(0)
        sheet.choice[PLAIN] += ratio[chosen] @ weights[chosen]
        sheet.choice[CONDITIONAL] += by_kind[chosen].sum(0)
        sheet.content[PLAIN] += ratio[~chosen] @ weights[~chosen]
        sheet.content[CONDITIONAL] += kl[~chosen] @ weights[~chosen]
        turn = _turns(scored)[read]
        for row, values in ((PLAIN, ratio), (CONDITIONAL, kl)):
            np.add.at(sheet.turn[row], turn, values)
        self._book_classes(sheet, scored, ratio, kl, read)

    def _book_classes(
        self, sheet: Sheet, scored: Scored, ratio: np.ndarray, kl: np.ndarray, read: np.ndarray
    ) -> None:
        """By class of token; nothing to say without a tokenizer."""
        classes = getattr(self.plan.readout, "classes", None)
        if classes is None:
            sheet.token_class += np.nan
            return
        names = [f"class {name}" for name in CLASSES[:-1]]
        sheet.token_class[CONDITIONAL] += _told_apart(scored, names, kl, read).sum(0)
        token = scored.token[read]
        own = np.where(token < len(classes), classes[np.minimum(token, len(classes) - 1)], len(CLASSES) - 1)
        np.add.at(sheet.token_class[PLAIN], own, ratio)


def _told_apart(scored: Scored, names: list[str], whole: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Columns side by side `[tokens, names + 1]`; the last is what is left of the whole."""
    if any(name not in scored.columns for name in names):
        return np.full((len(whole), len(names) + 1), np.nan)
    parts = np.stack([scored.columns[name][read] for name in names], 1) if names else np.zeros((len(whole), 0))
    return np.concatenate([parts, (whole - parts.sum(1))[:, None]], 1)


def _turns(scored: Scored) -> np.ndarray:
    """The turn of each sampled token, from 0; the last place is for all later ones."""
    actions = np.array([number for number, _ in scored.trajectory.actions] or [0])
    return np.clip(np.searchsorted(actions, scored.step, side="right") - 1, 0, MOST_TURNS - 1)
