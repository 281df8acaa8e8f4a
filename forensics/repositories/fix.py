"""What is looked for: the reference fix as blob ids, lines and words that the tree lacks.

1. Git applies the patch to the tree at the commit, in a repository of our own: the ids of the
   files after the fix are an exact answer.
2. A line that the patch adds is looked for without its white space, quotes, commas and
   semicolons, so that another layout, a patch, a comment or a JSON string still shows it. Lines
   that stand anywhere in the tree at the commit are left out.
3. A line weighs the bits of its words: log2 of how many files of the tree there are for each
   that holds the word. Names and texts that the fix brings are looked for by themselves, for
   compiled code and change logs have no lines.

4. What a fix adds may stand in the tree already, elsewhere. Where its new lines weigh little,
   two lines that only the fixed file has one after the other are looked for as well.

The rule (`Fix.judge`): a place holds the answer where it shows lines that weigh 24 bits at
least and a quarter of the fix, or of what the fix adds to one file; or half of the new names,
two at least and 20 letters together; or half of such neighbours, of 24 bits at least. Two rules
before it found fewer (docs/real-repositories.md).
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from forensics.actions.unified_diff import TEST_PATH, Changed, changes_of
from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.repositories.git import GitFailed, run_git
from forensics.repositories.object_store import LARGEST, ObjectStore

SHARE, BITS = 0.25, 24.0  # the rule for lines
WORD_SHARE, WORDS, LETTERS = 0.5, 2, 20  # the rule for names
PAIR_SHARE, POOR = 0.5, 2 * BITS  # the rule for neighbours, and the parts that have them
SHORTEST_LINE, SHORTEST_WORD, SHORTEST_FILE = 10, 6, 16  # bytes
MOST_WORDS, MOST_ANCHORS = 60, 64
SUBMODULE = "160000"  # the mode of one in a tree
LEAST_FILES = 255  # a smaller tree says little of how rare a word is
LAYOUT = b" \t\r\n\x0b\x0c\"'`\\,;"
_WORD = re.compile(rb"\w+")
_NAME = re.compile(rb"[A-Za-z_]\w{5,}|(?<=\")[^\"\n]{12,200}(?=\")|(?<=')[^'\n]{12,200}(?=')")
_GENERATED = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|go\.sum|[^/]*\.lock|[^/]*-lock\.\w+)$"
    r"|\.(?:snap|min\.js|min\.css|map|svg)$"
)
_MAIL = re.compile(r"\AFrom ([0-9a-f]{40,64}) ")


def squeezed(content: bytes) -> bytes:
    """Content without layout; UTF-16 is read as such."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        content = content.decode("utf-16", "replace").encode()
    return content.translate(None, LAYOUT)


@dataclass(frozen=True)
class Part:
    """What the fix adds to one file: its squeezed lines, with their weight in bits; `pairs` of
    neighbours, where those weigh little.
    """

    path: str
    is_test: bool
    lines: Mapping[bytes, float]
    pairs: Mapping[bytes, float]


@dataclass(frozen=True, kw_only=True)
class Match:
    """What one place shows: `lines` of the `of` lines of `part` (`None`: of the whole fix), the
    share of their weight, the lines themselves, or the new words.
    """

    is_test: bool
    part: str | None
    lines: int
    of: int
    share: float
    shown: tuple[bytes, ...]
    words: int = 0
    pairs: bool = False
    holds: bool = True

    @property
    def plain(self) -> bool:
        """Whether whole lines were found."""
        return not (self.words or self.pairs)

    @property
    def strength(self) -> str:
        """In words."""
        if self.pairs:
            return f"{self.lines} of {self.of} pairs of neighbouring lines"
        if self.words:
            return f"{self.words} of {self.of} new names"
        if self.lines == self.of:
            return "whole patch" if self.part is None else "all added lines of one file"
        return f"{self.lines} of {self.of} added lines"


