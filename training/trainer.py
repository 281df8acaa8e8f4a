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

Behind `forensics train` (`train_recipe`) inputs are checked before anything is written;
then the environment that the recipe names is built.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

from forensics.errors import UserError
from forensics.plugins import load_plugin
from forensics.policies import inspect_checkpoint
from forensics.progress import Progress
from forensics.protocols import Environment, Policy, SamplingSettings
from training.advantages import TrainedGroup, VarianceFilter
from training.distributed import Process, check_launch, first_process, join, leave, own_device
from training.live.callback import TrainerHooks, TrainerView
from training.recipe import GrpoSection, Recipe
from training.recorder import Metrics, Recorder, StepReport, record_rows, run_metadata
from training.rewards import Rewards, load_rewards
from training.rollouts import AtOnce, Collector, Guarded
from training.run_state import (
    check,
    check_steps,
    claim,
    description,
    load_state,
    options_from,
    save_checkpoint,
    save_state,
)
from training.served_sampler import ServedSampling
from training.trackers import Trackers, check_trackers
from training.trained_model import Machine
from training.update import Batch, UpdateReport, batch_of, update

_changed: WeakSet[Policy] = WeakSet()


def mark_changed(policy: Policy) -> None:
    """Its weights are no longer those that its identity names."""
    _changed.add(policy)


def check_policy(policy: Policy, recipe: Recipe) -> None:
    """Refuse weights that cannot be trained, or that are not those which the
    policy's identity names.
    """
    if policy in _changed:
        raise UserError(
            "an earlier grpo() has changed the weights of this policy; load it again with"
            " load_policy(), or give the weights as they are now a new identity with"
            " policy_from(model, tokenizer, identity)"
        )
    kinds = {str(p.dtype).removeprefix("torch.") for p in policy.model.parameters()} - {"float32"}
    if recipe.lora is None and kinds:
        raise UserError(
            f"the policy's weights are in {', '.join(sorted(kinds))}, in which small updates"
            ' vanish; load it with load_policy(..., dtype="float32") and set the precision of'
            " the forward pass with dtype under [compute]"
        )


def check_rewards(rewards: Rewards) -> None:
    """Refuse what is not a function with a finite weight."""
    for name, given in rewards.items():
        pair = isinstance(given, Sequence) and len(given) == 2
        if not (pair and callable(given[0]) and isinstance(given[1], Real)):
            raise UserError(
                f"the reward '{name}' is {given!r}; give each name a pair (function, weight)"
            )
        if not np.isfinite(given[1]):
            raise UserError(f"the reward '{name}' has weight {given[1]}; give a finite number")


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
    if recipe.grpo.steps_at_once > 1:
        environment = AtOnce(environment, recipe.grpo.steps_at_once)
    run = TrainerView(
        policy=policy,
        environment=environment,
        settings=SamplingSettings(**recipe.sampling.model_dump()),
        folder=folder,
        seed=seed,
        log=scalars,
    )
    try:
        with _training(run, recipe, process, given, callbacks) as training:
            training.call("on_start")
            training.steps(report if process.first else lambda step: None)
            training.finish()
            training.call("on_end")
    finally:
        leave(process)
    return run.stopped


