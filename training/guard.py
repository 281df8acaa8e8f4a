"""An environment that may hang: a step that takes longer than its limit ends the episode as errored.

The hanging call itself cannot be killed from outside; its thread is left behind as a daemon, and the run goes on.
"""

import queue
import threading
from typing import Any

from forensics.protocols import Environment


class Guarded:
    """`environment` with a limit of `seconds` on each `reset` and `step`; everything else is passed through."""

    def __init__(self, environment: Environment, seconds: float) -> None:
        self._environment, self._seconds = environment, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def spawn(self) -> "Guarded":
        return Guarded(self._environment.spawn(), self._seconds)

    def without(self, *channels: str) -> "Guarded":
        return Guarded(self._environment.without(*channels), self._seconds)

    def reset(self, task: str, seed: int) -> Any:
        return self._within("reset", self._environment.reset, task, seed)

    def step(self, action: str) -> Any:
        return self._within("step", self._environment.step, action)

    def _within(self, what: str, call: Any, *arguments: Any) -> Any:
        answers: queue.Queue[tuple[bool, Any]] = queue.Queue()

        def work() -> None:
            try:
                answers.put((True, call(*arguments)))
            except BaseException as error:  # handed over to the caller below
                answers.put((False, error))

        threading.Thread(target=work, daemon=True).start()
        try:
            good, answer = answers.get(timeout=self._seconds)
        except queue.Empty:
            raise TimeoutError(f"{what} took longer than {self._seconds:g} s") from None
        if not good:
            raise answer
        return answer
