"""What each token that the policy drew belongs to: a command, a choice among
kinds of command, a class of tokens.

1. Commands: what acts is the tool calls, else the commands of the text
   (`forensics.actions`). Kinds that the environment or the log names are
   dealt out in order. Where it names fewer, the last one gets the rest of the
   text (an answer in prose is one command). Where it names none, a command's
   kind is its head.
2. Phrases: the tokens of one command each, up to the next command, so the token
   that ends a command (`;`, a line break) is part of it. What stands before the
   first command is a phrase of the kind `text`. Characters are told to tokens
   by what the tokenizer makes of a few tokens at a time, so that a long action
   costs no more than its length. Without a tokenizer an action is one phrase.
3. The lexicon, a trie of the beginnings of commands, learnt from a log. Every
   command goes in with its first tokens and its kind. A *node* is a beginning;
   it knows how often it led to each kind. A node of several kinds is
   *undecided*, and the token after it is a choice token: the first token of
   every command, and further ones where several kinds begin alike (`open` a
   file or the notes, `edit` a file or the tests, pieces of words in a byte-pair
   vocabulary). What follows a node of one kind is content of that kind.
4. The kind of a token is what the node that it leads to says: one kind, or,
   while that node is undecided, kinds in the shares in which it led to them. A
   token that no command had there is `something else`.
5. Classes of tokens by how they are written: a partition of the vocabulary,
   known before anything is drawn.

So the kind of a choice token depends on it and on what stands before it alone,
and that of a content token on what stands before it: the plain and the
conditional estimator count by one and the same rule. Learnt from the log itself:
a command that no run took has no name; its weight under the policy that made
the log is as small as it is rare.
"""

import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from forensics.actions import Span, command_head, command_spans, executable_spans
from forensics.policies import drawn_tokens
from forensics.records import Trajectory

