"""Sampled tokens with what two checkpoints say about them, and a trajectory as
one text.

One `TokenScores` is one trajectory. Its columns have one entry for each token that
the policy drew, in order, so nothing of the size `[tokens, vocabulary]` is ever
kept. What is computed at a position is named by *readouts*, functions of the
two distributions there; the scorer calls them on a few positions at a time.

In a `Layout` the tokens of all steps stand one behind the other. An assistant
step without a mask counts as drawn whole. A text longer than `most_tokens`
loses its beginning, so that what is read is read in the context that is left.
The first token of what is left has nothing before it, so nothing can be said
about it either.

A log that has no token ids is tokenised again (`with_token_ids`): the texts in the
policy's own rendering, step by step and append-only.

1. What stands before the first action is the prompt, as the policy is given
   one.
2. An action is its text's tokens and the token that ends an action there. What
   the policy really drew may have been cut into other tokens; nobody can know,
   so the result says that it was tokenised again.
3. What stands between two actions is the rendering's reply to the one before.

An action that ran into the token limit has no ending token.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from forensics.errors import UserError
from forensics.policies import require
from forensics.protocols import Policy
from forensics.records import Step, Trajectory
from forensics.records.trajectory import handed_in


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """One trajectory, scored.

    `step`: of each sampled token, the index of its step. `place`: its place
    among the sampled tokens of that step.
    `token`: its id. `columns`: `[sampled tokens]` each, float64; NaN where a
    token lies in a part that was not read. Always there: `policy`
    (log-probability, nats, under the settings that the scorer states);
    `reference` where there is one; `entropy` of the policy where the policy is
    a model on this machine (a server tells no distributions).
    `unread`: steps of which some token was not read (long texts lose their
    beginning). `retokenised`: the log had no token ids, so what the policy drew
    may have been other tokens of the same text.
    """

    trajectory: Trajectory
    step: np.ndarray
    place: np.ndarray
    token: np.ndarray
    columns: Mapping[str, np.ndarray]
    unread: frozenset[int] = frozenset()
    retokenised: bool = False

    @property
    def ratio(self) -> np.ndarray:
        """Log-ratio of the policy to the reference of each sampled token, nats."""
        difference: np.ndarray = self.columns["policy"] - self.columns["reference"]
        return difference


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`ids [length]`: the text that is read. Of each sampled token `[sampled]`:
    `step`, `place`, `token` and `at`.

    `at`: its position in `ids`; below 1 where it cannot be read. `starts`:
    where actions start in `ids`. `trajectory`: `None` for a text that is no run.
    `retokenised`: the log had no token ids.
    """

    ids: np.ndarray
    step: np.ndarray
    place: np.ndarray
    token: np.ndarray
    at: np.ndarray
    starts: tuple[int, ...]
    retokenised: bool = False
    trajectory: Trajectory | None = None

    @property
    def read(self) -> np.ndarray:
        """Which sampled tokens can be read `[sampled]`."""
        readable: np.ndarray = self.at >= 1
        return readable

    def contexts(self) -> Iterator[tuple[list[int], int]]:
        """What stands before each token that is read, and where its action starts."""
        ids = self.ids.tolist()
        for at in self.at[self.read].tolist():
            yield ids[:at], max((start for start in self.starts if start <= at), default=0)

    def scored(self, values: dict[str, np.ndarray]) -> TokenScores:
        """`values`: columns over the tokens that were read, in order."""
        assert self.trajectory is not None
        read, columns = self.read, {}
        for name, column in values.items():
            columns[name] = np.full(len(read), np.nan)
            columns[name][read] = column
        return TokenScores(
            trajectory=self.trajectory,
            step=self.step,
            place=self.place,
            token=self.token,
            columns=columns,
            unread=frozenset(self.step[~read].tolist()),
            retokenised=self.retokenised,
        )


def text_layout(ids: Sequence[int], starts: Sequence[int] = ()) -> Layout:
    """A text of which every token but the first is asked for."""
    whole, places = np.array(list(ids), np.int64), np.arange(max(0, len(ids) - 1))
    return Layout(
        ids=whole,
        step=np.zeros_like(places),
        place=places,
        token=whole[1:],
        at=places + 1,
        starts=tuple(starts),
    )


def layout_of(
    trajectory: Trajectory, most_tokens: int | None = None, retokenised: bool = False
) -> Layout:
    """The text of a trajectory whose steps all have token ids. `most_tokens`:
    what fits, `None` for anything.
    """
    masks = [_drawn(step) for step in trajectory.steps]
    whole = np.fromiter(
        chain.from_iterable(step.token_ids or () for step in trajectory.steps), np.int64
    )
    drawn = np.flatnonzero(np.fromiter(chain.from_iterable(masks), bool))
    dropped = 0 if most_tokens is None else max(0, len(whole) - most_tokens)
    counts = [sum(mask) for mask in masks]
    firsts = np.cumsum([0, *counts])[:-1]
    starts = [
        int(drawn[first]) - dropped for first, count in zip(firsts, counts, strict=True) if count
    ]
    return Layout(
        trajectory=trajectory,
        ids=whole[dropped:],
        token=whole[drawn],
        at=drawn - dropped,
        step=np.repeat(np.arange(len(counts)), counts),
        place=np.arange(len(drawn)) - np.repeat(firsts, counts),
        starts=tuple(max(0, start) for start in starts),
        retokenised=retokenised,
    )


