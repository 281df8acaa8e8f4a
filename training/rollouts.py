"""A step's rollouts: prompts, episodes, rewards, groups; dropped groups
refilled within bounds.

What breaks is handled as the recipe says: an episode that the environment broke
(it raised, or hung beyond its limit) has no reward and takes no part, or stops
the run; so does a broken reward. A step that has fewer prompts than it should,
or nothing to train on, is warned of once.

What an episode is worth, or why it has no reward (`RewardScorer`):

1. An episode that the environment broke, or whose prompt left no room for an
   action, says nothing of the policy. It has no reward, whatever the reward
   functions would say of it: they are not asked, and it is in no baseline.
2. A reward that raises, or gives anything but one finite number or `None`,
   stops the run, or counts as missing.
3. An episode that lacks one of its rewards has no total. Its reason goes into
   the record; what was not wanted is warned of once.
4. So an episode that breaks is never punished, and breaking what would be lost can
   pay. A step in which a tenth of them breaks is warned of, once in a run.

A step of an environment that takes longer than its limit ends the episode as
errored (`Guarded`). The hanging call itself cannot be killed from outside; its
thread is left behind as a daemon, and the run goes on.
"""

import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forensics.errors import UserError, stop_outside
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory
from training.advantages import (
    Curriculum,
    Fresh,
    Group,
    Prioritised,
    TrainedGroup,
    VarianceFilter,
    estimate_advantages,
    select_groups,
)
from training.distributed import Process
from training.loss_section import LossSection
from training.recipe import GrpoSection, Recipe
from training.rewards import Rewards, as_number

MANY_BROKEN = 0.1  # of a step's episodes
OVERLONG = "overlong"  # the name under which the length penalty is recorded
Scored = tuple[dict[str, float | None], str | None]  # rewards, and why there is no total
logger = logging.getLogger("forensics")


@dataclass(frozen=True, kw_only=True)
class RewardScorer:
    """Rewards of finished groups. `told`: the kinds of trouble that were warned of."""

    rewards: Rewards
    config: GrpoSection
    objective: LossSection
    told: set[str] = field(default_factory=set)

    def group(self, chunk: Sequence[Trajectory], generator: np.random.Generator) -> Group:
        """One group, scored. Raises `UserError` for a broken reward that is to stop the run."""
        scored = [self._episode(trajectory, generator) for trajectory in chunk]
        return Group(
            task=chunk[0].task,
            trajectories=tuple(chunk),
            components=tuple(parts for parts, _ in scored),
            totals=tuple(
                self._total(parts) if reason is None else None for parts, reason in scored
            ),
            missing={
                number: reason for number, (_, reason) in enumerate(scored) if reason is not None
            },
            weights=self.weights,
        )

    @property
    def weights(self) -> dict[str, float]:
        """Of each named reward in the total, the length penalty among them."""
        penalty = {OVERLONG: 1.0} if self.objective.overlong_buffer else {}
        return {name: weight for name, (_, weight) in self.rewards.items()} | penalty

    def _episode(self, trajectory: Trajectory, generator: np.random.Generator) -> Scored:
        if (reason := self._says_nothing(trajectory)) is not None:
            return dict.fromkeys(self.weights), reason
        found = {name: self._one(name, trajectory, generator) for name in self.rewards}
        parts = {name: value for name, (value, _) in found.items()}
        if self.objective.overlong_buffer:
            parts[OVERLONG] = overlong_penalty(trajectory.sampled_tokens or 0, self.objective)
        return parts, next(
            (f"the reward '{name}' {wrong}" for name, (_, wrong) in found.items() if wrong), None
        )

    def _says_nothing(self, trajectory: Trajectory) -> str | None:
        if trajectory.end == "errored":
            self.warn(
                "errored",
                f"an episode of task {trajectory.task} broke: {trajectory.end_reason}; such"
                ' episodes have no reward and are not trained on (on_environment_error = "drop")',
            )
            return f"errored: {trajectory.end_reason}"
        if trajectory.end == "truncated" and not trajectory.turns:
            room = "the prompt leaves no room for an action"
            self.warn(
                "room",
                f"task {trajectory.task} cannot be trained on: {room}; raise max_tokens under "
                "[sampling], as far as the model has positions, or leave out the longest prompts",
            )
            return room
        return None

    def _one(
        self, name: str, trajectory: Trajectory, generator: np.random.Generator
    ) -> tuple[float | None, str | None]:
        """The reward, or why it is missing."""
        try:
            value = self.rewards[name][0](trajectory, generator)
        except Exception as error:
            stop_outside(error)
            wrong = f"raised {type(error).__name__}: {error}"
        else:
            if value is None:
                return None, "gave None"
            if (number := as_number(value)) is not None:
                return number, None
            wrong = f"gave {value!r}, which is not one finite number"
        where = f"the reward '{name}' {wrong} (task {trajectory.task}, sample {trajectory.sample})"
        if self.config.on_reward_error == "stop":
            raise UserError(f'{where}; mend it, or set on_reward_error = "missing" under [grpo]')
        self.warn(
            f"reward {name}",
            f'{where}; such episodes are not trained on (on_reward_error = "missing")',
        )
        return None, wrong

    def _total(self, parts: Mapping[str, float | None]) -> float:
        weighted = sum(weight * (parts[name] or 0.0) for name, (_, weight) in self.rewards.items())
        return weighted + (parts.get(OVERLONG) or 0.0)

    def warn(self, kind: str, text: str) -> None:
        """Once in a run for each kind of trouble."""
        if kind not in self.told:
            self.told.add(kind)
            logger.warning("%s", text)


