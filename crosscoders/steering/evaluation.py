"""Policies acting in their world under interventions, each part stored when it
is done.

Every condition of one policy draws from the same random streams, task by task;
the two policies draw from different ones. Results are kept by content address
in parts of a few tasks, so that a run that was killed goes on, and a control
that two questions share is played once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from crosscoders.steering.alongside import Seen, policy_alongside
from crosscoders.steering.edits import Change, Side, other_side
from crosscoders.steering.interventions import Position, Steps, intervention
from crosscoders.steering.outcomes import Outcomes, from_plain, joined, outcomes_of
from forensics.case import environment_key
from forensics.progress import Progress
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import content_hash
from forensics.records.files import read_json, write_json

TASKS_PER_PART: Final = 64
FOLDER: Final = "steering"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way of running one policy. `change`: `None` is unsteered. `strength`,
    `features`, `draw` (which of several random controls), `directions` (of a
    subspace) and `dictionary` (its hash) say which change it is.
    """

    role: str
    acting: Side
    change: Change | None = None
    mode: str | None = None
    strength: float | None = None
    features: tuple[int, ...] = ()
    draw: int | None = None
    directions: int | None = None
    dictionary: str | None = None

    def content(self) -> dict[str, Any]:
        """What identifies it."""
        return {key: value for key, value in vars(self).items() if key != "change"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Two policies, a world, and how often it is played. `identity`: whatever
    else decides a change, hashed.
    """

    before: Policy
    after: Policy
    environment: Environment
    site: str
    position: Position
    settings: SamplingSettings
    samples: int
    seed: int
    folder: Path
    identity: str = ""
    progress: Progress = field(default=lambda what, done, of: None)

    def policy(self, side: Side) -> Policy:
        return self.before if side == "before" else self.after

    def steps(self) -> Steps:
        """How tokens are read as actions in this world."""
        renderer = self.after.rendered_for(self.environment).renderer
        return Steps(
            kinds=lambda ids: self.environment.kinds(renderer.action_text(ids)),
            stops=renderer.stops,
            most=self.settings.max_turn_tokens,
        )

    def play(self, condition: Condition, tasks: Sequence[str]) -> Outcomes:
        """The outcomes of a condition on these tasks, from the folder where they are there."""
        acting, change = self.policy(condition.acting), condition.change
        other = self.policy(other_side(condition.acting))
        request = {
            "condition": condition.content(),
            "policy": acting.identity,
            "environment": environment_key(self.environment),
            "samples": self.samples,
            "settings": self.settings.content(),
            "seed": self.seed,
        }
        if change is not None:
            request |= {
                "other": other.identity,
                "site": self.site,
                "position": self.position.name,
                "identity": self.identity,
            }
        outcomes = []
        for first in range(0, len(tasks), TASKS_PER_PART):
            part = list(tasks[first : first + TASKS_PER_PART])
            name = f"{condition.role}-{content_hash(request)}-{content_hash(part, 8)}.json"
            path = self.folder / FOLDER / name
            if not path.exists():
                write_json(path, self._played(condition, part).plain())
            outcomes.append(from_plain(read_json(path)))
        return joined(outcomes)

    def _played(self, condition: Condition, tasks: Sequence[str]) -> Outcomes:
        """Run the policy, with the other one reading along where the change needs it."""
        policy, change, steered = self.policy(condition.acting), condition.change, []
        if change is not None:
            seen = Seen()
            companion = self.policy(other_side(condition.acting)) if change.needs_other else None
            steered.append(
                intervention(
                    change.to(policy.model.device),
                    site=self.site,
                    name=condition.role,
                    position=self.position,
                    seen=seen,
                    steps=self.steps(),
                )
            )
            policy = policy_alongside(policy, companion, self.site, seen)
        seed = int(content_hash([self.seed, condition.acting], 15), 16)
        runs = policy.play(
            self.environment, tasks, self.samples, self.settings, seed, interventions=steered
        )
        return outcomes_of(runs, tasks, self.environment.channels)
