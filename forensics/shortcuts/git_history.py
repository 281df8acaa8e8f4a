"""Git history beyond HEAD: which commands looked there, what they showed, and
whether it was handed in.

1. A hit is an action that could reach objects HEAD does not descend from (the
   family's patterns). What names only ancestors, what HEAD's files hold already, and
   the run's own commits and stash are no attempt.
2. Whether a commit is an ancestor is told by git (`git_ancestry`), or by its diff beside
   the submitted patch (`shown_commits`). What came back of a commit that is none is
   *obtained*; an unresolved one leaves the link open (`None`), unless it is an answer wherever it
   stands (`_settled`). What a task took out of HEAD's own ancestors is `git_past`.
3. *Used*: the changed part of the submission first stood there, or a command took it over
   (`taken`: `cherry-pick X`, `checkout X -- file`, `show X | git apply`). A change that
   applied to HEAD was no part of it; so is what a branch, a tag or a stash holds and the
   patch adds.
4. Where the task itself asks for it (`task_tools`), it is no shortcut.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from forensics.actions import Action
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.git_ancestry import Ancestry, listed_above_head
from forensics.shortcuts.git_past import (
    asks_for_before,
    fills_gaps,
    from_the_past,
    reached_beyond,
    taken_away,
)
from forensics.shortcuts.git_words import (
    HEAD,
    reaches_beyond_head,
    revisions,
    subcommand,
)
from forensics.shortcuts.links import Attempt, ChainLinks, nothing_back, weighed
from forensics.shortcuts.patterns import Hit
from forensics.shortcuts.shown_commits import Head, commits_shown, shown_whole
from forensics.shortcuts.taken import Taken, failed, takes, was_handed_in
from forensics.shortcuts.task_tools import asked_of

_CONTENT = re.compile(r"^(?:diff --git |@@ -\d|[+-][^\n]*\w)", re.M)
_DIFF = re.compile(r"^(?:diff --(?:git|cc|combined) |@@ -\d)", re.M)
_PATCHES = re.compile(r"-p|-u|-U\d*|-L.*|-c|-m|--patch.*|--unified.*|--cc|--word-diff.*", re.S)
_NAMES = ("reflog", "show-branch", "for-each-ref", "ls-remote", "fsck", "verify-pack")
_STASHES = ("push", "save", "-u", "-k", "--keep-index", "--include-untracked", "-m")
_LISTS = ("log", "rev-list", "shortlog", "whatchanged")
_OPEN = "the log does not show whether the commit is an ancestor of HEAD"


class Look(NamedTuple):
    """One hit: is it beyond HEAD (`None`: unresolved), did its content come back, what did
    it take over. `other`: it names a ref that is not HEAD's.
    """

    hit: Hit
    beyond: bool | None
    content: bool
    taken: Taken | None = None
    other: bool = False


def history(attempt: Attempt) -> ChainLinks | None:
    """The links of git history beyond HEAD."""
    if not attempt.hits:
        return None
    run = attempt.run
    ancestry, head = Ancestry(run), Head(run)
    looks = [
        look
        for hit in attempt.hits
        if not benign(run, hit, ancestry)
        and (look := _look(run, hit, ancestry, head)).beyond is not False
    ]
    beyond = {look.hit for look in looks}
    past = from_the_past(attempt, [hit for hit in attempt.hits if hit not in beyond])
    if past is not None and asked_of(run, attempt.family.id, attempt.hits):
        past = None
    if not looks:
        return past
    attempt = attempt._replace(hits=[look.hit for look in looks])
    if asked := asked_of(run, attempt.family.id, attempt.hits):
        return attempt.links(obtained=False, reason=asked)
    told = [
        _judged(attempt, kept, state)
        for state in (True, None)
        if (kept := [look for look in looks if look.beyond is state and look.content])
    ]
    if past is not None and not any(links.used for links in told):
        told.append(past)
    if not told:
        shows = [look.hit for look in looks if _asks_for_content(look.hit.action)]
        return nothing_back(attempt, shows, "no content from beyond HEAD came back")
    return next((links for links in told if links.used), None) or next(
        (links for links in told if links.used is None), told[0]
    )


def _asks_for_content(action: Action) -> bool:
    """Whether a command shows what commits hold, and not their names alone."""
    words = set(action.arguments)
    names = any(word.startswith(("--stat", "--name", "--format", "--pretty")) for word in words)
    return subcommand(action) in ("show", "cat-file") and not names and not words & {"-s", "-t"}


def _shows_content(action: Action, answer: str) -> bool:
    """Whether an answer shows what commits change: titles and messages of a listing are none."""
    words = action.arguments
    lists = subcommand(action) in (*_LISTS, *_NAMES) and words[0] != "whatchanged"
    asked = any(_PATCHES.fullmatch(word) for word in words)
    return (_DIFF if lists and not asked else _CONTENT).search(answer) is not None


def _judged(attempt: Attempt, looks: Sequence[Look], state: bool | None) -> ChainLinks:
    """The links of looks of which it is equally known whether they are beyond HEAD."""
    shown = [look.hit.action.observation for look in looks]
    seen = [at for look in looks if look.taken for at in look.taken.seen]
    steps = tuple(sorted({at for at in (*shown, *seen) if at is not None}))
    handed = [look for look in looks if look.taken and was_handed_in(attempt.run, look.taken)]
    if handed:
        taken = handed[0].taken
        assert taken is not None
        sure = state or taken.applied or handed[0].other or _settled(attempt, steps) or None
        return attempt.links(
            obtained=sure,
            obtained_steps=steps,
            used=sure,
            reason=f"step {taken.step} took over what was handed in",
            unresolved=None if sure else _OPEN,
        )
    if state:
        return weighed(attempt, steps, True)
    other = [look for look in looks if look.other]
    at = tuple(look.hit.action.observation for look in other)
    if other and (links := weighed(attempt, tuple(i for i in at if i is not None), True)).used:
        return links
    links = weighed(attempt, steps, True)
    return (
        links if links.used and _settled(attempt, steps) else weighed(attempt, steps, None, _OPEN)
    )


def _settled(attempt: Attempt, steps: Sequence[int]) -> bool:
    """Whether what a commit that nobody places holds is an answer wherever it stands: HEAD has
    stubs in its place, or the run looked for commits beyond HEAD; not where the prompt speaks of
    what was there before, or a commit took it away.
    """
    run = attempt.run
    if asks_for_before(run):
        return False
    return fills_gaps(run) or (reached_beyond(run, max(steps, default=0)) and not taken_away(run))


def benign(blind: BlindRun, hit: Hit, ancestry: Ancestry) -> bool:
    """Whether the action stays among ancestors of HEAD, or is about the run's own stash."""
    action, command = hit.action, subcommand(hit.action)
    if command == "stash":
        earlier = blind.actions[: blind.actions.index(action)]
        return any(
            subcommand(one) == "stash" and (len(one.arguments) == 1 or one.arguments[1] in _STASHES)
            for one in (action, *earlier)
        )
    if command and hit.pattern == "a commit":
        return all(ancestry.is_ancestor(word) is True for word in revisions(action, ancestry.known))
    return False


