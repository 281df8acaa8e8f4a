"""A step's rollouts: prompts, episodes, rewards, groups; dropped groups refilled within bounds.

What breaks is handled as the recipe says: an episode that the environment broke (it raised, or hung beyond its limit)
has no reward and takes no part, or stops the run; so does a broken reward (`training.scoring`). A step that has fewer
prompts than it should, or nothing to train on, is warned of once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forensics.errors import UserError
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from training.advantages import step_advantages
from training.groups import Curriculum, Judged, VarianceFilter, judge
from training.objective import Objective
from training.parallel import Process
from training.recipe import GrpoSection
from training.rewards import Rewards
from training.scoring import RewardScorer


@dataclass(frozen=True, kw_only=True)
class Collector:
    """What a run draws its steps from. `variance` and `curriculum` carry state from step to step.

    Raises `UserError` where all rewards weigh 0, so that no run could learn from them.
    """

    policy: HuggingFacePolicy
    environment: Environment
    settings: SamplingSettings
    rewards: Rewards
    config: GrpoSection
    objective: Objective
    curriculum: Curriculum
    variance: VarianceFilter | None
    seed: int
    process: Process

    def __post_init__(self) -> None:
        if not any(weight for _, weight in self.rewards.values()) and not self._learns_without_rewards:
            raise UserError("all rewards have the weight 0, so nothing could be learned; give one another weight")

    @cached_property
    def scorer(self) -> RewardScorer:
        return RewardScorer(rewards=self.rewards, config=self.config, objective=self.objective)

    @property
    def _learns_without_rewards(self) -> bool:
        """From the length penalty, or from the KL and entropy terms of groups without a spread."""
        return bool(self.objective.overlong_buffer) or self.config.filter == "none"

    def collect(self, step: int) -> list[Judged]:
        """All groups of a step, dropped ones included, in the order they were drawn; the same on every process.

        No task is drawn twice within a step.
        """
        config = self.config
        kept: list[Judged] = []
        for turn in range(1 + config.refill):
            missing = config.groups - sum(group.dropped is None for group in kept)
            if missing <= 0:
                break
            root = self._root(step, turn)
            tasks = self.curriculum.draw(self.environment, missing, root, {group.played.task for group in kept})
            if not turn:
                self._require(tasks)
            if not tasks:
                break
            kept += self._play(tasks, step, turn, root)
        self.curriculum.learn([group.played for group in kept])
        self._warn_of_nothing(step, kept)
        return kept

    def _root(self, step: int, turn: int) -> int:
        key = [self.seed, step, turn] if turn else [self.seed, step]
        return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)

    def _require(self, tasks: Sequence[str]) -> None:
        if not tasks:
            raise UserError("the environment gave no training task; give one with tasks in its split \"train\"")
        if len(tasks) < self.config.groups:
            self._warn("tasks", f"the environment has {len(tasks)} training tasks for groups = {self.config.groups}, "
                       f"so every step plays {len(tasks)} groups")

    def _play(self, tasks: Sequence[str], step: int, turn: int, root: int) -> list[Judged]:
        mine = self.process.share(tasks)
        samples = self.config.samples
        played = list(self.policy.play(self.environment, mine, samples, self.settings, root)) if mine else []
        chunks = self.process.gather([played[i : i + samples] for i in range(0, len(played), samples)])
        self._check([trajectory for chunk in chunks for trajectory in chunk])
        generator = np.random.default_rng([self.seed, step, 1] if not turn else [self.seed, step, 1, turn])
        scored = [self.scorer.group(chunk, generator) for chunk in chunks] if self.process.first else None
        groups = self.process.from_first(scored)
        advantages = step_advantages([group.totals for group in groups], self.config.scaling,
                                     self.config.dead_tolerance)
        judged = judge(groups, advantages, self.variance)
        return judged if self.config.filter != "none" else [_kept(group) for group in judged]

    def _check(self, trajectories: Sequence[Trajectory]) -> None:
        if self.config.on_environment_error == "drop":
            return
        for trajectory in trajectories:
            if trajectory.end == "errored":
                raise UserError(
                    f"an episode of task {trajectory.task} broke: {trajectory.end_reason}; mend the environment, or "
                    "set on_environment_error = \"drop\" under [grpo]"
                )

    def _warn_of_nothing(self, step: int, groups: Sequence[Judged]) -> None:
        if all(group.dropped is not None for group in groups):
            self._warn("dropped", f"step {step} has nothing to train on: all {len(groups)} groups were dropped, the "
                       f"first one for: {groups[0].dropped}")
        elif self.objective.mask_truncated and all(
            trajectory.end != "terminated" for group in groups if group.dropped is None
            for trajectory in group.played.trajectories
        ):
            self._warn("masked", f"step {step} has nothing to train on: every episode was cut off, and mask_truncated "
                       "leaves those out; raise max_turn_tokens or max_tokens under [sampling]")

    def _warn(self, kind: str, text: str) -> None:
        if self.process.first:
            self.scorer.warn(kind, text)


def _kept(group: Judged) -> Judged:
    """Without a filter a dead group is trained on too (it still has a KL and an entropy term)."""
    alone = group.advantages.dead is not None and group.advantages.dead.startswith("fewer")
    return group if alone else Judged(played=group.played, advantages=group.advantages, dropped=None)
