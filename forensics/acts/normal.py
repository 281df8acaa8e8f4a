"""The normal form of a run's actions: `acts_of`.

1. How the run's messages hold actions is told once (`messages`), and where the work has its root (`root_of`).
2. Step by step, each action becomes acts (`line`, `tools`, `editors`); the working directory goes on where the harness
   keeps one shell, and starts anew where it does not; where the log shows it, the log is believed.
3. Answers and exit codes are put beside them (`answers`). The exit code is that of the whole command line.
4. A script that the run wrote itself is read when it is run: what it does is done then.
"""

import re
from typing import Final

from forensics.acts.act import Act
from forensics.acts.answers import answers_of, directory_shown, exit_code, open_file_shown
from forensics.acts.editors import viewer_act, word_act
from forensics.acts.line import acts_of_line, script_of, with_effects
from forensics.acts.messages import Call, Habit, calls_of, habit_of
from forensics.acts.places import placed
from forensics.acts.programs import effects_of
from forensics.acts.tools import LASTING, act_of_call, command_line, program_text
from forensics.records import Trajectory

_ROOT = re.compile(
    r"<uploaded_files>\s*(/[\w./-]{1,400})|(/[\w./-]{1,400})[ `'\"]*\((?:this is )?the working directory"
    r"|working directory(?: is|:|,)?[ `'\"]*(/[\w./-]{1,400})"
)
_ROOT_MARKS: Final = ("<uploaded_files>", "working directory")  # each alternative holds one of them
_MOVED = re.compile(r"\bcd[ \t]+(/[\w./-]+)")
_NO_ROOT: Final = re.compile(r"/|/(?:tmp|root|home|usr|etc|var|opt|dev|proc|sys|bin|mnt)(?:/.*)?")
_PROMPTED: Final = 60_000
MOST_SCRIPTS: Final = 20  # acts of one step that are looked up as scripts


def acts_of(trajectory: Trajectory) -> tuple[Act, ...]:
    """Every act of a run, in order. Never raises for what is in the log."""
    run = _Run(trajectory)
    for at, _ in trajectory.actions:
        run.step(at)
    return tuple(run.acts)


def root_of(trajectory: Trajectory) -> str | None:
    """The folder of the work, as far as the log tells: by a frame, by the prompt, or where the first `cd` goes."""
    moved = None
    for step in trajectory.steps:
        shown = directory_shown(step.text) if step.role != "assistant" else None
        if shown and not _NO_ROOT.fullmatch(shown):
            return shown.rstrip("/")
        if step.role in ("system", "user") and (found := _root_named(step.text[:_PROMPTED])):
            return next(group for group in found.groups() if group).rstrip("/.") or None
        if moved is None and step.role == "assistant":
            text = "\n".join([step.text, *(call.arguments for call in step.tool_calls)])[:_PROMPTED]
            moved = next((path for path in _MOVED.findall(text) if not _NO_ROOT.fullmatch(path)), None)
    return moved.rstrip("/.") if moved else None


def _root_named(text: str) -> re.Match[str] | None:
    """Where a prompt names the root; a quick look spares most texts the pattern."""
    return _ROOT.search(text) if any(mark in text for mark in _ROOT_MARKS) else None


class _Run:
    """One pass over a run: where its shell stands, which file its editor holds, which files it wrote."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.acts: list[Act] = []
        self._steps = trajectory.steps
        self._habit: Habit = habit_of(trajectory)
        self._root = root_of(trajectory)
        self._directory: str | None = ""
        self._opened: str | None = None
        self._wrote: dict[str, str] = {}

    def step(self, at: int) -> None:
        answers = answers_of(self._steps, at)
        came_back = self._steps[answers[0]].text if answers else None
        calls = calls_of(self._steps[at], self._habit, came_back)
        for number, call in enumerate(calls):
            answer = answers[min(number, len(answers) - 1)] if answers else None
            shown = self._steps[answer].text if answer is not None else ""
            code = exit_code(shown) if answer is not None and not self._habit.language else None
            for act in self._ran(self._acts(call)):
                self.acts.append(act.answered(at, answer, code))
            self._look(shown)

    def _look(self, shown: str) -> None:
        """Believe what the harness shows of itself."""
        if (directory := directory_shown(shown)) is not None:
            self._directory = directory
        if self._habit.frame:
            self._opened = open_file_shown(shown) or self._opened

    def _acts(self, call: Call) -> list[Act]:
        if self._habit.language and call.text is not None:
            return [word_act(call.text)]
        line = command_line(call.name, call.arguments)
        if line is not None:
            return self._line(call, line)
        program = program_text(call.name, call.arguments)
        if program is not None:
            act = Act(step=0, kind="command", program="python", arguments=("-c",), text=program, wrote=program)
            return with_effects(act, effects_of(program), self._directory, self._root)
        act = act_of_call(call.name, call.arguments, self._directory, self._root, self._opened)
        self._opened = next(iter(act.writes or act.reads), self._opened)
        return [act]

    def _line(self, call: Call, line: str) -> list[Act]:
        viewed = viewer_act(line, self._directory, self._root, self._opened) if self._habit.frame else None
        if viewed is not None:
            self._opened = next(iter(viewed.writes or viewed.reads), self._opened)
            return [viewed]
        told = acts_of_line(line, self._directory, self._root)
        if self._habit.frame or LASTING.fullmatch(call.name):
            self._directory = told.directory
        return [self._own(act) for act in told.acts]

    def _own(self, act: Act) -> Act:
        """A command that the harness added to its shell."""
        if act.program == "submit":
            return act._replace(kind="submit")
        if act.program in ("edit", "insert") and self._habit.frame and self._opened and act.arguments:
            writes = (placed(self._directory, self._opened, self._root),)
            return act._replace(kind="edit", writes=writes, wrote=act.arguments[-1])
        return act

    def _ran(self, acts: list[Act]) -> list[Act]:
        """Put what own scripts do beside the acts that run them, and remember what was written."""
        found: list[Act] = []
        for act in acts:
            script = self._wrote.get(script_of(act) or "") if len(found) < MOST_SCRIPTS * 10 else None
            if script is None:
                found.append(act)
            elif act.program == "python" or (script_of(act) or "").endswith(".py"):
                found += with_effects(act, effects_of(script), self._directory, self._root)
            else:
                found += [act, *acts_of_line(script, self._directory, self._root).acts]
            if act.wrote is not None and len(act.writes) == 1:
                self._wrote[act.writes[0]] = act.wrote
        return found
