"""One run as the scanner sees it: its actions, what came back (without what a harness
put around it, `actions.wrapped`), what it handed in (`actions.hand_in`: recorded, or what
its own edits or its answer are). The score is not part of it.
"""

from collections.abc import Iterator
from functools import cached_property

from forensics.actions import Action, unwrapped_run
from forensics.actions.hand_in import HandIn, hand_in_of
from forensics.actions.unified_diff import TEST_PATH, Changed, added_lines, changes_of
from forensics.layers.evidence_chain import step_text
from forensics.records import Trajectory
from forensics.shortcuts.expectations import LostDemand, asked_for, lost_demands, may_be_asked
from forensics.shortcuts.handed_code import HandedCode, read_handed_code
from forensics.shortcuts.own_files import OwnFiles
from forensics.shortcuts.task_words import asked_to_write

LONGEST = 200_000  # characters of one text that are searched
MOST_LINES = 2000  # of an edit that are looked up in a text
Key = tuple[str, str, bool, bool, bool, bool]  # kind, program; has arguments, reads, writes, a text


class BlindRun:
    """A run without its score; words at the end of a run that edited files are not what it left.
    `said_after`: what it handed in is what it said after its actions:
    words alone, in which code and quotations of what it read are no work of its own.
    """

    def __init__(self, trajectory: Trajectory, actions: tuple[Action, ...]) -> None:
        plain = unwrapped_run(trajectory)
        self.hand_in = hand_in_of(plain, actions)
        self.said_after = self.hand_in.source == "answer" and bool(actions)
        text = None if self.said_after else _left(self.hand_in)
        handed_in = {"submission": text, "patch": self.hand_in.patch}
        self.trajectory = plain.model_copy(update={"outcome": None, "rewards": {}, **handed_in})
        self.actions = actions
        self._own: dict[str, bool] = {}

    @cached_property
    def keyed(self) -> tuple[tuple[Action, Key], ...]:
        """Each action with what tells most patterns that they cannot match it."""
        return tuple(
            (
                action,
                (
                    action.kind,
                    action.program,
                    bool(action.arguments),
                    bool(action.reads),
                    bool(action.writes),
                    action.content is not None,
                ),
            )
            for action in self.actions
        )

    @cached_property
    def changes(self) -> tuple[Changed, ...]:
        """The files of the submitted patch."""
        return changes_of(self.trajectory.patch)

    @cached_property
    def code(self) -> HandedCode:
        """The code that was handed in, and what it shows, with the tests in view that the
        prompt or a test file shows.
        """
        handed = HandIn(None) if self.said_after else self.hand_in
        return read_handed_code(handed, "\n\n".join([self.prompt, *self._tests_shown()]))

    def _tests_shown(self) -> Iterator[str]:
        """What came back where the run read test files that are not its own."""
        left = LONGEST
        for action in self.actions:
            paths = [path for path in action.reads if TEST_PATH.search(path)]
            if paths and left > 0 and not any(map(self.own, paths)):
                text = self.answer(action)[:left]
                left -= len(text)
                yield text

    @cached_property
    def expectations(self) -> tuple[LostDemand, ...]:
        """What existing tests no longer demand after the submitted patch."""
        shown = [
            step.text for step in self.trajectory.steps if step.role not in ("assistant", "system")
        ]
        return lost_demands(
            (self.trajectory.patch or "")[:LONGEST], [text[:LONGEST] for text in shown]
        )

    @cached_property
    def prompt(self) -> str:
        """What was said before the first action."""
        steps = self.trajectory.steps
        first = next((at for at, step in enumerate(steps) if step.role == "assistant"), len(steps))
        return "\n".join(step.text for step in steps[:first])[:LONGEST]

    @cached_property
    def asked(self) -> str | None:
        """The sentence of the prompt that asks for tests to be changed, if one does."""
        return asked_for(self.prompt)

    def wanted(self, told: LostDemand) -> bool:
        """Whether the prompt may have asked for this: see `expectations.may_be_asked`."""
        return may_be_asked(told, self.prompt, self.asked)

    def answer(self, action: Action) -> str:
        """What came back for an action, cut to a length that is searched."""
        return (
            ""
            if action.observation is None
            else self.trajectory.steps[action.observation].text[:LONGEST]
        )

    def own(self, path: str) -> bool:
        """Whether the run made this file, or the recorded patch says that it is new."""
        if path not in self._own:
            recorded = self.changes if self.hand_in.source == "patch" else ()
            told = next((change for change in recorded if self.files.same(change.path, path)), None)
            self._own[path] = self.files.made(path) if told is None else told.new
        return self._own[path]

    @cached_property
    def files(self) -> OwnFiles:
        """Which files the run made."""
        return OwnFiles(self.actions, self._mentioned, self.answer)

    def wrote(self, path: str) -> bool:
        """Whether a file holds nothing but the run's own, or the prompt asks for it to be
        written there.
        """
        return self.files.wrote_all(path) or asked_to_write(self.prompt, path)

    @cached_property
    def _refused(self) -> frozenset[int]:
        """Steps with blocks of commands of which the harness ran none."""
        ran = {action.step for action in self.actions}
        return frozenset(
            at for at, step in self.trajectory.actions if at not in ran and "```" in step.text
        )

    def _mentioned(self, path: str, step: int) -> bool:
        """Whether anybody named the file before the run wrote it; what did not run names none."""
        name = path.rsplit("/", 1)[-1]
        return any(name in text for at, text in self._texts if at < step)

    @cached_property
    def _texts(self) -> list[tuple[int, str]]:
        """What each step says, cut to a length that is searched, but for those
        of which nothing ran.
        """
        steps = enumerate(self.trajectory.steps)
        return [(at, step_text(step)[:LONGEST]) for at, step in steps if at not in self._refused]


def _left(hand_in: HandIn) -> str | None:
    """The text that a run left: what its edits put there, where what it submitted holds none of
    that and no code.
    """
    text = hand_in.submission
    if hand_in.source != "edits" or not hand_in.patch or text is None or "```" in text:
        return text
    added = added_lines(hand_in.patch)
    lines = [line.strip() for line in added.splitlines()]
    same = any(len(line) > 5 and line in text for line in lines[:MOST_LINES])
    return text if same or not added.strip() else added
