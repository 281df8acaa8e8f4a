"""What a run leaves behind: the text and the patch that its score was about.

1. The recorded patch, where the log has one.
2. Else what the run's own edits add up to (`edits`), as a patch: what Edit, Write,
   `apply_patch`, here documents, `sed -i` and programs in Python put into files, in order,
   less what was taken back. A file that was shown before gives the lines around an edit. Beside it
   stands the text that was submitted, where the log records one.
3. Else the submitted text; else the last answer without its visible reasoning: of a run without
   any action, or of one whose actions edit no file and submit nothing (it searched, and says
   what it found). What a run says beside its edits is no hand-in.

Our own environments record what was handed in; nothing is derived for them. The lines of
a derived patch are the run's own, its line numbers are not the file's.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from forensics.actions.action import Action
from forensics.actions.edits import edited_patch
from forensics.actions.unified_diff import added_lines
from forensics.records import Trajectory

Source = Literal["patch", "edits", "submission", "answer"]
_THOUGHT_ENDS = re.compile(r"\A.*?</think(?:ing)?>", re.S)


class HandIn(NamedTuple):
    """`source`: where it is from (`None`: the log shows none). `lost`: why the edits are not
    all there, `None` where they are. `overwritten`: files that were there, and were written
    whole though nobody saw them. `taken_back`: files whose edits are gone.
    """

    source: Source | None
    submission: str | None = None
    patch: str | None = None
    lost: str | None = None
    overwritten: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()


def hand_in_of(trajectory: Trajectory, actions: Sequence[Action]) -> HandIn:
    """What a run handed in. Pure, never raises for what is in the log."""
    submission = trajectory.submission
    if trajectory.patch is not None:
        return HandIn("patch", submission, trajectory.patch)
    if any(step.kinds for step in trajectory.steps):
        return HandIn("submission" if submission is not None else None, submission)
    edited = edited_patch(trajectory.steps, actions)
    if edited.patch:
        text = added_lines(edited.patch) if submission is None else submission
        return HandIn("edits", text, edited.patch, *edited[1:])
    if submission is not None:
        return HandIn("submission", submission, None, edited.lost, (), edited.taken_back)
    answer = said_after(trajectory, actions) if actions else answer_of(trajectory)
    if answer is not None and not edited.lost and not edited.taken_back:
        return HandIn("answer", answer)
    return HandIn(None, None, None, edited.lost, (), edited.taken_back)


def answer_of(trajectory: Trajectory) -> str | None:
    """The last answer of a run in which nothing but messages passed, without its visible
    reasoning; `None` where tools were called, or nothing was said.
    """
    said_last = None
    for step in trajectory.steps:
        if step.role == "tool" or step.tool_calls:
            return None
        said_last = step.text if step.role == "assistant" else said_last
    return None if said_last is None else said(said_last)


def said_after(trajectory: Trajectory, actions: Sequence[Action]) -> str | None:
    """The last message of a run that acted, where it took no action in it, and wrote no file and
    submitted nothing before; `None` where it did.
    """
    last, step = max(trajectory.actions, default=(0, None), key=lambda one: one[0])
    if step is None or step.tool_calls or any(one.step >= last for one in actions):
        return None
    if any(one.writes or one.kind in ("edit", "submit") for one in actions):
        return None
    if any(later.role == "tool" for later in trajectory.steps[last:]):
        return None
    return said(step.text)


def said(text: str) -> str:
    """A message without the reasoning that it starts with (whose opening tag may stand in the
    prompt). Where nothing else was said, or the reasoning never ends, it stays: whoever scored
    the message saw nothing else; so does what holds the only code.
    """
    ends = _THOUGHT_ENDS.match(text) if "</think" in text else None
    if ends is None or text.lstrip()[:1] in ("{", "["):  # in JSON the tag stands in a text of it
        return text
    rest = text[ends.end() :]
    inside = ends[0].count("```") % 2 and rest.count("```") % 2
    alone = "```" in ends[0] and "```" not in rest
    if not text.lstrip().startswith("<think") and (inside or alone):
        return text
    rest = text[: max(text.find("<think"), 0)] + rest
    return rest if rest.strip() else text
