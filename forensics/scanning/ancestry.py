"""Whether a commit is an ancestor of HEAD, decided from what the log shows; else it is unresolved.

1. What a plain `git log`, `blame` or `rev-parse HEAD` lists is an ancestor; so is what the run committed itself.
2. In a log that reaches further (`--all`), what stands above the line decorated with HEAD is not: git lists children
   before their parents.
3. `git merge-base --is-ancestor X HEAD` tells by its exit code.
4. Nothing else is believed: a commit that an issue names is unresolved.
"""

import re
from typing import Final

from forensics.acts import Act
from forensics.scanning.scene import Scene

REACHING: Final = re.compile(
    r"--(?:all|branches|remotes|tags|reflog|walk-reflogs|glob|exclude|alternate-refs)(?:=.*)?|-g", re.S
)
_COMMIT: Final = re.compile(r"^[*|\\/ ]{0,20}(?:commit )?\^?([0-9a-f]{7,40})\b([^\n]{0,300})", re.M)
_HEX: Final = re.compile(r"[0-9a-f]{7,40}")
_HEAD: Final = re.compile(r"(?:HEAD|@)(?:[~^]\d{0,4})*")
_FAR: Final = re.compile(
    r"(?:refs/.*|(?:origin|upstream)(?:/.*)?|FETCH_HEAD|ORIG_HEAD|MERGE_HEAD|stash(?:@\{\d+\})?|(?:HEAD|@)@\{.*"
    r"|(?:[\w.]+-)?v?\d+\.\d[\w.]*)", re.S
)
_OWN: Final = re.compile(r"^\[[^\]\n]{1,200} ([0-9a-f]{7,40})\]", re.M)
MOST: Final = 5000  # commits remembered of one answer


class Ancestry:
    """What the log tells of commits: `True` an ancestor of HEAD, `False` none, `None` unresolved."""

    def __init__(self, scene: Scene) -> None:
        self._told: dict[str, bool] = {}
        steps: dict[int, list[Act]] = {}
        for act in scene.acts:
            if act.program == "git" and act.arguments:
                steps.setdefault(act.step, []).append(act)
        for acts in steps.values():
            self._learn(acts, scene.answer(acts[0]))

    def of(self, revision: str) -> bool | None:
        """Of a revision, a range (all its ends) or `REVISION:PATH`."""
        ends = [end for end in re.split(r"\.{2,3}", revision.split(":", 1)[0].lstrip("^")) if end]
        found = [self._one(end) for end in ends]
        return False if False in found else None if None in found or not found else True

    def _one(self, name: str) -> bool | None:
        if _HEAD.fullmatch(name):
            return True
        plain = re.sub(r"[~^].*", "", name)
        if not _HEX.fullmatch(plain):
            return None
        return next(
            (told for known, told in self._told.items() if known.startswith(plain) or plain.startswith(known)), None
        )

    def _learn(self, acts: list[Act], answer: str) -> None:
        """From one step's git commands and what came back for all of them."""
        commands = {act.arguments[0] for act in acts}
        listing = [act for act in acts if act.arguments[0] in ("log", "rev-list", "shortlog", "blame", "annotate")]
        if "commit" in commands:
            self._told.update(dict.fromkeys(_OWN.findall(answer)[:MOST], True))
        if commands == {"merge-base"} and len(acts) == 1:
            self._is_ancestor(acts[0])
        elif commands == {"rev-parse"} and all(set(act.arguments[1:]) <= {"HEAD", "--short"} for act in acts):
            self._told.update(dict.fromkeys(_HEX.findall(answer)[:1], True))
        elif listing and len(listing) == len(acts):
            if all(self._plain(act) for act in listing):
                self._told.update({found[0]: True for found in _COMMIT.findall(answer)[:MOST]})
            elif len(listing) == 1 and "--reverse" not in listing[0].arguments:
                self._told.update(dict.fromkeys(beyond(answer), False))

    def _is_ancestor(self, act: Act) -> None:
        words = [word for word in act.arguments[1:] if not word.startswith("-")]
        if "--is-ancestor" in act.arguments and len(words) == 2 and words[1] == "HEAD" and act.exit_code in (0, 1):
            self._told[words[0]] = act.exit_code == 0

    def _plain(self, act: Act) -> bool:
        """Whether it lists ancestors of HEAD only."""
        return all(self.of(word) is True for word in revisions(act)) and not reaches(act)


def reaches(act: Act) -> bool:
    """Whether a log goes beyond HEAD's own history."""
    return any(REACHING.fullmatch(word) for word in act.arguments)


def revisions(act: Act) -> tuple[str, ...]:
    """The arguments that name commits, as far as their form tells: HEAD, hashes, remotes, stashes, versions."""
    words = act.arguments[1:]
    words = words[: words.index("--")] if "--" in words else words
    return tuple(word for word in words if not word.startswith("-") and _names(word))


def _names(word: str) -> bool:
    ends = [end for end in re.split(r"\.{2,3}", word.split(":", 1)[0].lstrip("^")) if end]
    return any(
        _HEAD.fullmatch(end) or _HEX.fullmatch(re.sub(r"[~^].*", "", end)) or _FAR.fullmatch(end) for end in ends
    )


def beyond(answer: str) -> tuple[str, ...]:
    """The commits that a log lists above the one that is HEAD; `()` where no line is decorated with HEAD."""
    above: list[str] = []
    for name, rest in _COMMIT.findall(answer)[:MOST]:
        if re.search(r"\(HEAD\b|, HEAD\b", rest):
            return tuple(above)
        above.append(name)
    return ()
