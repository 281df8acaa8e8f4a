"""A GRPO core (2402.03300), readable in an evening, exact and resumable.

1. *Collect* (`rollouts`): fresh prompts, `samples` episodes of each with the
   current policy, named rewards, groups; dead and filtered groups are dropped
   with their reason and refilled within bounds.
2. *Update* (`update`, `losses`): the clipped surrogate over tokens that the
   policy drew; tokens of the environment have weight 0. Neither the micro-batch
   size nor the number of processes changes the result.
3. *Record* (`recorder`): every episode, token by token, with what the update
   used; written off the training path.
4. Randomness of a step is a function of (seed, step), so a run that was killed
   at any moment goes on bit for bit.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forensics.protocols import Environment, Policy, SamplingSettings
from training.distributed import Process, join, leave
from training.groups import TrainedGroup, VarianceFilter, curriculum
from training.live.callback import TrainerHooks, TrainerView
from training.recipe import Recipe
from training.recipe_checks import check_policy, check_rewards, mark_changed
from training.recorder import Recorder, StepReport, record_rows, run_metadata
from training.rewards import Rewards, load_rewards
from training.rollouts import Collector, Guarded
from training.run_state import (
    check,
    claim,
    description,
    load_state,
    reward_identities,
    save_checkpoint,
    save_state,
)
from training.trained_model import Machine
from training.update import Batch, UpdateReport, batch_of, update


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a step is made with."""

    run: TrainerView
    recipe: Recipe
    collector: Collector
    machine: Machine
    optimizer: torch.optim.Optimizer
    recorder: Recorder | None


def grpo(
    policy: Policy,
    environment: Environment,
    recipe: Recipe,
    seed: int,
    folder: Path | None = None,
    report: Callable[[StepReport], None] = lambda step: None,
    callbacks: Sequence[TrainerHooks] = (),
    scalars: Callable[[str, float, int], None] = lambda name, value, step: None,
    rewards: Rewards | None = None,
) -> str | None:
    """Train `policy` in place; the reason where a callback stopped the run
    early, else `None`.

    `rewards`: name to (function, weight), instead of the installed ones that
    the recipe names. `policy` holds its weights in float32 (with `[lora]` in
    any precision) and is used once: its identity names the weights it began
    with.

    With a `folder`, the record is written, state is saved every `save_every`
    steps and picked up again, and the policy ends up in `folder/checkpoint`.
    Under `torchrun` every process calls this; only the first writes, reports
    and has callbacks.
    """
    given = rewards or load_rewards(recipe.rewards)
    check_policy(policy, recipe)
    check_rewards(given)
    recipe = recipe.model_copy(
        update={"rewards": {name: weight for name, (_, weight) in given.items()}}
    )
    process = join(recipe.parallel.processes, recipe.parallel.strategy, str(policy.model.device))
    if recipe.grpo.step_seconds:
        environment = Guarded(environment, recipe.grpo.step_seconds)
    run = TrainerView(
        policy=policy,
        environment=environment,
        settings=SamplingSettings(**recipe.sampling.model_dump()),
        folder=folder,
        seed=seed,
        log=scalars,
    )
    try:
        with _parts(run, recipe, process, given) as parts:
            hooks = Hooks(parts, callbacks)
            hooks.call("on_start")
            _steps(parts, report if process.first else lambda step: None, hooks)
            _finish(parts, hooks)
            hooks.call("on_end")
    finally:
        leave(process)
    return run.stopped


@contextmanager
def _parts(run: TrainerView, recipe: Recipe, process: Process, rewards: Rewards) -> Iterator[Parts]:
    """Everything of a run, at the step where its folder left off."""
    config, start = recipe.grpo, run.policy.identity
    world = (
        run.environment.without(*recipe.environment.without)
        if recipe.environment.without
        else run.environment
    )
    mine = description(recipe, run.seed, start, rewards)
    if run.folder:
        check(run.folder, mine)
    with closing(Machine(run.policy, recipe, run.settings, process, run.seed)) as machine:
        optimizer = machine.optimizer(config)
        collector = Collector(
            policy=run.policy,
            environment=world,
            settings=run.settings,
            rewards=rewards,
            config=config,
            objective=recipe.objective,
            curriculum=curriculum(config.curriculum, config.pool, run.seed),
            variance=VarianceFilter() if config.filter == "variance" else None,
            seed=run.seed,
            process=process,
        )
        mark_changed(run.policy)
        if run.folder and process.first:
            claim(run.folder, mine)
        if run.folder:
            _restore(load_state(run.folder, machine.model, optimizer), run, collector)
        with (
            _recorder(run, recipe, start, world, rewards)
            if process.first
            else nullcontext() as recorder
        ):
            yield Parts(
                run=run,
                recipe=recipe,
                collector=collector,
                machine=machine,
                optimizer=optimizer,
                recorder=recorder,
            )


def _recorder(
    run: TrainerView, recipe: Recipe, start: str, world: Environment, rewards: Rewards
) -> Any:
    """The writer of the run's record from its step on; nothing where none is kept."""
    if run.folder is None or not recipe.record.rollouts:
        return nullcontext()
    told = run_metadata(recipe, run.seed, start, run.policy.tokenizer, world)
    recorder = Recorder(run.folder, told.model_copy(update={"rewards": reward_identities(rewards)}))
    recorder.resume(run.step)
    return recorder


