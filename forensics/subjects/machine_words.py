"""What an agent tells of this machine, taken out of its runs: keys, and where things lie here.

1. An agent may print its environment, or the folder that it works in. Each such text is replaced.
2. A token id tells its text: where a run shows a secret, its answers alone keep their tokens, and
   of these only the ones that do not repeat it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forensics.records import Step, Trajectory

LEAST: Final = 8  # letters; a shorter text would be found within words


@dataclass(frozen=True)
class MachineWords:
    """`secrets`, `places`: a text, and what stands for it."""

    secrets: Mapping[str, str]
    places: Mapping[str, str]

    def taken_out(self, run: Trajectory) -> Trajectory:
        """The run without them."""
        shown = [any(one in _all(step) for one in self._known(self.secrets)) for step in run.steps]
        steps = [self._told(step) for step in run.steps]
        if any(shown):
            steps = [
                _bare(step) if here or step.role != "assistant" else step
                for step, here in zip(steps, shown, strict=True)
            ]
        handed = {name: self.text(getattr(run, name) or "") for name in ("submission", "patch")}
        handed = {name: text for name, text in handed.items() if text}
        return run.model_copy(update={"steps": tuple(steps), **handed})

    def text(self, text: str) -> str:
        """A text without them, the longest ones first."""
        known = self._known({**self.places, **self.secrets})
        for one in sorted(known, key=lambda one: (-len(one), one)):
            text = text.replace(one, known[one])
        return text

    def _told(self, step: Step) -> Step:
        calls = [
            one.model_copy(update={"arguments": self.text(one.arguments)})
            for one in step.tool_calls
        ]
        return step.model_copy(update={"text": self.text(step.text), "tool_calls": tuple(calls)})

    @staticmethod
    def _known(words: Mapping[str, str]) -> dict[str, str]:
        return {one: name for one, name in words.items() if len(one) >= LEAST}


def _all(step: Step) -> str:
    return "\n".join([step.text, *(call.arguments for call in step.tool_calls)])


def _bare(step: Step) -> Step:
    nothing: dict[str, Any] = dict.fromkeys(("token_ids", "sampled", "logprobs"))
    return step.model_copy(update=nothing)