UNNAMED: Final = "unnamed"  # the kind of what does not begin with a name
TEXT: Final = "text"  # what stands before the first command: thoughts, words to the reader
WINDOW: Final = 4  # tokens whose text is looked at together
ELSE: Final = "something else"
MOST_KINDS: Final = 40
Path = tuple[int, ...]
CLASSES: Final = ("number", "sign", "white space", "control", "word")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command: it starts at the character `start`; what follows up to the
    next one's start is its own.
    """

    start: int
    kind: str


def commands_of(
    text: str, kinds: Sequence[str] = (), calls: Sequence[str] = ()
) -> tuple[Command, ...]:
    """The commands of an action in order; at least one. `kinds`: as they were
    named; `calls`: names of tool calls.
    """
    spans = (
        _calls(text, calls)
        if calls
        else [span for part in executable_spans(text) for span in command_spans(text, *part)]
    )
    named = (
        tuple(kinds)
        or tuple(calls)
        or tuple(command_head(text[start:end]) or UNNAMED for start, end in spans)
    )
    starts = [start for start, _ in spans] or [0]
    return tuple(
        Command(start=start, kind=kind)
        for start, kind in zip(starts, named or (UNNAMED,), strict=False)
    )


def _calls(text: str, names: Sequence[str]) -> list[Span]:
    """Where the tool calls are named; the whole text where one cannot be found."""
    spans: list[Span] = []
    at = 0
    for name in names:
        start = text.find(name, at)
        if start < 0:
            return [(0, len(text))]
        at = start + len(name)
        spans.append((start, at))
    return spans


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
                yield (
                    number,
                    self._cut(drawn, step.kinds, tuple(call.name for call in step.tool_calls)),
                )

    def _phrases(
        self, drawn: tuple[int, ...], kinds: tuple[str, ...], calls: tuple[str, ...]
    ) -> tuple[Phrase, ...]:
        if self._tokenizer is None:
            return (Phrase(drawn, (*kinds, *calls, UNNAMED)[0]),)
        commands = commands_of(self._text(drawn), kinds, calls)
        ends = self._ends(drawn)
        starts = [int(np.searchsorted(ends, command.start, side="right")) for command in commands]
        phrases = [Phrase(drawn[: starts[0]], TEXT)]
        for command, (start, end) in zip(commands, pairwise([*starts, len(drawn)]), strict=True):
            phrases.append(Phrase(drawn[start:end], command.kind))
        return tuple(phrase for phrase in phrases if phrase.tokens)

    def _text(self, drawn: tuple[int, ...]) -> str:
        """What was said, without the control tokens that ended it (they would
        grow onto the last word).
        """
        last = len(drawn)
        while last and drawn[last - 1] in self._special:
            last -= 1
        return self._decoded(drawn[:last])

    def _ends(self, drawn: tuple[int, ...]) -> list[int]:
        """Where each token's text ends."""
        windows = (
            (drawn[max(0, place - WINDOW) : place], drawn[place]) for place in range(len(drawn))
        )
        sizes = (
            len(self._decoded((*before, token))) - len(self._decoded(before))
            for before, token in windows
        )
        return list(accumulate(sizes))

    def _decoded(self, ids: tuple[int, ...]) -> str:
        return (
            str(self._tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
            if ids
            else ""
        )


@dataclass(frozen=True, kw_only=True)
class TokenKind:
    """Where a token of a phrase stands. `choice`: number of the undecided node
    before it, -1 for content.

    `weights [kinds]`: how the token, as it was drawn, is counted.
    """

    choice: int
    weights: np.ndarray


@dataclass(frozen=True, kw_only=True)
class CommandTrie:
    """`kinds`: names, the last one `something else`. `nodes`: weights over
    kinds `[kinds]` of each beginning.
    """

    kinds: tuple[str, ...]
    nodes: dict[Path, np.ndarray]

    @cached_property
    def choices(self) -> tuple[Path, ...]:
        """The undecided nodes that something follows."""
        return tuple(sorted(self._children))

    @cached_property
    def numbers(self) -> dict[Path, int]:
        return {path: number for number, path in enumerate(self.choices)}

    @cached_property
    def _children(self) -> dict[Path, list[int]]:
        children: dict[Path, list[int]] = defaultdict(list)
        for path in self.nodes:
            if path:
                children[path[:-1]].append(path[-1])
        return {path: sorted(tokens) for path, tokens in children.items()}

    @cached_property
    def unknown(self) -> np.ndarray:
        """The weights of something else."""
        weights: np.ndarray = np.eye(len(self.kinds))[-1]
        return weights

    def alternatives(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[n]` that commands had after an undecided node, and their
        weights `[n, kinds]`.
        """
        tokens = self._children[path]
        return np.array(tokens, np.int64), np.stack([self.nodes[*path, token] for token in tokens])

    def places(self, tokens: Path) -> Iterator[TokenKind]:
        """Of each token of a phrase."""
        path: Path = ()
        weights = self.nodes.get((), self.unknown)
        on = True  # still on a path of the trie
        for token in tokens:
            choice = self.numbers.get(path, -1) if on else -1
            if choice >= 0:
                path = (*path, token)
                weights = self.nodes.get(path, self.unknown)
                on = path in self.nodes
            yield TokenKind(choice=choice, weights=weights)


def learn_trie(phrases: Iterable[Phrase], depth: int = 12) -> CommandTrie:
    """The lexicon of a log. `depth`: tokens of a command that are looked at;
    kinds beyond the most frequent 40 are something else.
    """
    seen = Counter((phrase.tokens[:depth], phrase.kind) for phrase in phrases)
    frequent: Counter[str] = Counter()
    for (_, kind), count in seen.items():
        frequent[kind] += count
    ranked = sorted(frequent, key=lambda kind: (-frequent[kind], kind))
    kinds = (*sorted(kind for kind in ranked[:MOST_KINDS] if kind != ELSE), ELSE)
    return CommandTrie(kinds=kinds, nodes=_nodes(seen, kinds))


def _nodes(seen: Counter[tuple[Path, str]], kinds: tuple[str, ...]) -> dict[Path, np.ndarray]:
    """Weights of every node that is the beginning of something or stands after an undecided one."""
    index = {kind: number for number, kind in enumerate(kinds)}
    counts: dict[Path, np.ndarray] = {(): np.zeros(len(kinds))}
    going = list(seen.items())
    size = 0
    while going:
        for (path, kind), count in going:
            counts.setdefault(path[:size], np.zeros(len(kinds)))[
                index.get(kind, len(kinds) - 1)
            ] += count
        going = [
            one
            for one in going
            if len(one[0][0]) > size and (counts[one[0][0][:size]] > 0).sum() > 1
        ]
        size += 1
    return {path: count / max(count.sum(), 1.0) for path, count in counts.items()}


def token_classes(tokenizer: Any, size: int) -> np.ndarray:
    """The number of each token's class `[size]` (see `CLASSES`)."""
    special, known = set(tokenizer.all_special_ids), len(tokenizer)
    classes = []
    for i in range(size):
        text = "" if i >= known else tokenizer.decode([i])
        bare = text.strip()
        if i in special or not text:
            kind = "control"
        elif not bare:
            kind = "white space"
        elif any(c.isalpha() for c in bare):
            kind = "word"
        else:
            kind = "number" if any(c in string.digits for c in bare) else "sign"
        classes.append(CLASSES.index(kind))
    return np.array(classes, np.int64)