def _restore(state: Mapping[str, Any], run: TrainerView, collector: Collector) -> None:
    run.step = int(state["step"])
    collector.curriculum.restore(state.get("curriculum", {}))
    if collector.variance and "variance" in state:
        collector.variance.__dict__.update(state["variance"])


class Hooks:
    """Callbacks of the first process. They may sample, so all processes make
    the weights whole for them.
    """

    def __init__(self, parts: Parts, callbacks: Sequence[TrainerHooks]) -> None:
        self._parts, self._callbacks = parts, callbacks

    def call(self, moment: str, *what: Any) -> None:
        """`on_start`, `on_step_end`, `on_save` or `on_end` of every callback."""
        if not self._callbacks:
            return
        with self._parts.machine.sampling():
            for callback in self._callbacks if self._parts.machine.process.first else ():
                getattr(callback, moment)(self._parts.run, *what)
            run, process = self._parts.run, self._parts.machine.process
            run.stopped = process.from_first(run.stopped)


def _steps(parts: Parts, report: Callable[[StepReport], None], hooks: Hooks) -> None:
    run, config = parts.run, parts.recipe.grpo
    while run.step < config.steps and run.stopped is None:
        done = one_step(parts)
        run.step += 1
        report(done)
        hooks.call("on_step_end", done)
        if run.folder and (
            run.step % config.save_every == 0 or run.step == config.steps or run.stopped
        ):
            hooks.call("on_save", _save(parts))


def _save(parts: Parts) -> Path:
    run, variance = parts.run, parts.collector.variance
    assert run.folder is not None
    if parts.recorder:
        parts.recorder.flush()
    extra = {"curriculum": parts.collector.curriculum.state()} | (
        {"variance": asdict(variance)} if variance else {}
    )
    return save_state(
        run.folder, parts.machine.model, parts.optimizer, run.step, extra, parts.machine.process
    )


def _finish(parts: Parts, hooks: Hooks) -> None:
    """The checkpoint, with a neutral note of the world it was trained for."""
    run, environment = parts.run, parts.recipe.environment
    if run.folder is None:
        return
    checkpoint = run.folder / "checkpoint"
    world = {"name": environment.name, "options": dict(environment.options)}
    save_checkpoint(
        checkpoint, parts.machine.model, run.policy.tokenizer, world, parts.machine.process
    )
    hooks.call("on_save", checkpoint)


def one_step(parts: Parts) -> StepReport:
    """Collect, update, record."""
    run, seconds, clock = parts.run, {}, time.perf_counter()
    with parts.machine.sampling():
        groups = parts.collector.collect(run.step)
    seconds["collect"] = time.perf_counter() - clock
    batch = make_batch(groups, parts.recipe.objective.mask_truncated)
    clock = time.perf_counter()
    updated = update(parts.machine, batch, parts.optimizer, parts.recipe, (run.seed, run.step, 3))
    seconds["update"] = time.perf_counter() - clock
    step = _report(run.step, groups, updated, seconds)
    clock = time.perf_counter()
    if parts.recorder:
        rows = record_rows(run.step, groups, updated.notes, parts.recipe.objective.mask_truncated)
        parts.recorder.submit(run.step, rows, asdict(step) | {"seconds": {}})
    seconds["record"] = time.perf_counter() - clock
    return step


def make_batch(groups: Sequence[TrainedGroup], mask_truncated: bool = False) -> Batch | None:
    """Rows of the groups that are trained on, in order; `None` where there is none."""
    used = list(trained_rows(groups))
    if not used:
        return None
    weights = [
        float(not (mask_truncated and trajectory.end == "truncated")) for trajectory, _ in used
    ]
    return batch_of(
        [trajectory for trajectory, _ in used], [advantage for _, advantage in used], weights
    )


def trained_rows(groups: Sequence[TrainedGroup]) -> Iterator[tuple[Any, float]]:
    """Trajectory and advantage of every row that the update sees."""
    for group in groups:
        if group.dropped is None:
            pairs = zip(group.played.trajectories, group.advantages.values, strict=True)
            yield from ((trajectory, value) for trajectory, value in pairs if value is not None)


def _report(
    step: int, groups: Sequence[TrainedGroup], updated: UpdateReport, seconds: dict[str, float]
) -> StepReport:
    trajectories = [t for group in groups for t in group.played.trajectories]
    reasons = [group.dropped for group in groups if group.dropped is not None]
    names = {name: None for group in groups for part in group.played.components for name in part}
    parts = [part for group in groups for part in group.played.components]
    return StepReport(
        step=step,
        reward=_mean([total for group in groups for total in group.played.totals]),
        success=_mean([t.outcome for t in trajectories]),
        components={name: _mean([part.get(name) for part in parts]) for name in names},
        turns=float(np.mean([t.turns for t in trajectories])),
        tokens=sum(t.sampled_tokens or 0 for t in trajectories),
        groups=len(groups),
        kept=len(groups) - len(reasons),
        dropped={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        errored=sum(t.end == "errored" for t in trajectories),
        truncated=sum(t.end == "truncated" for t in trajectories),
        loss=updated.loss,
        gradient_norm=updated.gradient_norm,
        optimizer_steps=updated.optimizer_steps,
        losses=updated.diagnostics,
        seconds=seconds,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
