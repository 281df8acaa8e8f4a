"""Whether a run acted in a form that nobody reads: `unread_actions`.

A run without actions is one of two things: it did nothing but talk, or its log holds
actions in a shape that is not known here. The second must never pass for the first.

1. A turn was *read* where it gave an action. It *acted unread* where it gave none and
   - holds nothing, or nothing but kinds in brackets (`[tool-call]`): parts that no
     reader knows; or
   - shows a call that was not taken (a tag, a call in JSON, a block at its end), and
     what came back is a tool's, or looks printed; or
   - was answered by a tool.
2. A turn that was answered by what looks printed acted, too, where that is the rule of
   the run: at least `FEWEST` such turns, and more than were answered in sentences.
3. The run is told where more turns acted unread than were read, or where its reader left an entry
   that it did not understand (`NOT_UNDERSTOOD`). A single answer, and
   talk in sentences, are never.
"""

import re
from collections.abc import Iterable, Sequence

from forensics.actions.action import Action
from forensics.actions.spoken import ends_with_block, looks_printed
from forensics.records import Step, Trajectory

NOT_UNDERSTOOD = "[not understood: "  # how a reader begins the text of such an entry
PARTS = "its messages hold parts of a kind that is not known"
CALLS = "its actions stand in a form that is not read"
FEWEST = 2  # turns answered by what looks printed that make it the rule
LOOKED = 20_000  # characters of a message that are looked through
_BRACKETS = re.compile(r"(?:\s{0,20}+\[[\w .:-]{1,60}\]){0,100}+\s*+\Z")
_CALL = re.compile(
    r"</(?:[\w-]{0,40}(?:tool|function|invoke|command|execute|action|call|bash|shell)[\w-]{0,40})>"
    r"|\"(?:arguments|tool|tool_name|action|action_input|function|command)\"\s*:|^Action:|<\|tool",
    re.I | re.M,
)


def unread_actions(trajectory: Trajectory, actions: Sequence[Action]) -> str | None:
    """Why what a run did cannot be told, in a fixed phrase; `None` where it can, or where
    the run did nothing but answer.
    """
    steps = trajectory.steps
    turns = [at for at, step in enumerate(steps) if step.role == "assistant"]
    tools = any(step.role == "tool" for step in steps[turns[0] :]) if turns else False
    if any(steps[at].text.startswith(NOT_UNDERSTOOD) for at in turns):
        return PARTS
    if len(turns) < 2 and not tools:
        return None
    read = {action.step for action in actions}
    unread = [(at, _answer(steps, at)) for at in turns if at not in read]
    nothing = sum(_holds_nothing(steps[at]) for at, _ in unread)
    acted = sum(_acted(steps[at], answer) for at, answer in unread)
    if not (acted or nothing or read):
        acted = _printed(answer for _, answer in unread)
    count = sum(at in read for at in turns)
    if nothing + acted <= count:
        return None
    return PARTS if nothing > acted else CALLS


def _answer(steps: Sequence[Step], at: int) -> Step | None:
    """What came back next, `None` where the policy went on or the run ended."""
    after = steps[at + 1] if at + 1 < len(steps) else None
    return None if after is None or after.role == "assistant" else after


def _holds_nothing(step: Step) -> bool:
    return not step.tool_calls and _BRACKETS.match(step.text) is not None


def _acted(step: Step, answer: Step | None) -> bool:
    if answer is None or _holds_nothing(step):
        return False
    if answer.role == "tool":
        return True
    called = bool(step.tool_calls) or ends_with_block(step.text)
    called = called or _CALL.search(step.text[:LOOKED]) is not None
    return called and looks_printed(answer.text)


def _printed(answers: Iterable[Step | None]) -> int:
    """How many turns were answered by what looks printed, where that is the rule."""
    texts = [answer.text for answer in answers if answer is not None and answer.text.strip()]
    printed = sum(map(looks_printed, texts))
    return printed if printed >= FEWEST and 2 * printed > len(texts) else 0
