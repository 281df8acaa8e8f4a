"""Aliases that a run made itself: `git config alias.peek show`, `alias g='git show'`.

1. What an alias stands for is remembered where the run sets it.
2. Where it is called, its text is put in its place with the words that follow, and read as
   a command line; what stands after `!` is one already.
"""

import shlex

from forensics.actions.action import Action
from forensics.actions.command_lines import actions_of_line

MOST = 200  # aliases of a run


class Aliases:
    """The aliases of one run."""

    def __init__(self) -> None:
        self._git: dict[str, str] = {}
        self._shell: dict[str, str] = {}

    def undone(self, action: Action, directory: str | None, root: str | None) -> list[Action]:
        """The actions that an action stands for: mostly itself."""
        self._learn(action)
        line = self._line(action)
        told = actions_of_line(line, directory, root).actions if line else ()
        if not told:
            return [action]
        last = told[-1]._replace(writes=(*told[-1].writes, *action.writes))
        return [*told[:-1], last]

    def _learn(self, action: Action) -> None:
        if action.program == "alias" and len(self._shell) < MOST:
            pairs = (word.partition("=") for word in action.arguments if "=" in word)
            self._shell.update(
                {name: text for name, _, text in pairs if name != text.split(" ")[0]}
            )
        words = [
            word for word in action.arguments[1:] if not word.startswith("-") and word != "set"
        ]
        if action.program == "git" and action.arguments[:1] == ("config",) and len(words) == 2:
            place, name = words[0][:6], words[0][6:]
            if place == "alias." and name and len(self._git) < MOST:
                self._git[name] = words[1]

    def _line(self, action: Action) -> str | None:
        """The command line that an alias stands for, `None` where there is none."""
        if action.program == "git" and action.arguments and action.arguments[0] in self._git:
            text, rest = self._git[action.arguments[0]], action.arguments[1:]
            text = text[1:] if text.startswith("!") else f"git {text}"
        elif action.program in self._shell:
            text, rest = self._shell[action.program], action.arguments
        else:
            return None
        return " ".join([text, *map(shlex.quote, rest)])
