"""What a run did as words that other runs share: each action without what is its task's own.

1. An action becomes its program, its verb (of `git`, `pip` and their like), its options and
   the kinds of the paths that it reads (`<test>`) and writes (`><test>`). Numbers, names,
   patterns, quoted texts and hashes are gone.
2. The same word twice in a row is one.
"""

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from forensics.actions import UNPARSED, Action
from forensics.actions.command_heads import FAMILIES
from forensics.layers.use import ChainRule
from forensics.records import Trajectory

LONGEST_WORD, MOST_OPTIONS = 120, 5
_VERB = re.compile(r"[a-z][a-z-]{1,19}")
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z-]{0,29}")
_URL = re.compile(r"[a-z]{2,6}://|git@")
_TOOL_VERB = re.compile(r"(?:command|action|mode|operation)=([a-z_]{2,24})")
_PROGRAM_VERSION = re.compile(r"(?<=[a-z])\d[\d.]*$")
_DIGITS = re.compile(r"\d+")
_PLACES = (
    (
        "<installed>",
        re.compile(r"site-packages|dist-packages|node_modules|/usr/lib|\.cargo|/pkg/mod"),
    ),
    ("<.git>", re.compile(r"(?:^|/)\.git(?:/|$)")),
    (
        "<test>",
        re.compile(
            r"(?:^|/)(?:tests?|testing|specs?|__tests__)(?:/|$)|(?:^|/)test_|[._]test\.|[._]spec\."
        ),
    ),
    ("</tmp>", re.compile(r"^/(?:tmp|var/tmp|dev/shm)/")),
    ("<system>", re.compile(r"^/(?:etc|proc|sys|usr|bin|root|home|var|opt)/")),
)
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,5}$")


class ActedRun(NamedTuple):
    """What one run did: its words, and the step of each."""

    side: str
    run: str
    task: str
    policy: str
    environment: str
    file: str | None
    passed: bool | None
    words: tuple[str, ...]
    steps: tuple[int, ...]


def acted_run(side: str, run: Trajectory, actions: Sequence[Action], rule: ChainRule) -> ActedRun:
    """The words of a run, whose actions are `actions`."""
    told = ((word_of(action), action.step) for action in actions if action.program != UNPARSED)
    first = [next(same) for _, same in groupby(told, key=itemgetter(0))]
    return ActedRun(
        side=side,
        run=run.id,
        task=sys.intern(run.task),
        policy=sys.intern(run.policy),
        environment=sys.intern(run.environment),
        file=run.file,
        passed=None if run.outcome is None else run.outcome >= rule.win,
        words=tuple(word for word, _ in first),
        steps=tuple(step for _, step in first),
    )


def word_of(action: Action) -> str:
    """An action without what is its task's own: `git log --all`, `cat <.py>`, `sed -i ><test>`."""
    return _word(action.kind, action.program, action.arguments, action.reads, action.writes)


@lru_cache(maxsize=1 << 15)
def _word(
    kind: str,
    program: str,
    arguments: tuple[str, ...],
    reads: tuple[str, ...],
    writes: tuple[str, ...],
) -> str:
    name = _DIGITS.sub("#", _PROGRAM_VERSION.sub("", program.rpartition("/")[2] or program))
    parts = [name]
    options: set[str] = set()
    if kind == "command":
        plain = (text for text in arguments if not text.startswith("-"))
        verb = next(plain, "") if name in FAMILIES else ""
        if name == "python" and "-m" in arguments[:-1]:
            verb = arguments[arguments.index("-m") + 1]
        parts += [verb] if _VERB.fullmatch(verb) else []
        found = (_OPTION.match(text.partition("=")[0]) for text in arguments)
        options = {match[0] for match in found if match}
    else:
        verbs = map(_TOOL_VERB.fullmatch, arguments)
        parts += [match[1] for match in verbs if match][:1]
    parts += sorted(options)[:MOST_OPTIONS]
    parts += ["<address>"] if any(map(_URL.match, arguments)) else []
    parts += sorted({place_of(path) for path in reads} - {""})
    parts += sorted({f">{place_of(path)}" for path in writes} - {">"})
    return sys.intern(" ".join(parts)[:LONGEST_WORD])


@lru_cache(maxsize=1 << 14)
def place_of(path: str) -> str:
    """The kind of a path; `""` for what is none."""
    for place, pattern in _PLACES:
        if pattern.search(path):
            return place
    suffix = _SUFFIX.search(path)
    return f"<{suffix[0].lower()}>" if suffix else "<folder>" if path.endswith("/") else "<path>"
