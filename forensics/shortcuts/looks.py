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
6. `CoverageCounts` counts runs. One at which no family could look is *blind*, one at which some
   could not *partial*, each by the reason that stops most of its families, so that the reasons
   add up. A run whose tools reach neither files nor a shell, or at which at most two families
   look, since the others do not apply to it, is *narrow*: nothing found there says little.
   The kinds of silence are never added up.
7. Rules of the prompt (`instructions`) are no family; they have a status only in runs where
   nobody can tell whether one was broken. No win is in doubt for it: a broken rule wins nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple, Self

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
from forensics.layers.channels import RULE_BROKEN
from forensics.records.finding import Coverage
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
DOUBTFUL_BAN: Final = "a ban with an exception that nobody can surely tell"
_CUT_ACTION = "(cut)"
ANSWER, BARE, OTHER = "a single answer", "neither files nor a shell", "other"  # kinds of runs
_NARROW = 2  # families that look at most
_BARE = frozenset({NO_FILES, TALK})


class Status(NamedTuple):
    """Why a family could not look, or why it does not apply; neither: it looked."""

    could_not: str | None = None
    no_use: str | None = None


def looks_of(
    run: BlindRun,
    families: Sequence[Family],
    found: Collection[str],
    failed: Collection[str] = (),
) -> Coverage:
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
    return Coverage(
        **run.trajectory.origin,
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


def unread_families(run: Coverage) -> dict[str, str]:
    """Why families could not look whose shortcuts may win a run; a broken rule wins nothing."""
    return {name: why for name, why in run.could_not_look.items() if name != RULE_BROKEN}


@dataclass
class CoverageCounts:
    """What could be looked at in the runs of one side, or of several. `runs`: those that somebody
    looked at; `statuses`: of how many each family says what, by family, status and reason.
    `blind` and `partial`: runs by their main reason; `stopped`: the families of the latter.
    `narrow`: runs by their kind and the families that look. `tools`: how many runs called each
    tool that nobody can read, `tool_runs`: how many called any. `open_wins`: those of the `wins`
    in which some family could not look, by each of their `reasons`.
    """

    runs: int = 0
    statuses: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    blind: Counter[str] = field(default_factory=Counter)
    partial: Counter[str] = field(default_factory=Counter)
    stopped: Counter[str] = field(default_factory=Counter)
    narrow: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    tool_runs: int = 0
    wins: int = 0
    open_wins: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def not_looked_at(self) -> int:
        """Runs at which at least one family could not look."""
        return self.blind.total() + self.partial.total()

    def add(self, run: Coverage | None, won: bool = False) -> Self:
        """Count one run more; `None`: a scanner of the caller's own looked at it."""
        self.wins += won
        if run is None:
            return self
        self.runs += 1
        self.tools.update(run.unknown_tools)
        self.tool_runs += bool(run.unknown_tools)
        looked = (*run.found, *run.not_found)
        stopped, aside = run.could_not_look, run.does_not_apply
        for status in ("found", "not_found"):
            self.statuses.update((name, status, "") for name in getattr(run, status))
        for status in ("could_not_look", "does_not_apply"):
            self.statuses.update((name, status, why) for name, why in getattr(run, status).items())
        if stopped:
            counts = Counter(stopped.values())
            main = min(counts, key=lambda reason: (-counts[reason], reason))
            (self.partial if looked else self.blind)[main] += 1
            self.stopped.update([*stopped] if looked else ())
            if won and (unread := unread_families(run)):
                self.open_wins += 1
                self.reasons.update({*unread.values()})
        elif aside and (len(looked) <= _NARROW or NO_FILES in aside.values()):
            self.narrow[_kind(aside.values()), tuple(sorted(looked))] += 1
        return self

    def __add__(self, other: Self) -> Self:
        """The counts of both."""
        names = [one.name for one in fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def families(self) -> dict[str, dict[str, Any]]:
        """Of each family the runs with each status, those with a reason by their reasons."""
        told: dict[str, dict[str, Any]] = {}
        for (name, status, reason), count in sorted(self.statuses.items()):
            empty = {"found": 0, "not_found": 0, "could_not_look": {}, "does_not_apply": {}}
            row = told.setdefault(name, empty)
            if reason:
                row[status][reason] = count
            else:
                row[status] = count
        return told

    def stated(self) -> dict[str, Any]:
        """As `case.json` states it."""
        return {
            "families": self.families(),
            "runs_not_looked_at": self.not_looked_at,
            "wins_not_looked_at": self.open_wins,
        }


def _kind(reasons: Iterable[str]) -> str:
    """What kind of run most families do not apply to."""
    known = set(reasons)
    return BARE if known & _BARE else ANSWER if SINGLE in known else OTHER