def drawn_tokens(step: Step) -> tuple[int, ...]:
    """The tokens of a step that the policy drew."""
    return tuple(
        token for token, drawn in zip(step.token_ids or (), _drawn(step), strict=True) if drawn
    )


def _drawn(step: Step) -> Sequence[bool]:
    """Which tokens of a step the policy drew."""
    if step.sampled is not None:
        return step.sampled
    return (step.role == "assistant",) * len(step.token_ids or ())


def require_known(layout: Layout, vocabulary: int) -> None:
    """Refuse token ids that the model does not have. Raises `UserError`."""
    run = layout.trajectory
    if run and len(layout.ids) and not 0 <= layout.ids.min() <= layout.ids.max() < vocabulary:
        raise UserError(
            f"trajectory {run.id} has the token id {layout.ids.max()} and the model"
            f" knows {vocabulary} tokens, so another tokenizer wrote the log; give the checkpoint"
            " that made it"
        )


@dataclass(kw_only=True)
class Agreement:
    """Distance of the scorer's log-probabilities from the sampler's, nats, over the `tokens`
    that have both: their sum and the `largest`. A sampler in another precision, or under
    other settings, shows here.
    """

    total: float = 0.0
    largest: float | None = None
    tokens: int = 0

    @property
    def mean(self) -> float | None:
        return self.total / self.tokens if self.tokens else None

    def row(self) -> dict[str, float | None]:
        """As JSON."""
        return {"mean": self.mean, "largest": self.largest, "tokens": self.tokens}

    def add(self, scored: TokenScores) -> None:
        """The tokens of one run that were read and whose log-probability the log has."""
        sampler = np.full(len(scored.step), np.nan)
        for number, step in enumerate(() if scored.retokenised else scored.trajectory.steps):
            if step.logprobs is not None:
                sampler[scored.step == number] = step.logprobs
        gaps = np.abs(scored.columns["policy"] - sampler)
        gaps = gaps[np.isfinite(gaps)]
        if len(gaps):
            self.total += float(gaps.sum())
            self.largest = max(self.largest or 0.0, float(gaps.max()))
            self.tokens += len(gaps)


def sampler_agreement(log: Iterable[TokenScores]) -> Agreement:
    """Over a whole log."""
    found = Agreement()
    for scored in log:
        found.add(scored)
    return found


def lacks_token_ids(trajectory: Trajectory) -> bool:
    """Whether some step of a run has no token ids."""
    return any(step.token_ids is None for step in trajectory.steps)


def with_token_ids(trajectory: Trajectory, policy: Policy) -> Trajectory:
    """The same run with token ids and masks, and without the sampler's
    log-probabilities.

    Raises `UserError` for a policy that has no tokenizer here.
    """
    require(policy, "tokens", task="a log without token ids")
    renderer, tokenizer = policy.renderer, policy.tokenizer
    steps: list[Step] = []
    action: list[int] | None = None
    unwritten: list[Step] = []
    last = max((number for number, _ in trajectory.actions), default=-1)
    for number, step in enumerate(trajectory.steps):
        if step.role != "assistant":
            unwritten.append(step)
            continue
        steps += _given(unwritten, renderer, action)
        cut = (
            number == last
            and trajectory.end == "truncated"
            and not handed_in(trajectory.end, trajectory.end_reason)
        )
        action = _action(step.text, renderer, tokenizer, ended=not cut)
        steps.append(_with_tokens(step, action, drawn=True))
        unwritten = []
    behind = [_with_tokens(step, [], drawn=False) for step in unwritten]  # nobody read it
    return trajectory.model_copy(update={"steps": (*steps, *behind)})


def with_ids(trajectory: Trajectory, ids: Sequence[Sequence[int]]) -> Trajectory:
    """The same run with the token ids of each step that were made before."""
    steps = (
        _with_tokens(step, one, drawn=step.role == "assistant")
        for step, one in zip(trajectory.steps, ids, strict=True)
    )
    return trajectory.model_copy(update={"steps": tuple(steps)})


def _given(steps: Sequence[Step], renderer: Any, action: list[int] | None) -> list[Step]:
    """What the policy did not write; all its tokens stand with the last of its steps."""
    if not steps:
        return []
    if action is None:
        system = "\n\n".join(step.text for step in steps if step.role == "system")
        text = "\n".join(step.text for step in steps if step.role != "system")
        ids = renderer.prompt(text, system or None)
    else:
        ids = renderer.reply("\n".join(step.text for step in steps), action)
    return [_with_tokens(step, [] if step is not steps[-1] else ids, drawn=False) for step in steps]


def _action(text: str, renderer: Any, tokenizer: Any, ended: bool) -> list[int]:
    """Its tokens, and the one that ends an action: the one that a reply puts
    there where it is missing, or the end of text.
    """
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)[
        "input_ids"
    ]
    first = renderer.reply("x", ids)[:1] if ended else ()
    if first and first[0] in renderer.stops:
        return [*ids, *first]
    end = tokenizer.eos_token_id
    return [*ids, end] if ended and end in renderer.stops else list(ids)


def _with_tokens(step: Step, ids: Sequence[int], drawn: bool) -> Step:
    return step.model_copy(
        update={"token_ids": tuple(ids), "sampled": (drawn,) * len(ids), "logprobs": None}
    )