def overlong_penalty(drawn: int, objective: LossSection) -> float:
    """What an episode loses in which the policy drew so many tokens (soft
    overlong punishment, DAPO, 2503.14476).

    0 up to `overlong_tokens - overlong_buffer`, then falling in a straight line
    to `-overlong_penalty` at `overlong_tokens` and beyond.
    """
    if not objective.overlong_buffer or objective.overlong_tokens is None:
        return 0.0
    over = drawn - (objective.overlong_tokens - objective.overlong_buffer)
    return -objective.overlong_penalty * min(max(over / objective.overlong_buffer, 0.0), 1.0)


class Guarded:
    """`environment` with a limit of `seconds` on each `reset` and `step`;
    everything else is passed through.
    """

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


class AtOnce:
    """`environment`, of which so many episodes may step at once, in threads."""

    def __init__(self, environment: Environment, steps_at_once: int) -> None:
        self._environment, self.steps_at_once = environment, steps_at_once

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def without(self, *channels: str) -> "AtOnce":
        return AtOnce(self._environment.without(*channels), self.steps_at_once)


class Collector:
    """What a run draws its steps from. `variance` and `curriculum` carry state
    from step to step.

    Raises `UserError` where all rewards weigh 0, so that no run could learn
    from them.
    """

    def __init__(
        self,
        policy: Policy,
        environment: Environment,
        recipe: Recipe,
        rewards: Rewards,
        seed: int,
        process: Process,
    ) -> None:
        self.policy, self.environment, self.seed, self.process = policy, environment, seed, process
        self.config, self.objective = recipe.grpo, recipe.objective
        self.settings = SamplingSettings(**recipe.sampling.model_dump())
        self.scorer = RewardScorer(rewards=rewards, config=self.config, objective=self.objective)
        self.curriculum: Curriculum = (
            Fresh()
            if self.config.curriculum == "fresh"
            else Prioritised(size=self.config.pool, seed=seed)
        )
        self.variance = VarianceFilter() if self.config.filter == "variance" else None
        # without rewards it learns from the length penalty, or from the KL and
        # entropy terms of groups without a spread
        learns = self.objective.overlong_buffer or self.config.filter == "none"
        if not learns and not any(weight for _, weight in rewards.values()):
            raise UserError(
                "all rewards have the weight 0, so nothing could be learned; give one another"
                " weight"
            )

    def collect(self, step: int) -> list[TrainedGroup]:
        """All groups of a step, dropped ones included, in the order they were
        drawn; the same on every process.

        No task is drawn twice within a step.
        """
        config = self.config
        kept: list[TrainedGroup] = []
        for turn in range(1 + config.refill):
            missing = config.groups - sum(group.dropped is None for group in kept)
            if missing <= 0:
                break
            key = [self.seed, step, turn] if turn else [self.seed, step]
            root = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
            tasks = self.curriculum.draw(
                self.environment, missing, root, {group.played.task for group in kept}
            )
            if not turn:
                self._require(tasks)
            if not tasks:
                break
            kept += self._play(tasks, step, turn, root)
        self.curriculum.learn([group.played for group in kept])
        self._warn_of_nothing(step, kept)
        self._warn_of_crashes(step, [run for group in kept for run in group.played.trajectories])
        self._warn_of_constant([run for group in kept for run in group.played.trajectories])
        return kept

    def _require(self, tasks: Sequence[str]) -> None:
        if not tasks:
            raise UserError(
                'the environment gave no training task; give one with tasks in its split "train"'
            )
        if len(tasks) < self.config.groups:
            self._warn(
                "tasks",
                f"the environment has {len(tasks)} training tasks for groups ="
                f" {self.config.groups}, so every step plays {len(tasks)} groups",
            )

    def _play(self, tasks: Sequence[str], step: int, turn: int, root: int) -> list[TrainedGroup]:
        mine = self.process.share(tasks)
        samples = self.config.samples
        played = (
            list(self.policy.play(self.environment, mine, samples, self.settings, root))
            if mine
            else []
        )
        chunks = self.process.gather(
            [played[i : i + samples] for i in range(0, len(played), samples)]
        )
        self._check([trajectory for chunk in chunks for trajectory in chunk])
        generator = np.random.default_rng(
            [self.seed, step, 1] if not turn else [self.seed, step, 1, turn]
        )
        mine_to_score = chunks if self.process.first else []
        groups = self.process.from_first(
            [self.scorer.group(chunk, generator) for chunk in mine_to_score]
        )
        advantages = estimate_advantages(groups, self.config)
        return select_groups(groups, advantages, self.variance, self.config.filter == "none")

    def _check(self, trajectories: Sequence[Trajectory]) -> None:
        if self.config.on_environment_error == "drop":
            return
        for trajectory in trajectories:
            if trajectory.end == "errored":
                raise UserError(
                    f"an episode of task {trajectory.task} broke: {trajectory.end_reason}; mend the"
                    ' environment, or set on_environment_error = "drop" under [grpo]'
                )

    def _warn_of_nothing(self, step: int, groups: Sequence[TrainedGroup]) -> None:
        if all(group.dropped is not None for group in groups):
            self._warn(
                "dropped",
                f"step {step} has nothing to train on: all {len(groups)} groups were dropped, the "
                f"first one for: {groups[0].dropped}",
            )
        elif self.objective.mask_truncated and all(
            trajectory.end != "terminated"
            for group in groups
            if group.dropped is None
            for trajectory in group.played.trajectories
        ):
            self._warn(
                "masked",
                f"step {step} has nothing to train on: every episode was cut off, and"
                " mask_truncated leaves those out; raise max_turn_tokens or max_tokens under"
                " [sampling]",
            )

    def _warn_of_crashes(self, step: int, runs: Sequence[Trajectory]) -> None:
        """Nothing is lost by an episode that breaks, so a policy may learn to break them."""
        broken = [run for run in runs if run.end == "errored"]
        if len(broken) < max(2, MANY_BROKEN * len(runs)):
            return
        self._warn(
            "crashes",
            f"in step {step} {len(broken)} of {len(runs)} episodes broke; they take no part, so a"
            " policy that breaks an attempt it would lose is never punished for it. Look at what it"
            " does there (`end_reason` in the record), and mend the environment, or give such an"
            " action the outcome that it deserves",
        )

    def _warn_of_constant(self, runs: Sequence[Trajectory]) -> None:
        """A row that holds more than the constant counts for more than one row."""
        given, room = self.objective.dr_grpo_tokens, self.settings.max_turn_tokens
        most = max((run.sampled_tokens or 0 for run in runs), default=0)
        if self.objective.aggregation == "dr-grpo" and most > (given or room):
            self._warn(
                "constant",
                f"the policy drew {most} tokens in an episode, more than the {given or room} that"
                " dr-grpo divides by; set dr_grpo_tokens under [objective] to the most that it may"
                " draw in an episode",
            )

    def _warn(self, kind: str, text: str) -> None:
        if self.process.first:
            self.scorer.warn(kind, text)