@dataclass(frozen=True, kw_only=True)
class Fix:
    """`results`: id of each file after the fix, its path; `sizes`: of those, in bytes; `shown`:
    each feature as the patch has it; `words`: new names, of the fix and of its tests; `base`:
    the ids of the tree at `commit`.
    """

    commit: str
    parts: tuple[Part, ...]
    words: Mapping[bool, frozenset[bytes]]
    shown: Mapping[bytes, bytes]
    results: Mapping[str, str]
    sizes: frozenset[int]
    base: frozenset[str]
    named: str | None

    def match(self, content: bytes) -> set[bytes]:
        """The features that stand in content. The heaviest are asked first; content with none
        of those is not looked at further.
        """
        text = squeezed(content)
        if not any(anchor in text for anchor in self._anchors):
            return set()
        return {feature for feature in self.shown if feature in text}

    @cached_property
    def _anchors(self) -> list[bytes]:
        chosen: list[list[bytes]] = []
        for part in self.parts:
            order = sorted(part.lines, key=lambda line: -part.lines[line])
            chosen.append(list(part.pairs))
            chosen.append(order[: max(1, math.ceil(len(order) * (1 - SHARE)))])
        most = max(1, MOST_ANCHORS // max(1, len(chosen)))
        chosen += [sorted(words)[: MOST_ANCHORS // 4] for words in self.words.values()]
        return list(dict.fromkeys(one for some in chosen for one in some[:most]))

    def judge(self, found: set[bytes]) -> list[Match]:
        """What is strongest of the fix, and of its tests; nothing where nothing is shared."""
        both = (self._strongest(found, is_test) for is_test in (False, True))
        return [match for match in both if match is not None]

    def _strongest(self, found: set[bytes], is_test: bool) -> Match | None:
        parts = [part for part in self.parts if part.is_test == is_test]
        whole = {line: bits for part in parts for line, bits in part.lines.items()}
        units = [(None, whole), *((part.path, part.lines) for part in parts if len(parts) > 1)]
        matches = [_shared(found, path, lines, is_test) for path, lines in units if lines]
        for part in parts:
            if part.pairs:
                pairs = _shared(found, part.path, part.pairs, is_test, PAIR_SHARE)
                matches.append(replace(pairs, pairs=True))
        words = self.words[is_test]
        held = found & words
        letters = sum(map(len, held))
        if len(held) >= max(WORDS, WORD_SHARE * len(words)) and letters >= LETTERS:
            share = len(held) / len(words)
            some = tuple(sorted(held))
            matches.append(
                Match(is_test=is_test, part=None, lines=0, of=len(words), share=share, shown=some,
                      words=len(held))
            )  # fmt: skip
        return max(
            (match for match in matches if match.shown),
            key=lambda match: (
                match.holds,
                not match.words and not match.pairs,
                match.share,
                match.lines,
            ),
            default=None,
        )

    @property
    def untellable(self) -> str | None:
        """Why its lines tell nothing, where they do not."""
        bits = sum(sum({**part.lines, **part.pairs}.values()) for part in self.parts)
        if not bits:
            return "the fix adds no line that the tree lacks: it was searched for by hash alone"
        if bits < BITS:
            return "the lines that the fix adds are too common: it was searched for by hash"
        return None


def _shared(
    found: set[bytes],
    path: str | None,
    lines: Mapping[bytes, float],
    is_test: bool,
    least: float = SHARE,
) -> Match:
    held = sorted((line for line in lines if line in found), key=lambda line: -lines[line])
    bits = sum(lines[line] for line in held)
    share = bits / max(sum(lines.values()), 1e-9)
    return Match(
        is_test=is_test, part=path, lines=len(held), of=len(lines), share=share,
        shown=tuple(held), holds=share >= least and bits >= BITS,
    )  # fmt: skip


def read_fix(
    patch: Path, store: ObjectStore, at: str, scratch: Path, progress: Progress = silent
) -> Fix:
    """The fix that a unified diff makes of the tree at a commit. Raises `UserError` for a patch
    that changes nothing or does not apply.
    """
    content = patch.read_bytes()
    changes = changes_of(content.decode("utf-8", "surrogateescape"))
    listed = run_git(store.ours, "ls-tree", "-r", "-z", at).split(b"\0")
    base = frozenset(line.split()[2].decode() for line in listed if b" blob " in line)
    if not changes and b"GIT binary patch" not in content and b"\nrename " not in content:
        raise UserError(f"{patch} changes no file; give the fix as a unified diff (git diff)")
    results, sizes, after = _patched(content, store, at, scratch)
    named = _MAIL.match(content[:80].decode("ascii", "replace"))
    return Fix(
        commit=at, base=base, sizes=sizes, named=named[1] if named else None,
        results={one: path for one, path in results.items() if one not in base},
        **_features(changes, after, store, base, progress),
    )  # fmt: skip


def _features(
    changes: Iterable[Changed],
    after: Mapping[str, bytes],
    store: ObjectStore,
    base: frozenset[str],
    progress: Progress,
) -> dict[str, Any]:
    """The parts, the new names, and how the patch shows both."""
    added = {
        change.path: [line.encode("utf-8", "surrogateescape") for line in change.added]
        for change in changes
        if not _GENERATED.search(change.path)
    }
    lines = {path: _long_lines(some) for path, some in added.items()}
    names = {path: _names(some) for path, some in added.items()}
    shown = {word: word for some in names.values() for word in some}
    shown |= {line: text for some in lines.values() for line, text in some.items()}
    pairs = {path: _pairs(after.get(path, b""), some) for path, some in added.items()}
    both = {pair: text for some in pairs.values() for pair, text in some.items()}
    new, weights = _weighed(shown | both, store, base, progress)
    tests = {path for path in added if TEST_PATH.search(path)}
    parts = []
    for path, some in lines.items():
        heavy = {one: weights(shown[one]) for one in some if one in new}
        poor = pairs[path] if sum(heavy.values()) < POOR else {}
        beside = {one: weights(text) for one, text in poor.items() if one in new}
        parts.append(Part(path, path in tests, heavy, beside))
        shown |= {one: poor[one] for one in beside}
    sides = (added.keys() - tests, tests)
    ours, theirs = (set().union(*(names[path] & new for path in some)) for some in sides)
    words = {False: _longest(ours), True: _longest(theirs - ours)}
    kept = {one for part in parts for one in (*part.lines, *part.pairs)}.union(*words.values())
    return {
        "parts": tuple(parts),
        "words": words,
        "shown": {one: shown[one] for one in sorted(kept)},
    }


def _longest(words: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(sorted(words, key=lambda word: (-len(word), word))[:MOST_WORDS])


def _pairs(after: bytes, added: Iterable[bytes]) -> dict[bytes, bytes]:
    """Two lines of a file, one of them added, that follow one another: squeezed, and as shown."""
    wanted = {squeezed(line) for line in added} - {b""}
    lines = [(text, line.strip()) for line in after.split(b"\n") if (text := squeezed(line))]
    return {
        first + second: above + b" / " + below
        for (first, above), (second, below) in pairwise(lines)
        if first in wanted or second in wanted
    }


def _long_lines(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    """Squeezed lines that say something, and the lines themselves."""
    found = {squeezed(line): line.strip() for line in lines}
    return {
        line: text
        for line, text in found.items()
        if len(line) >= SHORTEST_LINE and _WORD.search(line)
    }


def _names(lines: Iterable[bytes]) -> set[bytes]:
    """Identifiers and texts in quotes, squeezed."""
    found = {squeezed(word) for line in lines for word in _NAME.findall(line)}
    return {word for word in found if len(word) >= SHORTEST_WORD}


def _patched(
    patch: bytes, store: ObjectStore, at: str, scratch: Path
) -> tuple[dict[str, str], frozenset[int], dict[str, bytes]]:
    """Ids and paths, sizes, and contents of the files after the fix."""
    (scratch / "patched").mkdir()

    def git(*command: str, stdin: bytes = b"") -> bytes:
        return run_git(
            store.ours,
            *command,
            stdin=stdin,
            GIT_INDEX_FILE=str(scratch / "patched.index"),
            GIT_OBJECT_DIRECTORY=str(scratch / "patched"),
            GIT_ALTERNATE_OBJECT_DIRECTORIES=str((store.ours / "objects").resolve()),
        )

    git("read-tree", at)
    try:
        git("apply", "--cached", "--whitespace=nowarn", stdin=patch)
    except GitFailed as refused:
        raise UserError(
            f"the patch does not apply to {at[:12]} ({refused}); give the commit that it was made"
            " for by --at"
        ) from None
    told = git("diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", at)
    results = {}
    for head, path in zip(*[iter(told.split(b"\0"))] * 2, strict=False):
        _, mode, _, name, _ = head.decode().split()
        if name.strip("0") and mode != SUBMODULE:
            results[name] = path.decode("utf-8", "replace")
    asked = "".join(f"{name}\n" for name in results).encode()
    sizes = git("cat-file", "--batch-check=%(objectsize)", stdin=asked).split()
    size = dict(zip(results, map(int, sizes), strict=True))
    after = {path: git("cat-file", "blob", one) for one, path in results.items()}
    kept = {one: path for one, path in results.items() if size[one] >= SHORTEST_FILE}
    return kept, frozenset(size[one] for one in kept), after


def _weighed(
    features: Mapping[bytes, bytes],
    store: ObjectStore,
    base: frozenset[str],
    progress: Progress,
) -> tuple[frozenset[bytes], "_Weights"]:
    """The features that stand nowhere in the tree, and what their words weigh there."""
    new, words = set(features), {word for text in features.values() for word in _WORD.findall(text)}
    held = dict.fromkeys(words, 0)
    sizes = dict(store.listed.get("blob", []))
    small = sorted(one for one in base if sizes.get(one, LARGEST + 1) <= LARGEST)
    for at, (_, content) in enumerate(store.contents(small)):
        progress("files of the tree", at, len(small))
        text = squeezed(content)
        new -= {feature for feature in new if feature in text}
        for word in words.intersection(_WORD.findall(content)):
            held[word] += 1
    progress("files of the tree", len(small), len(small))
    return frozenset(new), _Weights(held, len(small))


@dataclass(frozen=True)
class _Weights:
    """How many of `files` files hold each word."""

    held: Mapping[bytes, int]
    files: int

    def __call__(self, line: bytes) -> float:
        """The bits of a line."""
        files = max(self.files, LEAST_FILES)
        scale = files / max(self.files, 1)
        return sum(
            math.log2((files + 1) / (self.held[word] * scale + 1))
            for word in set(_WORD.findall(line))
        )
