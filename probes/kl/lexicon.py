"""Which kinds of command a token can still lead to: a trie of the beginnings of commands, learnt from a log.

1. Every command goes in with its first tokens and its kind. A *node* is a beginning; it knows how often it led to each
   kind. A node of several kinds is *undecided*, and the token after it is a choice token: the first token of every
   command, and further ones where several kinds begin alike (`open` a file or the notes, `edit` a file or the tests,
   pieces of words in a byte-pair vocabulary). What follows a node of one kind is content of that kind.
2. The class of a token is what the node that it leads to says: one kind, or, while that node is undecided, kinds in the
   shares in which it led to them. A token that no command had there is `something else`.

So the class of a choice token depends on it and on what stands before it alone, and that of a content token on what
stands before it: the plain and the conditional estimator book by one and the same rule. Learnt from the log itself: a
command that no run took has no name; its weight under the policy that made the log is as small as it is rare.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from probes.kl.phrases import Phrase

ELSE: Final = "something else"
MOST_KINDS: Final = 40
Path = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a token of a phrase stands. `choice`: number of the undecided node before it, -1 for content.

    `weights [kinds]`: how the token, as it was drawn, is booked.
    """

    choice: int
    weights: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """`kinds`: names, the last one `something else`. `nodes`: weights over kinds `[kinds]` of each beginning."""

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
        found: dict[Path, list[int]] = defaultdict(list)
        for path in self.nodes:
            if path:
                found[path[:-1]].append(path[-1])
        return {path: sorted(tokens) for path, tokens in found.items()}

    @cached_property
    def unknown(self) -> np.ndarray:
        """The weights of something else."""
        found: np.ndarray = np.eye(len(self.kinds))[-1]
        return found

    def alternatives(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Tokens `[n]` that commands had after an undecided node, and their weights `[n, kinds]`."""
        tokens = self._children[path]
        return np.array(tokens, np.int64), np.stack([self.nodes[*path, token] for token in tokens])

    def places(self, tokens: Path) -> Iterator[Place]:
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
            yield Place(choice=choice, weights=weights)


def learn(phrases: Iterable[Phrase], depth: int = 12) -> Lexicon:
    """The lexicon of a log. `depth`: tokens of a command that are looked at; kinds beyond the most frequent 40 are
    something else."""
    seen = Counter((phrase.tokens[:depth], phrase.kind) for phrase in phrases)
    frequent: Counter[str] = Counter()
    for (_, kind), count in seen.items():
        frequent[kind] += count
    ranked = sorted(frequent, key=lambda kind: (-frequent[kind], kind))
    kinds = (*sorted(kind for kind in ranked[:MOST_KINDS] if kind != ELSE), ELSE)
    return Lexicon(kinds=kinds, nodes=_nodes(seen, kinds))


def _nodes(seen: Counter[tuple[Path, str]], kinds: tuple[str, ...]) -> dict[Path, np.ndarray]:
    """Weights of every node that is the beginning of something or stands after an undecided one."""
    index = {kind: number for number, kind in enumerate(kinds)}
    counts: dict[Path, np.ndarray] = {(): np.zeros(len(kinds))}
    going = list(seen.items())
    size = 0
    while going:
        for (path, kind), count in going:
            counts.setdefault(path[:size], np.zeros(len(kinds)))[index.get(kind, len(kinds) - 1)] += count
        going = [one for one in going if len(one[0][0]) > size and (counts[one[0][0][:size]] > 0).sum() > 1]
        size += 1
    return {path: count / max(count.sum(), 1.0) for path, count in counts.items()}
