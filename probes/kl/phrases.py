"""What the policy drew, cut into phrases: the tokens of one command each.

A phrase goes from the first token of a command to the last before the next command, so the token that ends a command
(`;`, a line break) is part of it. What stands before the first command is a phrase of the kind `text`. Characters are
told to tokens by what the tokenizer makes of a few tokens at a time, so that a long action costs no more than its
length. Without a tokenizer an action is one phrase.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from forensics.records import Step, Trajectory
from probes.kl.commands import TEXT, UNNAMED, commands_of

WINDOW: Final = 4  # tokens whose text is looked at together


class Phrase(NamedTuple):
    """`tokens`: ids in order; `kind`: of the command."""

    tokens: tuple[int, ...]
    kind: str


class Phrases:
    """Reads phrases off trajectories with token ids. `tokenizer` as of Hugging Face, or `None`."""

    def __init__(self, tokenizer: Any = None) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(getattr(tokenizer, "all_special_ids", ()))
        self._cut = lru_cache(maxsize=65536)(self._phrases)

    def of(self, trajectory: Trajectory) -> Iterator[tuple[int, tuple[Phrase, ...]]]:
        """Step number and phrases of each step in which the policy drew something."""
        for number, step in enumerate(trajectory.steps):
            drawn = drawn_tokens(step)
            if drawn:
                yield number, self._cut(drawn, step.kinds, tuple(call.name for call in step.tool_calls))

    def _phrases(self, drawn: tuple[int, ...], kinds: tuple[str, ...], calls: tuple[str, ...]) -> tuple[Phrase, ...]:
        if self._tokenizer is None:
            return (Phrase(drawn, (*kinds, *calls, UNNAMED)[0]),)
        commands = commands_of(self._text(drawn), kinds, calls)
        ends = self._ends(drawn)
        starts = [int(np.searchsorted(ends, command.start, side="right")) for command in commands]
        found = [Phrase(drawn[: starts[0]], TEXT)]
        for command, (start, end) in zip(commands, pairwise([*starts, len(drawn)]), strict=True):
            found.append(Phrase(drawn[start:end], command.kind))
        return tuple(phrase for phrase in found if phrase.tokens)

    def _text(self, drawn: tuple[int, ...]) -> str:
        """What was said, without the control tokens that ended it (they would grow onto the last word)."""
        last = len(drawn)
        while last and drawn[last - 1] in self._special:
            last -= 1
        return self._decoded(drawn[:last])

    def _ends(self, drawn: tuple[int, ...]) -> list[int]:
        """Where each token's text ends."""
        windows = ((drawn[max(0, place - WINDOW) : place], drawn[place]) for place in range(len(drawn)))
        sizes = (len(self._decoded((*before, token))) - len(self._decoded(before)) for before, token in windows)
        return list(accumulate(sizes))

    def _decoded(self, ids: tuple[int, ...]) -> str:
        return str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)) if ids else ""


def drawn_tokens(step: Step) -> tuple[int, ...]:
    """The tokens of a step that the policy drew, as the scorer sees them."""
    ids = step.token_ids or ()
    if step.sampled is None:
        return ids if step.role == "assistant" else ()
    return tuple(token for token, drawn in zip(ids, step.sampled, strict=True) if drawn)


def position_key(trajectory: Any, step: Any, place: Any) -> Any:
    """One number for a sampled token of a log: of its trajectory, its step, its place among the step's drawn tokens."""
    return (trajectory << 42) + (step << 24) + place
