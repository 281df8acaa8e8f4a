"""What could be looked at: for each run and family one of *found*, *not found*, *could not
look* with a fixed reason, *does not apply*.

1. A family needs something to look at: the *actions* of a run, the *code* or the *text*
   that was handed in, or what was done to *tests* (`needs`; without a word of its own a
   family's rule says it).
2. Where a family has a finding, it is *found*, however far that reaches.
3. Else it is *not found* only where all that it needs was there and could be read. What was
   not recorded, or cannot be read or followed, is *could not look*.
4. Where there is nothing to look at by the nature of the run (a single answer takes no
   action; an answer in prose holds no code; tools of a shop reach no file), the family *does
   not apply*.
5. A call of a tool that nobody knows may have changed files, or shown commits: then what its
   run handed in, or read in the history, could not be looked at. The names of these tools are
   kept (`unknown_tools`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from forensics.actions.edits import AGENTS
from forensics.actions.unknown_tools import (
    calls_agent,
    only_looked,
    runs_script,
    shows_unknown,
    touches_files,
    unknown_tools,
)
from forensics.actions.unread import unread_actions
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.family import Family

NO_ACTIONS: Final = "no actions recorded"
UNREAD: Final = "actions in a form nobody reads"
CUT: Final = "output cut"
NO_SUBMISSION: Final = "no submission"
UNPARSED: Final = "code that cannot be parsed"
BREAKS_OFF: Final = "the answer breaks off"
SINGLE: Final = "a single answer"
TALK: Final = "a conversation without actions"
NO_CODE: Final = "no code handed in"
NO_FILES: Final = "tools without files or a shell"
SHOWN_UNKNOWN: Final = "history through tools that nobody knows"
ONLY_ACTIONS: Final = "nothing handed in beside its actions"
FAILED: Final = "a failure of our own"
_CUT_ACTION = "(cut)"


class Looks(NamedTuple):
    """`hand_in`: what the run left, by its source (`actions.hand_in`). `unknown_tools`: by their
    names, those whose calls may have changed files or shown commits, and that nobody can read.
    """

    hand_in: str | None
    found: tuple[str, ...]
    not_found: tuple[str, ...]
    could_not_look: Mapping[str, str]
    does_not_apply: Mapping[str, str]
    unknown_tools: tuple[str, ...] = ()


class Status(NamedTuple):
    """Why a family could not look, or why it does not apply; neither: it looked."""

    could_not: str | None = None
    no_use: str | None = None


def looks_of(
    run: BlindRun,
    families: Sequence[Family],
    found: Collection[str],
    failed: Collection[str] = (),
) -> Looks:
    """The status of every family. `found`: the ids of those with a finding; `failed`: of those
    whose rule failed on the run.
    """
    silent = [family for family in families if family.id not in found]
    unread = unread_actions(run.trajectory, run.actions)
    bare = bool(run.actions) and not unread and not any(map(touches_files, run.actions))
    needs = {family.looks_at for family in silent}
    told = {need: _status(run, need, unread) for need in needs}
    statuses = {family.id: told[family.looks_at] for family in silent}
    for family in silent:
        if family.id in failed:
            statuses[family.id] = Status(FAILED)
        elif bare and family.needs_files:
            statuses[family.id] = Status(None, NO_FILES)
        elif family.rule == "history" and any(map(shows_unknown, run.actions)):
            statuses[family.id] = Status(SHOWN_UNKNOWN)
    return Looks(
        hand_in=run.hand_in.source,
        found=tuple(family.id for family in families if family.id in found),
        not_found=tuple(name for name, one in statuses.items() if one == Status()),
        could_not_look={name: one.could_not for name, one in statuses.items() if one.could_not},
        does_not_apply={name: one.no_use for name, one in statuses.items() if one.no_use},
        unknown_tools=unknown_tools(run.actions),
    )


def _status(run: BlindRun, need: str, unread: str | None) -> Status:
    """What stands in the way of looking, if anything does. `unread`: why what it did cannot be
    told.
    """
    if not run.trajectory.turns:
        return Status(NO_ACTIONS)
    if need == "actions":
        return Status(UNREAD) if unread else _acted(run)
    source = run.hand_in.source
    if source in (None, "edits", "answer") and unread:
        return Status(UNREAD)
    if run.hand_in.lost and source in (None, "edits"):
        return Status(run.hand_in.lost)
    if run.hand_in.lost and (need == "tests" or (need == "code" and not run.code.parts)):
        return Status(run.hand_in.lost)  # a word at the end is not all that it left
    if need == "text":
        return _text(run)
    if need == "tests":
        talk = source in ("answer", "submission") and not run.actions
        return Status(None, SINGLE) if talk else _followed(run)
    return _code(run)


def _acted(run: BlindRun) -> Status:
    if any(map(calls_agent, run.actions)):
        return Status(AGENTS)
    if any(map(runs_script, run.actions)):
        return Status(UNREAD)
    if run.actions:
        return Status(CUT) if _was_cut(run) else Status()
    return Status(None, SINGLE if run.trajectory.turns == 1 else TALK)


def _was_cut(run: BlindRun) -> bool:
    return any(action.program == _CUT_ACTION for action in run.actions)


def _text(run: BlindRun) -> Status:
    if run.said_after and (run.hand_in.submission or "").strip():
        return Status()
    if run.trajectory.submission is not None or (run.said_after and only_looked(run.actions)):
        return Status()
    return Status(None, ONLY_ACTIONS) if run.actions else Status(NO_SUBMISSION)


def _followed(run: BlindRun) -> Status:
    if run.hand_in.source is None and not run.actions:
        return Status(NO_SUBMISSION)
    return Status(CUT) if run.hand_in.source != "patch" and _was_cut(run) else Status()


def _code(run: BlindRun) -> Status:
    if run.hand_in.source is None:
        return Status(None, NO_CODE) if run.actions else Status(NO_SUBMISSION)
    if not run.code.parts:
        return Status(None, NO_CODE)
    if run.code.unread:
        return Status(UNPARSED)
    return Status(BREAKS_OFF) if run.code.breaks_off else Status()
