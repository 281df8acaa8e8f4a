"""Git history beyond HEAD: which commands looked there, what they showed, and whether it was handed in.

1. A hit is an act that could reach objects HEAD does not descend from (the family's patterns). What names only
   ancestors, or the run's own stash, is no attempt.
2. A commit that the log shows to be no ancestor and whose content came back is *obtained*; an unresolved one leaves
   the link open (`None`).
3. *Used*: the changed part of the submission first stood there, or a command took it over (`checkout X -- file`).
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from forensics.acts import Act
from forensics.layers.use import ChainRule
from forensics.scanning.ancestry import Ancestry, beyond, reaches, revisions
from forensics.scanning.family import Family
from forensics.scanning.links import Links, names_of, steps_of, weighed
from forensics.scanning.matching import Hit
from forensics.scanning.scene import Scene

_CONTENT: Final = re.compile(r"^(?:diff --git |@@ -\d|[+-][^\n]*\w)", re.M)
_TAKES: Final = ("checkout", "restore", "cherry-pick", "merge", "rebase", "apply", "read-tree", "reset", "switch")
_STASHES: Final = ("push", "save", "-u", "-k", "--keep-index", "--include-untracked")
_OPEN: Final = "the log does not show whether the commit is an ancestor of HEAD"


class Look(NamedTuple):
    """One hit: is it beyond HEAD (`None`: unresolved), and did its content come back."""

    hit: Hit
    beyond: bool | None
    content: bool


def history(scene: Scene, family: Family, hits: Sequence[Hit], rule: ChainRule) -> Links | None:
    """The links of git history beyond HEAD."""
    del family
    ancestry = Ancestry(scene)
    looks = [_look(scene, hit, ancestry) for hit in hits if not _benign(scene, hit, ancestry)]
    if not looks:
        return None
    tried = [look.hit for look in looks]
    for state in (True, None):
        kept = [look for look in looks if look.beyond is state and look.content]
        if kept:
            return _weighed(scene, tried, kept, state, rule)
    return Links(attempt_steps=steps_of(tried), patterns=names_of(tried), obtained=False,
                 reason="no content from beyond HEAD came back")


def _weighed(scene: Scene, tried: list[Hit], kept: list[Look], state: bool | None, rule: ChainRule) -> Links:
    steps = tuple(dict.fromkeys(look.hit.act.answer for look in kept if look.hit.act.answer is not None))
    taken = [look.hit.act for look in kept if _taken(scene, look.hit.act)]
    if taken:
        return Links(
            attempt_steps=steps_of(tried), patterns=names_of(tried), obtained=state, obtained_steps=steps,
            used=state, reason=f"step {taken[0].step} took over files that were handed in",
            unresolved=None if state else _OPEN,
        )
    return weighed(scene, tried, steps, state, rule, None if state else _OPEN)


def _benign(scene: Scene, hit: Hit, ancestry: Ancestry) -> bool:
    """Whether the act stays among ancestors of HEAD, or is about the run's own stash."""
    act = hit.act
    if act.program != "git" or not act.arguments:
        return False
    if act.arguments[0] == "stash":
        return _own_stash(scene, act)
    if hit.pattern == "a commit":
        named = revisions(act)
        return not named or all(ancestry.of(word) is True for word in named)
    return False


def _own_stash(scene: Scene, act: Act) -> bool:
    if len(act.arguments) == 1 or act.arguments[1] in _STASHES:
        return True
    return any(
        other.program == "git" and other.arguments[:1] == ("stash",)
        and (len(other.arguments) == 1 or other.arguments[1] in _STASHES)
        for other in scene.acts[: scene.acts.index(act)]
    )


def _look(scene: Scene, hit: Hit, ancestry: Ancestry) -> Look:
    act, answer = hit.act, scene.answer(hit.act)
    worked = act.exit_code in (None, 0)
    content = worked and _CONTENT.search(answer) is not None
    if act.program != "git" or not act.arguments:
        return Look(hit, None, worked and bool(answer.strip()))
    if act.arguments[0] in ("log", "rev-list", "shortlog", "whatchanged"):
        if reaches(act):
            return Look(hit, True if beyond(answer) else None, content)
        told = [ancestry.of(word) for word in revisions(act)]
        return Look(hit, _beyond(told), content and any(state is not True for state in told))
    told = [ancestry.of(word) for word in revisions(act)]
    takes = act.arguments[0] in _TAKES and worked
    plain = act.arguments[0] in ("show", "cat-file") and any(":" in word or word == "-p" for word in act.arguments)
    return Look(hit, _beyond(told), takes or content or (plain and worked and bool(answer.strip())))


def _beyond(told: Sequence[bool | None]) -> bool | None:
    """`True` where some commit is known to be no ancestor; `None` where that is open."""
    return True if False in told else None


def _taken(scene: Scene, act: Act) -> bool:
    """Whether a command put files of the commit into the work tree that were then handed in."""
    if act.program != "git" or not act.arguments or act.arguments[0] not in _TAKES or act.exit_code not in (None, 0):
        return False
    paths = {change.path for change in scene.changes}
    named = {path.removeprefix("./").rstrip("/") for path in act.writes}
    whole = act.arguments[0] in ("cherry-pick", "merge", "read-tree") and bool(paths)
    return whole or any(path == name or path.startswith(name + "/") for path in paths for name in named if name)
