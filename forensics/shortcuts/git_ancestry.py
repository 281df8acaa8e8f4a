"""Which commits and refs HEAD descends from, as far as what git said tells.

1. What a plain `git log`, `blame` or `rev-parse HEAD` lists is an ancestor, and so is
   what the run committed itself, or a branch that it made. Once the run moved HEAD
   elsewhere (`checkout X`, `merge`), a plain log tells no more.
2. In a log that reaches further (`--all`), what stands above HEAD's own line (decorated,
   or known from elsewhere) is none: git lists children before their parents.
   `log HEAD..X` lists none but such.
3. `git merge-base --is-ancestor X HEAD` tells by its exit code; `status` says whether a
   remote branch is ahead; `branch --merged`, `--no-merged` and `--contains`, `fsck` (what
   nothing leads to), `fetch` (what is new) likewise.
4. A tag of a later version than HEAD's own (`describe`) is none.
5. Nothing else is believed here: what else the log shows, `shown_commits` weighs.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from forensics.actions import Action
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.git_words import (
    HEAD,
    HEX,
    bare,
    ends,
    reaches_beyond_head,
    revisions,
    same_commit,
    subcommand,
    version,
    words_of,
)
from forensics.shortcuts.vocabulary import Vocabulary

MOST = 5000  # commits remembered of one answer
_FORMS = Vocabulary(__name__)
_LISTINGS = {"log", "rev-list", "shortlog", "blame", "annotate"}
_MOVES = {"merge", "pull", "rebase", "cherry-pick", "am"}


class Ancestry:
    """What git tells of commits: `True` an ancestor of HEAD, `False` none, `None`
    unresolved. `known`: branches and tags that git listed.
    """

    def __init__(self, blind: BlindRun) -> None:
        self.known: set[str] = set()
        self._told: dict[str, bool] = {}
        self._at: dict[str, str] = {}
        self._own: set[str] = set()
        self._head: str | None = None
        self._version: tuple[int, ...] | None = None
        self._moved = self._left = False
        steps: dict[int, list[Action]] = {}
        for action in blind.actions:
            if subcommand(action):
                steps.setdefault(action.step, []).append(action)
        for actions in steps.values():
            self._learn(actions, blind.answer(actions[0]))

    def is_ancestor(self, revision: str) -> bool | None:
        """Of a revision, a range (all its ends) or `REVISION:PATH`."""
        found = [self._one(end) for end in ends(revision)]
        return False if False in found else None if None in found or not found else True

    def elsewhere(self, revision: str) -> bool:
        """Whether a revision is named by a ref other than HEAD and the run's own."""
        return any(
            not HEAD.fullmatch(end)
            and not HEX.fullmatch(bare(end))
            and not end.startswith(("$", "`"))
            and same_commit(end)
            and self._one(end) is not True
            and version(bare(end)) is None
            for end in ends(revision)
        )

    def _one(self, name: str) -> bool | None:
        if HEAD.fullmatch(name):
            return True
        plain = bare(name)
        told = self._named(plain)
        return None if told is False and not same_commit(name) else told

    def _named(self, name: str) -> bool | None:
        if name in self._own:
            return True
        told = self._listed(name)
        if told is None and name in self._at:
            told = self._listed(self._at[name])
        if told is None and name.startswith("stash"):
            return False
        numbers = version(name)
        if told is None and numbers and self._version:
            return numbers <= self._version
        return told

    def _listed(self, name: str) -> bool | None:
        if name in self._told or not HEX.fullmatch(name):
            return self._told.get(name)
        return next(
            (
                told
                for known, told in self._told.items()
                if HEX.fullmatch(known) and (known.startswith(name) or name.startswith(known))
            ),
            None,
        )

    def _learn(self, actions: list[Action], answer: str) -> None:
        """From one step's git commands and what came back for all of them."""
        commands = {subcommand(action) for action in actions}
        self._refs(actions, commands, answer)
        if "commit" in commands:
            self._tell(_FORMS.own.findall(answer)[:MOST], True)
        self._tell(_FORMS.dangling.findall(answer)[:MOST] if "fsck" in commands else [], False)
        asked = [action for action in actions if subcommand(action) not in _FORMS.words["silent"]]
        if commands == {"merge-base"} and len(actions) == 1:
            self._is_ancestor(actions[0])
        elif commands == {"rev-parse"} and all(
            set(action.arguments[1:]) <= {"HEAD", "--short"} for action in actions
        ):
            self._is_head(HEX.findall(answer)[:1])
        elif asked and {subcommand(action) for action in asked} <= _LISTINGS and not self._moved:
            self._from_log(asked, answer)
        for action in actions:
            self._follow(action)

    def _from_log(self, actions: list[Action], answer: str) -> None:
        listed = [found[0] for found in _commits(answer)]
        if all(self._plain(action) for action in actions):
            self._tell(listed, True)
            whole = all(not words_of(action).operands for action in actions)
            if whole and len(actions) == 1 and _starts_at_head(actions[0]):
                self._is_head(listed[:1])
        elif len(actions) == 1 and self._beyond(actions[0]):
            self._tell(listed, False)
        elif len(actions) == 1 and _newest_first(actions[0]):
            self._tell(listed_above_head(answer) or self._above(listed), False)

    def _beyond(self, action: Action) -> bool:
        """Whether a log lists only what HEAD does not lead to: `HEAD..X`."""
        words = [word for word in words_of(action).operands if ".." in word or word[:1] == "^"]
        return (
            len(words) == 1
            and not reaches_beyond_head(action)
            and (
                re.split(r"\.\.", words[0].lstrip("^"))[0] in {"HEAD", "@", "", *self._own}
                and "..." not in words[0]
            )
        )

    def _above(self, listed: list[str]) -> list[str]:
        head = self._head
        at = next((i for i, one in enumerate(listed) if head and _same(one, head)), 0)
        return listed[:at]

    def _plain(self, action: Action) -> bool:
        """Whether it lists ancestors of HEAD only."""
        if reaches_beyond_head(action):
            return False
        named = revisions(action, self.known)
        if any(self.is_ancestor(word) is not True for word in named):
            return False
        rest = [word for word in words_of(action).operands if word not in named]
        return subcommand(action) in ("blame", "annotate") or all(
            "." in word or word.endswith("/") for word in rest
        )

    def _refs(self, actions: list[Action], commands: set[str], answer: str) -> None:
        """Branches, tags and where they stand."""
        self.known.update(_FORMS.ref.findall(answer)[:MOST] if "refs/" in answer else ())
        for rest in _commits(answer) if commands & {"log", "show"} else ():
            for group in _FORMS.decorated.findall(rest[1])[:1]:
                names = [re.sub(r"^(?:HEAD -> |tag: )", "", name) for name in group.split(", ")]
                self.known.update(names)
                self._at.update(dict.fromkeys(names, rest[0]))
        if "status" in commands or "checkout" in commands:
            for word, name in _FORMS.tracked.findall(answer):
                self._told[name] = word in ("up to date", "ahead")
            for name, word in _FORMS.short_tracked.findall(answer):
                self._told[name] = "behind" not in word and "gone" not in word
        if "status" in commands and not self._moved:
            self._own.update(name.split("...")[0] for name in _FORMS.on.findall(answer)[:1])
        if commands & {"fetch", "pull"}:
            for new, name in _FORMS.fetched.findall(answer):
                self._tell([part for part in (new, name) if part], False)
        for action in actions:
            self._branches(action, answer)

    def _branches(self, action: Action, answer: str) -> None:
        command, options = subcommand(action), set(action.arguments)
        if command == "describe" and not revisions(action):
            told = filter(None, map(version, answer.split()))
            self._version = self._version or next(told, None)
        if command not in ("branch", "tag") or (command == "tag" and "-a" in options):
            return
        rows = _FORMS.branch.findall(answer) if command == "branch" else ()
        listed = [name for _, name, _ in rows] or (_FORMS.tag.findall(answer) if not rows else [])
        self.known.update(listed[:MOST])
        self._at.update({name: at for _, name, at in rows if at})
        current = [name for mark, name, _ in rows if mark == "*"]
        if not self._moved:
            self._own.update(current)
        if "--merged" in options and options & {"HEAD", current[0] if current else "HEAD"}:
            self._tell(listed, True)
        elif "--no-merged" in options:
            self._tell(listed, False)
        elif "--contains" in options:
            named = [word for word in revisions(action, self.known) if HEX.fullmatch(word)]
            self._tell(named if command == "branch" else (), bool(current))

    def _follow(self, action: Action) -> None:
        """Where the run itself took HEAD, and what it made."""
        command, read = subcommand(action), words_of(action)
        operands = read.operands
        made = read.values("-b", "-B", "-c", "-C", "--orphan") if command != "restore" else ()
        start = operands[:1] if command in ("checkout", "switch") else operands[1:2]
        if command in ("branch", "tag") and operands and not action.arguments[1].startswith("-"):
            made = operands[:1]
        if made and all(self.is_ancestor(word) is True for word in start):
            self._own.update(made)
            self._left = command in ("checkout", "switch")
        elif command in ("checkout", "switch") and "--" not in action.arguments and operands:
            back = operands[0] == "-" or self.is_ancestor(operands[0]) is True
            paths = len(operands) > 1 or "." in operands[0]
            if self._left and not (back or paths):  # to where its own branch came from
                self._own.add(operands[0])
                self._left, back = False, True
            self._moved = self._moved if paths else not back
        elif command in _MOVES or (command == "reset" and read.has("--hard", "--merge", "--keep")):
            self._moved |= any(self.is_ancestor(word) is not True for word in operands)

    def _is_ancestor(self, action: Action) -> None:
        words = [word for word in action.arguments[1:] if not word.startswith("-")]
        if (
            "--is-ancestor" in action.arguments
            and len(words) == 2
            and words[1] in ("HEAD", *self._own)
            and action.exit_code in (0, 1)
        ):
            self._told[words[0]] = action.exit_code == 0

    def _is_head(self, found: list[str]) -> None:
        if found and not self._moved:
            self._head = self._head or found[0]
            self._tell(found, True)

    def _tell(self, names: Iterable[str], told: bool) -> None:
        for name in names:
            self._told.setdefault(name, told)


