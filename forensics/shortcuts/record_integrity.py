"""Whether the record of a run is whole, and agrees with what the agent says of it: what a
reader of the log cannot rely on. Told beside the findings, never among them.

1. *Calls and results*: calls without a result although other calls of the same tool have one;
   results that no call asked for; a run that ends in a call; outputs that the harness says it
   cut.
2. *Claims* (`claims`): tests that are said to have run or passed, though the log records no
   test run, or the last one failed, or code was changed after it; files that are said to be
   changed, though nothing recorded wrote them; a summary of tests that never came back.
3. *The score*: a win of a run that the log says broke off with an error; files that tell the
   outcome, and differ.
4. Nothing is said of runs whose actions cannot be read, that have other agents do the work, or
   that go on from a summary: what is missing there is missing from the log's form.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from forensics.actions import Action, unread_actions
from forensics.actions.unknown_tools import calls_agent
from forensics.layers.evidence_chain import ChainRule
from forensics.phrases import plural, printable
from forensics.records import Step, Trajectory
from forensics.records.trajectory import records_that_differ
from forensics.shortcuts.claim_checks import broken_claims
from forensics.shortcuts.claims import claims_of

LONGEST: Final = 300  # characters of a quotation
MOST_STEPS: Final = 20
SEARCHED: Final = 200_000  # characters of an answer
REFUSAL: Final = 2000  # characters of what a harness says instead of running a call
WIN: Final = ChainRule().win
_CUT_WORDS = ("elided", "truncated", "clipped", "omitted", "too long", "too large", "cleared]")
_CUT = re.compile(  # by a harness, not by a program
    r"<elided_chars>|<output_head>|\d characters elided|<response clipped>"
    r"|(?i:\bthe output of your (?:last command|call to \w{1,60}) was too long)"
    r"|(?i:\[(?:\.{3} ?)?(?:observation|output|content|response|result|text) truncated\b)"
    r"|(?i:(?:\.{3}|…) ?[\[(]?\d[\d,]{0,9} (?:more )?(?:lines|characters|chars|tokens|bytes)"
    r" (?:truncated|omitted|elided))|\[(?:\.{3} ?)?omitted \d+ of \d+ lines"
    r"|\AOld environment output: \(\d+ lines omitted\)|\[Old tool result content cleared\]"
    r"|(?i:\boutput too large\b)|\[truncated\]\s*\Z"
)
_CONTINUES = re.compile(
    r"(?i)\A\W{0,20}(?:this session is being continued from a previous conversation"
    r"|<condensed|\[?(?:summary|condensed) of (?:the )?(?:previous|earlier) )"
)
_REFUSED = re.compile(r"(?i)\b(?:format|tool calls?|exactly one|valid (?:action|json)|no action)\b")


class Gap(NamedTuple):
    """What cannot be relied on. `check`: its kind; `steps`: from 0; `quote`: a line of the log;
    `why`: one sentence.
    """

    check: str
    steps: tuple[int, ...]
    quote: str
    why: str


def record_gaps(trajectory: Trajectory, actions: Sequence[Action]) -> tuple[Gap, ...]:
    """What is amiss with the record of one run. Pure, never raises for what is in the log."""
    found = [*_cut(trajectory), *_score(trajectory)]
    if actions:
        found += _exchange(trajectory, actions)
    claims = claims_of(trajectory, actions)
    if claims and _readable(trajectory, actions):
        found += (
            gap(one.check, (one.claim.step,), one.claim.sentence, one.why)
            for one in broken_claims(trajectory, actions, claims)
        )
    return tuple(found)


def gap(check: str, steps: Sequence[int], quote: str, why: str) -> Gap:
    """One row, its quotation on one line and cut."""
    line = printable(" ".join(quote[: 4 * LONGEST].split()), LONGEST)
    return Gap(check, tuple(steps[:MOST_STEPS]), line, why)


def _readable(trajectory: Trajectory, actions: Sequence[Action]) -> bool:
    """Whether all that the run did stands in its log, in a form that is read."""
    continued = any(_CONTINUES.match(step.text) for step in trajectory.steps if step.role == "user")
    if continued or any(map(calls_agent, actions)):
        return False
    return unread_actions(trajectory, actions) is None


class _Exchange(NamedTuple):
    """Steps of calls that were passed over, of calls that wait at the end, and of results that
    no call asked for; the tools that ever answered (`""`: commands in the text).
    """

    missing: list[int]
    waiting: list[int]
    extra: list[int]
    answered: set[str]


def _exchanged(steps: Sequence[Step], acted: Collection[int]) -> _Exchange:
    """A result goes to the first call that has none since the last results, a late one to a call
    that was passed over. Where one result follows several calls of one message, it may be that
    of all of them, unless the log elsewhere keeps them apart. `acted`: steps with actions in the
    text.
    """
    told = _Exchange([], [], [], set())
    unsure: list[int] = []
    block: list[int] = []  # calls since the last results
    most = came = 0
    spoken = False
    for at, step in enumerate((*steps, None)):
        if step is None or step.role == "assistant":
            if came or spoken:
                passed = unsure if came == 1 and len({*block}) == 1 else told.missing
                passed += block[: len(told.waiting)]
                told.waiting.clear()
                block, came, spoken = [], 0, False
            calls = [at] * ((len(step.tool_calls) or int(at in acted)) if step else 0)
            told.waiting.extend(calls)
            block += calls
            continue
        late = told.missing if _structured(steps, told.missing) else unsure
        queue = told.waiting or late
        if step.role == "tool" or (queue and not steps[queue[0]].tool_calls):
            came += 1
            most = max(most, came)
            if queue:
                told.answered.add(_tool(steps[queue.pop(0)]))
            else:
                told.extra.append(at)
        spoken = spoken or step.role == "user"
    told.missing.extend(unsure if most > 1 else ())
    return told


def _structured(steps: Sequence[Step], calls: Sequence[int]) -> bool:
    """Whether there are calls, and they are told apart from the text."""
    return bool(calls) and bool(steps[calls[0]].tool_calls)


def _tool(step: Step) -> str:
    return step.tool_calls[0].name if step.tool_calls else ""


def _exchange(trajectory: Trajectory, actions: Sequence[Action]) -> Iterator[Gap]:
    """Calls and results that have no counterpart."""
    steps = trajectory.steps
    told = _exchanged(steps, {action.step for action in actions})
    submits = {action.step for action in actions if action.kind == "submit"}

    def owed(waiting: Sequence[int]) -> list[int]:
        """Those whose tool answers elsewhere."""
        open_calls = [at for at in dict.fromkeys(waiting) if at not in submits]
        return [at for at in open_calls if _tool(steps[at]) in told.answered]

    if missing := owed(told.missing):
        calls = plural(len(missing), "call")
        why = f"no result is recorded of {calls}, although other calls of the tool have one"
        yield gap("missing results", missing, _called(steps[missing[0]]), why)
    extra = [at for at in told.extra if not _REFUSED.search(steps[at].text[:REFUSAL])]
    if extra and any(step.tool_calls for step in steps):
        why = "a result is recorded that no recorded call asked for"
        yield gap("results without a call", extra, steps[extra[0]].text, why)
    if trajectory.end != "truncated" and (last := owed(told.waiting)):
        why = "the record ends with a call whose result is not there"
        yield gap("a call at the end without its result", last, _called(steps[last[-1]]), why)


def _called(step: Step) -> str:
    if step.tool_calls:
        return "; ".join(f"{call.name} {call.arguments[:LONGEST]}" for call in step.tool_calls[:3])
    return step.text[-LONGEST:]


def _cut(trajectory: Trajectory) -> Iterator[Gap]:
    """Outputs that the harness says it cut."""
    cut = []
    quote = ""
    for at, step in enumerate(trajectory.steps):
        if step.role != "tool":
            continue
        text = step.text[:SEARCHED]
        if any(word in text for word in _CUT_WORDS) and (found := _CUT.search(text)):
            cut.append(at)
            quote = quote or text[max(found.start() - 60, 0) : found.end() + 60]
    if cut:
        calls = plural(len(cut), "call")
        yield gap("cut outputs", cut, quote, f"the harness cut the output of {calls}")


def _score(trajectory: Trajectory) -> Iterator[Gap]:
    """A win that the run's own record speaks against, and two records that differ."""
    if said := records_that_differ(trajectory.rewards):
        why = "its files differ; the first of result.json, reward.json and reward.txt counts"
        yield gap("two records of the outcome differ", (), said, why)
    won = trajectory.outcome is not None and trajectory.outcome >= WIN
    if won and trajectory.end == "errored":
        why = "the run was scored a win, and the log says that it broke off with an error"
        yield gap("win of a run that broke off", (), trajectory.end_reason or "errored", why)
