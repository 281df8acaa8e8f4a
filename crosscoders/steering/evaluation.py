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
from crosscoders.steering.edits import SIDES, Change, Side
from crosscoders.steering.interventions import intervention
from crosscoders.steering.outcomes import Outcomes, from_plain, joined, outcomes_of
from crosscoders.steering.positions import Position, Steps
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
        key = content_hash(self._request(condition))
        parts = [tuple(tasks[i : i + TASKS_PER_PART]) for i in range(0, len(tasks), TASKS_PER_PART)]
        return joined([self._part(condition, key, part) for part in parts])

    def _part(self, condition: Condition, key: str, tasks: tuple[str, ...]) -> Outcomes:
        path = self.folder / FOLDER / f"{condition.role}-{key}-{content_hash(list(tasks), 8)}.json"
        if not path.exists():
            write_json(path, self._played(condition, tasks).plain())
        return from_plain(read_json(path))

    def _played(self, condition: Condition, tasks: tuple[str, ...]) -> Outcomes:
        seed = int(content_hash([self.seed, condition.acting], 15), 16)
        policy, changes = self._steered(condition)
        runs = policy.play(
            self.environment, tasks, self.samples, self.settings, seed, interventions=changes
        )
        return outcomes_of(runs, tasks, self.environment.channels)

    def _steered(self, condition: Condition) -> tuple[Policy, list[Any]]:
        """The policy to run, with the other one reading along where the change needs it."""
        policy, change = self.policy(condition.acting), condition.change
        if change is None:
            return policy, []
        seen = Seen()
        companion = (
            self.policy(SIDES[1 - SIDES.index(condition.acting)]) if change.needs_other else None
        )
        made = intervention(
            change.to(policy.model.device),
            site=self.site,
            name=condition.role,
            position=self.position,
            seen=seen,
            steps=self.steps(),
        )
        return policy_alongside(policy, companion, self.site, seen), [made]

    def _request(self, condition: Condition) -> dict[str, Any]:
        steered = (
            {}
            if condition.change is None
            else {
                "other": self.policy(SIDES[1 - SIDES.index(condition.acting)]).identity,
                "site": self.site,
                "position": self.position.name,
                "identity": self.identity,
            }
        )
        return {
            "condition": condition.content(),
            "policy": self.policy(condition.acting).identity,
            "environment": environment_key(self.environment),
            "samples": self.samples,
            "settings": self.settings.content(),
            "seed": self.seed,
            **steered,
        }