def _newest_first(action: Action) -> bool:
    return subcommand(action) in ("log", "rev-list") and "--reverse" not in action.arguments


def _starts_at_head(action: Action) -> bool:
    """Whether the first commit that a plain log lists is HEAD: nothing is left out."""
    options = {name for name, _ in words_of(action).options}
    shapes = ("-n", "--oneline", "--max-count", "--decorate", "--stat", "-p", "--graph")
    return (
        _newest_first(action)
        and "--" not in action.arguments
        and all(name in shapes or re.fullmatch(r"-\d+", name) for name in options)
    )


def _same(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


@lru_cache(maxsize=8)
def _commits(answer: str) -> tuple[tuple[str, str], ...]:
    """Each line's commit and what stands behind it; line by line is faster than one expression."""
    found: list[tuple[str, str]] = []
    for line in answer.split("\n"):
        if line[:1] in _FORMS.words["line_starts"] and (told := _FORMS.commit.match(line)):
            found.append((told[1], told[2]))
            if len(found) == MOST:
                break
    return tuple(found)


def listed_above_head(answer: str) -> tuple[str, ...]:
    """The commits that a log lists above the one that is HEAD; `()` where no
    line is decorated with HEAD.
    """
    above: list[str] = []
    for name, rest in _commits(answer):
        if re.search(r"\(HEAD\b|, HEAD\b", rest):
            return tuple(above)
        above.append(name)
    return ()