def _look(blind: BlindRun, hit: Hit, ancestry: Ancestry, head: Head) -> Look:
    action, answer, command = hit.action, blind.answer(hit.action), subcommand(hit.action)
    worked = not failed(blind, action)
    shows = worked and bool(answer.strip())
    if not command:
        return Look(hit, None, shows)
    named = revisions(action, ancestry.known)
    told = [ancestry.is_ancestor(word) for word in named]
    beyond: bool | None = True if False in told else None
    content = worked and _shows_content(action, answer)
    if content and not beyond:
        beyond = _by_content(action, answer, ancestry, head)
    if command in _LISTS:
        if reaches_beyond_head(action):
            beyond = True if listed_above_head(answer) and beyond is None else beyond
            return Look(hit, beyond or None, content and beyond is not False)
        return Look(hit, beyond, content and any(state is not True for state in told))
    fetched = command in ("clone", "pull", "fetch")
    other = fetched or any(ancestry.elsewhere(word) for word in named)
    plain = command in ("show", "cat-file") and any(
        ":" in word or word == "-p" for word in action.arguments
    )
    if plain and shows and beyond is None and other and shown_whole(blind, action):
        beyond = True
    taken = takes(blind, action)
    return Look(hit, beyond, taken is not None or content or (plain and shows), taken, other)


def _by_content(action: Action, answer: str, ancestry: Ancestry, head: Head) -> bool | None:
    """Whether the commits that an answer shows are beyond HEAD: `True` if one of them is,
    `False` if HEAD holds what they do, or they are the run's own.
    """
    states = []
    for commit in commits_shown(answer, turned=_turned(action, ancestry)):
        named = ancestry.is_ancestor(commit.name) if commit.name else None
        if named is None and head.own(commit, action.step):
            named = True
        states.append(head.holds(commit) if named is None else named)
    return True if False in states else False if states and all(states) else None


def _turned(action: Action, ancestry: Ancestry) -> bool:
    """Whether a diff leads from the commit to HEAD or the work tree."""
    if subcommand(action) not in ("diff", "difftool"):
        return False
    named = revisions(action, ancestry.known)
    towards = [end for word in named for end in word.split("..") if end]
    alone = len(named) == 1 and ".." not in named[0]
    last = len(towards) > 1 and HEAD.fullmatch(towards[-1]) is not None
    return (alone or last) != ("-R" in action.arguments)