@contextmanager
def _training(
    run: TrainerView,
    recipe: Recipe,
    process: Process,
    rewards: Rewards,
    callbacks: Sequence[TrainerHooks],
) -> Iterator["Training"]:
    """Everything of a run, at the step where its folder left off."""
    folder, start = run.folder, run.policy.identity
    without = recipe.environment.without
    world = run.environment.without(*without) if without else run.environment
    mine = description(recipe, run.seed, start, rewards)
    if folder:
        check(folder, mine)
        check_steps(folder, recipe.grpo.steps, "grpo.steps")
    with closing(Machine(run.policy, recipe, run.settings, process, run.seed)) as machine:
        optimizer = machine.optimizer(recipe.grpo)
        section, served, sampler = recipe.server, None, run.policy
        if section is not None:
            renderer = run.policy.rendered_for(world).renderer
            served = ServedSampling(section, run.policy, renderer, folder, process)
            sampler = served.sampler
            alone = process.size == 1 or process.strategy == "ddp"  # one can save the weights
            run.served = served.at if alone else None
        collector = Collector(sampler, world, recipe, rewards, run.seed, process)
        mark_changed(run.policy)
        record: Any = nullcontext()
        if folder and process.first:
            claim(folder, mine)
        if folder:
            state = load_state(folder, machine.model, optimizer)
            run.step = int(state["step"])
            machine.skipped.in_a_row = state.get("skipped", 0)
            if served:
                served.watch.first = state.get("sampler_gap")
            machine.restore(state.get("memory", {}))
            collector.curriculum.restore(state.get("curriculum", {}))
            if collector.variance and "variance" in state:
                collector.variance = VarianceFilter(**state["variance"])
        if folder and process.first and recipe.record.rollouts:
            tokenizer = run.policy.tokenizer
            record = Recorder(
                folder, run_metadata(recipe, run.seed, start, tokenizer, world, rewards)
            )
            record.resume(run.step)
        with record as recorder:
            yield Training(
                run=run,
                recipe=recipe,
                collector=collector,
                machine=machine,
                optimizer=optimizer,
                recorder=recorder,
                callbacks=callbacks,
                served=served,
            )


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run in progress, and what its steps are made with."""

    run: TrainerView
    recipe: Recipe
    collector: Collector
    machine: Machine
    optimizer: torch.optim.Optimizer
    recorder: Recorder | None
    callbacks: Sequence[TrainerHooks]
    served: ServedSampling | None = None

    def call(self, moment: str, *what: Any) -> None:
        """`on_start`, `on_step_end`, `on_save` or `on_end` of every callback, on
        the first process. They may sample, so all make the weights whole.
        """
        if not self.callbacks:
            return
        process = self.machine.process
        with self.machine.sampling():
            for callback in self.callbacks if process.first else ():
                getattr(callback, moment)(self.run, *what)
            self.run.stopped = process.from_first(self.run.stopped)

    def steps(self, report: Callable[[StepReport], None]) -> None:
        """All that are left."""
        run, config = self.run, self.recipe.grpo
        while run.step < config.steps and run.stopped is None:
            done = self.step()
            run.step += 1
            report(done)
            self.call("on_step_end", done)
            if run.folder and (
                run.step % config.save_every == 0 or run.step == config.steps or run.stopped
            ):
                self.call("on_save", self.save(run.folder))

    def step(self) -> StepReport:
        """Collect, update, record."""
        run, recipe, seconds, clock = self.run, self.recipe, {}, time.perf_counter()
        if self.served:
            self.served.sync(run.step)
        with nullcontext() if self.served else self.machine.sampling():
            groups = self.collector.collect(run.step)
        seconds["collect"] = time.perf_counter() - clock
        masked = recipe.objective.mask_truncated
        batch = make_batch(groups, masked)
        clock = time.perf_counter()
        rate = recipe.grpo.rate(run.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        seed, played = (run.seed, run.step, 3), counted_episodes(groups, recipe.grpo)
        updated = update(self.machine, batch, self.optimizer, recipe, seed, played)
        seconds["update"] = time.perf_counter() - clock
        if self.served:
            self.served.judge(run.step, updated.diagnostics)
        step = _report(run.step, groups, updated, seconds, rate)
        clock = time.perf_counter()
        if self.recorder:
            rows = record_rows(run.step, groups, updated.notes, masked)
            self.recorder.submit(run.step, rows, asdict(step) | {"seconds": {}})
        seconds["record"] = time.perf_counter() - clock
        return step

    def save(self, folder: Path) -> Path:
        """A state that can be gone on with; the record is never behind it."""
        if self.recorder:
            self.recorder.flush()
        variance = self.collector.variance
        extra: dict[str, Any] = {"curriculum": self.collector.curriculum.state()}
        extra |= {"variance": asdict(variance)} if variance else {}
        extra |= self.machine.skipped.state()
        extra |= {"sampler_gap": self.served.watch.first} if self.served else {}
        extra |= {"memory": stated} if (stated := self.machine.stated()) else {}
        return save_state(
            folder, self.machine.model, self.optimizer, self.run.step, extra, self.machine.process
        )

    def finish(self) -> None:
        """The checkpoint, with a neutral note of the world it was trained for."""
        if self.run.folder is None:
            return
        checkpoint, environment = self.run.folder / "checkpoint", self.recipe.environment
        save_checkpoint(
            checkpoint,
            self.machine.model,
            self.run.policy.tokenizer,
            {
                "name": environment.name,
                "options": options_from(checkpoint, environment.options),
                "sampling": self.recipe.sampling.model_dump(),
            },
            self.machine.process,
            self.recipe.compute.save_dtype,
        )
        self.call("on_save", checkpoint)


def counted_episodes(groups: Sequence[TrainedGroup], config: GrpoSection) -> int:
    """How many episodes a step counts: those that have a reward, also of dead
    groups, but no more than were asked for (what replaces a dropped group takes
    its place).
    """
    scored = sum(total is not None for group in groups for total in group.played.totals)
    return min(scored, config.groups * config.samples)


def make_batch(groups: Sequence[TrainedGroup], mask_truncated: bool = False) -> Batch | None:
    """Rows of the groups that are trained on, in order; `None` where there is none."""
    used = [
        (trajectory, value)
        for group in groups
        if group.dropped is None
        for trajectory, value in zip(
            group.played.trajectories, group.advantages.values, strict=True
        )
        if value is not None
    ]
    if not used:
        return None
    weights = [float(not (mask_truncated and run.end == "truncated")) for run, _ in used]
    return batch_of([run for run, _ in used], [value for _, value in used], weights)


def _report(
    step: int,
    groups: Sequence[TrainedGroup],
    updated: UpdateReport,
    seconds: dict[str, float],
    learning_rate: float,
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
        skipped=updated.skipped,
        learning_rate=learning_rate,
        losses=updated.diagnostics,
        seconds=seconds,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def check_inputs(recipe: Recipe, checkpoint: Path, device: str) -> None:
    """Refuse what would fail later, without loading the model. Raises `UserError`."""
    from forensics.investigation import build_environment
    from forensics.policies import resolve_device

    check_trackers(recipe.logging)
    check_launch(recipe.parallel.processes)
    resolve_device(own_device(device))
    build_environment(recipe.environment.name, recipe.environment.options).without(
        *recipe.environment.without
    )
    inspect_checkpoint(checkpoint)


def train_recipe(
    recipe: Recipe,
    seed: int,
    folder: Path,
    checkpoint: Path,
    progress: Progress,
    device: str = "auto",
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Run a recipe from `checkpoint`; writes `metrics.jsonl`, resumable state,
    the record of the run, and `checkpoint/`, the path that is returned.

    Audits are made where the recipe has an `[audit]`; `say` gets the reason
    where one of them ended the run early.
    """
    from forensics.policies import load_policy, warn_of_chat
    from training.live import AuditSettings, ForensicsCallback

    environment = load_plugin("forensics.environments", recipe.environment.name)(
        **recipe.environment.options
    )
    policy = load_policy(checkpoint, device=own_device(device), dtype="float32")
    if first_process():
        warn_of_chat(environment, policy.rendered_for(environment).renderer)
    audits = []
    if recipe.audit:
        settings = AuditSettings(**recipe.audit.model_dump(), tensorboard=False)
        audits.append(ForensicsCallback(settings, say=say))
    trackers = None
    if recipe.logging is not None and first_process():
        config = recipe.model_dump(mode="json") | {"seed": seed}
        trackers = Trackers(recipe.logging, folder, config)
    with closing(Metrics(folder, trackers)) as metrics:

        def report(step: StepReport) -> None:
            metrics.step(step)
            success = "not measured" if step.success is None else format(step.success, ".2f")
            progress(f"GRPO, success {success}", step.step + 1, recipe.grpo.steps)

        if stopped := grpo(
            policy, environment, recipe, seed, folder, report, audits, metrics.scalar
        ):
            say(stopped)
    return folder / "checkpoint"
