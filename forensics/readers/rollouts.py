"""What rollouts of trainers have in common: who made them, which of the rewards counts, how often a task came."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forensics.readers.documents import message_steps, prompt_hash
from forensics.readers.scores import number, share
from forensics.readers.turns import completion_steps, prompt_steps
from forensics.records import Step

COUNTS = ("outcome", "acc", "accuracy", "correct", "correctness", "solved", "success", "resolved")
ENDINGS = ("", "_reward", "_reward_func", "_func")


@dataclass
class Seen:
    """How often a task came so far in a file, by step of the training: the `sample` of a run."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def sample(self, policy: str, task: str) -> int:
        self.counts[policy, task] = count = self.counts.get((policy, task), 0) + 1
        return count - 1


def exchange(prompt: Any, completion: Any) -> tuple[tuple[Step, ...], str]:
    """The steps of a prompt and its completion, each a text or messages, and the name of the task."""
    asked = prompt_steps(prompt) if isinstance(prompt, str) else message_steps(prompt)
    answered = completion_steps(completion) if isinstance(completion, str) else message_steps(completion)
    return (*asked, *answered), prompt_hash(asked)


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Those values that are numbers, or missing ones (`None`), by name."""
    kinds = (bool, int, float, type(None))
    return {str(name): number(value) for name, value in values.items() if isinstance(value, kinds)}


def named_outcome(rewards: Mapping[str, float | None]) -> float | None:
    """The reward that has the name of a success (`COUNTS`), where it lies in [0, 1]."""
    bare = {name.lower(): value for name, value in rewards.items()}
    named = [share(bare[name + ending]) for name in COUNTS for ending in ENDINGS if name + ending in bare]
    return next((value for value in named if value is not None), None)


def outcome_of(rewards: Mapping[str, float | None]) -> float | None:
    """The reward that is named as a success, else the only one; in [0, 1], else `None`."""
    only = share(next(iter(rewards.values()))) if len(rewards) == 1 else None
    found = named_outcome(rewards)
    return only if found is None else found
