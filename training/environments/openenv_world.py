"""`openenv`: an environment that an OpenEnv server holds, one WebSocket session an episode.

    --env openenv --env-option url=http://127.0.0.1:8000 --env-option action=message

Protocol of openenv 0.10 (`/ws`): `{"type": "reset", "data": {"seed": ...}}`, `{"type": "step",
"data": {ACTION}}`; answers hold `observation`, `reward`, `done`. (Its plain `/reset` and `/step`
make a new environment with each request, so they hold no episode.) `action` names the field of the
action that the policy's text fills, `observation` the field that is read (default: the only text).
What a channel's `without` says goes into the data of `reset`; `url` in it names another server. The
world's identity holds the address, as nothing else of the server is known. A session cannot be
copied: it is replayed.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from forensics.errors import OutsideFailure, UserError
from training.environments.foreign_world import SHARED, ForeignWorld, Said, task_seed

SECONDS: Final = 60.0  # for an answer


class OpenEnvWorld(ForeignWorld):
    """The environment (see the module's text)."""

    name = "openenv"
    defaults = {"url": "", "action": "message", "observation": "", **SHARED}

    def __init__(self, **options: str) -> None:
        super().__init__(**options)
        if not self.chosen["url"].startswith(("http://", "https://")):
            raise UserError(
                "openenv needs the address of a server; give it with --env-option"
                " url=http://127.0.0.1:8000"
            )

    def open_session(self, arguments: Mapping[str, Any]) -> "OpenEnvSession":
        """A connection of its own. Raises `OutsideFailure` where nobody answers."""
        given = dict(arguments)
        url = given.pop("url", self.chosen["url"])
        return OpenEnvSession(
            connect(url), given, self.chosen["action"], self.chosen["observation"]
        )


def connect(url: str) -> Any:
    """A WebSocket to an OpenEnv server."""
    try:
        from websockets.sync.client import connect as open_socket
    except ImportError:
        raise UserError(
            "the environment openenv needs the package websockets; install it with `pip install"
            " websockets`"
        ) from None
    address = f"ws{url.removeprefix('http').rstrip('/')}/ws"
    try:
        return open_socket(address, proxy=None, max_size=None, open_timeout=SECONDS)
    except Exception as error:
        raise OutsideFailure(
            f"no OpenEnv server answers at {url} ({error}); start it, or mend --env-option url="
        ) from error


class OpenEnvSession:
    """One episode on a server. `data`: what goes to `reset` beside the seed."""

    def __init__(self, socket: Any, data: Mapping[str, Any], action: str, shown: str) -> None:
        self.socket, self.data, self.action, self.shown = socket, data, action, shown

    def start(self, task: str, seed: int) -> Said:
        return self._asked("reset", {"seed": task_seed(task, seed), **self.data})

    def act(self, action: str) -> Said:
        said = self._asked("step", {self.action: action})
        if said.terminated:
            self._left()
        return said

    def __deepcopy__(self, memo: Any) -> "OpenEnvSession":
        raise TypeError("a session on a server cannot be copied")

    def __del__(self) -> None:
        self._left()

    def _left(self) -> None:
        with suppress(Exception):  # the server may have gone first
            self.socket.send(json.dumps({"type": "close"}))
            self.socket.recv(timeout=1)  # it closes, which is told by raising
        self.socket.close()

    def _asked(self, kind: str, data: Mapping[str, Any]) -> Said:
        try:
            self.socket.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(self.socket.recv(timeout=SECONDS))
        except Exception as error:
            raise OutsideFailure(
                f"the OpenEnv server gave no answer to {kind} ({type(error).__name__}: {error});"
                " mend it and run again with --resume"
            ) from error
        told = answer.get("data", {})
        if answer.get("type") == "error":
            raise UserError(
                f"the OpenEnv server refuses {kind} ({told.get('code')}: {told.get('message')});"
                " its /schema names the field for --env-option action=, and it must hold as many"
                " sessions at once as episodes run"
            )
        reward = told.get("reward")
        return Said(
            text=self._text(told.get("observation", {})),
            reward=None if reward is None else float(reward),
            terminated=bool(told.get("done")),
        )

    def _text(self, observation: Mapping[str, Any]) -> str:
        texts = [key for key, value in observation.items() if isinstance(value, str)]
        name = self.shown or (texts[0] if len(texts) == 1 else "")
        if not isinstance(observation.get(name), str):
            told = ", ".join(observation) or "nothing"
            raise UserError(
                f"the observation of the OpenEnv server has the fields {told}; name the text to"
                " read with --env-option observation="
            )
        return str(observation[name])
