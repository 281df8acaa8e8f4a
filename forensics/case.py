"""A case: what the investigator has, in a folder, resumable.

Instruments ask a case for samples; the case answers from its folder, and
computes only what is not there yet. Every request has a content address
(checkpoint hash, environment, scrubbed channels, tasks, settings, seed,
constraint, interventions), so a second instrument that asks the same costs
nothing, and a case that was killed goes on where it stopped.

Rollouts are made in fixed chunks of tasks, each written atomically. A chunk
depends on its request alone, so the same case gives the same bytes whether or
not it was interrupted.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from forensics.budget import Budget as Budget
from forensics.errors import MissingInput, UserError
from forensics.policies.weights import identity_of_weights
from forensics.progress import Pace, Progress
from forensics.protocols import (
    Alteration,
    Channel,
    Constraint,
    Environment,
    Intervention,
    Policy,
    SamplingSettings,
)
from forensics.records import Trajectory, content_hash
from forensics.records.case_file import CheckpointPair
from forensics.records.given_files import parse_toml, read_text
from forensics.records.tables import (
    read_rows,
    read_trajectories,
    write_logprobs,
    write_trajectories,
)
from forensics.records.train_tables import TrainingRecord
from forensics.records.trajectory import action_starts
from forensics.rollout_logs import Rollouts as Rollouts
from forensics.version import code_version

TASKS_PER_CHUNK = 256
SCORED_AT_ONCE = 256
MOST_KEPT: Final = 16  # things that are made of stored runs: the scores and kinds of one side, say
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the investigator has.

    `policies` maps a side (`before`, `after-0`, `after-1`, ...) to a function
    that loads its policy; loading happens only when something must be sampled.
    `stored` maps `(side, without)` to logs that already exist, for cases made
    of logs. `training`: the folder of the training run that led to *after*,
    where there is one with a record; `recipe`: what `forensics train` would read to
    make it again; `trained`: names or prompts of its tasks, where the reader gave a
    list. `allowed`: kinds of action that the reader
    says are part of the job. `seed` is the root of every random stream; two
    sides never share one, so that a checkpoint against itself is a real A/A
    comparison. `pace`: how fast its episodes are played.
    """

    folder: Path
    pair: CheckpointPair | None = None
    environment: Environment | None = None
    policies: dict[str, Callable[[], Policy]] = field(default_factory=dict)
    stored: dict[tuple[str, tuple[str, ...]], Rollouts] = field(default_factory=dict)
    training: Path | None = None
    trained: tuple[str, ...] = ()
    recipe: Path | None = None
    allowed: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    progress: Progress = lambda what, done, of: None
    pace: Pace = field(default_factory=Pace, compare=False)
    code_version: str = field(default_factory=code_version)

    @property
    def afters(self) -> tuple[str, ...]:
        """The sides after training, one for each training seed."""
        if self.pair is not None:
            return tuple(f"after-{index}" for index in range(len(self.pair.after)))
        return tuple(sorted({side for side, _ in self.stored if side.startswith("after")}))

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The shortcuts that the environment says it has (none for a case without one)."""
        return () if self.environment is None else self.environment.channels

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The held-out tasks of this case, the same for every side and world."""
        return self.world().tasks("held-out", self.budget.tasks, self.seed)

    @cached_property
    def training_record(self) -> TrainingRecord:
        """The token-level record of the training run. Raises `MissingInput`
        where the case has none.
        """
        if self.training is None:
            raise MissingInput(
                "The case has no training record.",
                "Give the folder of a run that `forensics train` recorded.",
            )
        return TrainingRecord(self.training)

    def input_hashes(self) -> dict[str, str]:
        """Content hashes of everything that a number of this case rests on. No paths."""
        hashes: dict[str, str] = {"budget": content_hash(self.budget.content())}
        if self.pair is not None:
            hashes["before"] = self.pair.before.identity
            hashes |= {f"after-{i}": after.identity for i, after in enumerate(self.pair.after)}
        if self.environment is not None:
            hashes["environment"] = environment_key(self.environment)
        if self.training is not None:
            hashes["training"] = self.training_record.key
        if self.trained:
            hashes["trained tasks"] = content_hash(list(self.trained))
        if self.recipe is not None:
            hashes["recipe"] = recipe_key(self.recipe)
        if self.allowed:
            hashes["allowed"] = content_hash(list(self.allowed))
        hashes |= {
            f"log {side} {'+'.join(without)}".strip(): log.key
            for (side, without), log in self.stored.items()
        }
        return hashes

    def rollouts(
        self,
        side: str,
        *,
        without: tuple[str, ...] = (),
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
        tasks: Sequence[str] | None = None,
        altered: Alteration | None = None,
        settings: SamplingSettings | None = None,
    ) -> Rollouts:
        """Held-out episodes of one side in the open world, or in one scrubbed
        of `without`; `altered`: with what the policy is shown changed;
        `settings`: with tokens drawn otherwise than the budget says.

        `tasks`: only these, for what need not be measured on all of the case's
        tasks. A run with a constraint, in a scrubbed or in an altered world, or with
        other settings is coupled with the open one of its task and sample: the same
        random numbers, so that both are equal up to the first draw that differs.
        Raises `MissingInput` where the case has neither logs nor a policy and an
        environment.
        """
        without = tuple(sorted(without))
        changes = (constraint, altered, settings, tasks)
        as_it_is = not interventions and all(change is None for change in changes)
        if as_it_is and (side, without) in self.stored:
            return self.stored[side, without]
        if side not in self.policies:
            place = f" with {', '.join(without)} scrubbed" if without else ""
            raise MissingInput(
                f"There is no policy to sample for `{side}`{place}.",
                "Give the checkpoints and the environment to `forensics investigate`.",
            )
        chosen = self.tasks if tasks is None else tuple(tasks)
        request = self._request(side, without, chosen, constraint, interventions, altered, settings)
        key = content_hash(request)
        world = self.world(without)
        coupled = constraint is not None or altered is not None or settings is not None
        one_stream = coupled or (bool(without) and tasks is None)
        parts = self._chunks(chosen, side, request, one_stream and not interventions)
        name = _log_name(side, without, as_it_is)
        told = " ".join(filter(None, (name, *(one.name for one in (constraint, altered) if one))))
        paths = self._paths(name, key, len(parts))
        for number, (path, (part, seed)) in enumerate(zip(paths, parts, strict=True)):
            self.progress(told, number, len(parts))
            if not path.exists():
                play = self._player(side, constraint).play(
                    altered.of(world) if altered else world,
                    part,
                    self.budget.samples,
                    settings or self.budget.settings,
                    seed,
                    constraint,
                    interventions,
                )
                write_trajectories(path, self.pace.timed(play))
        self.progress(told, len(parts), len(parts))
        return Rollouts(key=key, paths=paths)

    def kept(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gives, made once for all instruments. `key`: a name and the content
        address of everything that it is made of, so that no result depends on what
        is kept; `MOST_KEPT` at a time, the oldest goes first.
        """
        kept: dict[Hashable, Any] = self.__dict__.setdefault("_kept", {})
        if key not in kept:
            made = make()
            if len(kept) >= MOST_KEPT:
                del kept[next(iter(kept))]
            kept[key] = made
        found: Made = kept[key]
        return found

    def has_played(self, without: tuple[str, ...] = ()) -> bool:
        """Whether the runs of every side in this world are there, so that reading
        them plays nothing.
        """
        without = tuple(sorted(without))
        for side in ("before", *self.afters):
            if (side, without) not in self.stored:
                request = self._request(side, without, self.tasks, None, (), None, None)
                parts = self._chunks(self.tasks, side, request, bool(without))
                name = _log_name(side, without, plain=True)
                paths = self._paths(name, content_hash(request), len(parts))
                if not all(path.exists() for path in paths):
                    return False
        return True

    def _paths(self, name: str, key: str, parts: int) -> tuple[Path, ...]:
        folder = self.folder / "trajectories"
        return tuple(folder / f"{name}-{key}-{number:04d}.parquet" for number in range(parts))

    def logprobs(self, side: str, rollouts: Rollouts) -> Iterator[tuple[Trajectory, Any]]:
        """Each trajectory with its tokens' log-probabilities (all but the
        first, float32 nats) under `side`.

        Stated under the case's sampling settings, computed once for each pair
        of policy and log, a part of the log at a time. Raises `MissingInput`
        where the log has no token ids or the case has no such policy.
        """
        if side not in self.policies:
            raise MissingInput(
                f"There is no policy `{side}` to score with.", "Give its checkpoint."
            )
        key = content_hash(
            ["logprobs", self._identity(side), self.budget.settings.content(), rollouts.key]
        )
        for number, source in enumerate(rollouts.paths):
            stored = self.folder / "logprobs" / f"{side}-{key}-{number:04d}.parquet"
            if not stored.exists():
                write_logprobs(stored, self._scored(side, source))
            scores = read_rows(stored)
            for trajectory, row in zip(read_trajectories(source), scores, strict=True):
                yield trajectory, np.array(row["logprobs"], dtype=np.float32)

    def _scored(self, side: str, source: Path) -> Iterator[tuple[str, Any]]:
        trajectories = read_trajectories(source)
        while batch := list(islice(trajectories, SCORED_AT_ONCE)):
            if any(step.token_ids is None for trajectory in batch for step in trajectory.steps):
                raise MissingInput(
                    "The log has no token ids.", "Record them, or play the episodes again."
                )
            ids = [
                [i for step in trajectory.steps for i in step.token_ids or ()]
                for trajectory in batch
            ]
            settings = self.budget.settings
            starts = [action_starts(run) for run in batch] if settings.penalises_output else None
            scores = self.policy(side).logprobs(ids, settings, starts)
            yield from zip([trajectory.id for trajectory in batch], scores, strict=True)

    def world(self, without: Sequence[str] = ()) -> Environment:
        """The environment, these channels scrubbed. Raises `MissingInput` where there is none."""
        if self.environment is None:
            raise MissingInput("The case has no environment.", "Name one with `--env`.")
        return self.environment.without(*without) if without else self.environment

    def require_afters(self) -> None:
        """Raises `MissingInput` where there is no side after training."""
        if not self.afters:
            raise MissingInput(
                "The case has no runs after training.", "Give at least one `--after`."
            )

    def policy(self, side: str) -> Policy:
        """The policy of a side, loaded now; the one before it is dropped."""
        cache: dict[str, Policy] = self.__dict__.setdefault("_loaded", {})
        if side not in cache:
            cache.clear()  # one model in memory at a time
            cache[side] = self.policies[side]()
        return cache[side]

    def _player(self, side: str, constraint: Constraint | None) -> Policy:
        policy = self.policy(side)
        if constraint is not None and "constraint" not in policy.capabilities:
            raise MissingInput(
                f"The policy `{side}` cannot refuse an action and draw it again.",
                "Give a checkpoint that is run here, or a backend with the capability"
                " `constraint`.",
            )
        return policy

    def _chunks(
        self,
        chosen: tuple[str, ...],
        side: str,
        request: Any,
        coupled: bool,
    ) -> list[tuple[tuple[str, ...], int]]:
        """The tasks in parts, and each part's seed; `coupled`: the one with which
        these tasks are played in the open world.
        """
        known = self.tasks if coupled else chosen
        if coupled:
            request = self._request(side, (), known, None, (), None, None)
        place = {task: number // TASKS_PER_CHUNK for number, task in enumerate(known)}
        parts: dict[int, list[str]] = {}
        for task in chosen:  # others than the case's own stand by themselves
            parts.setdefault(place.get(task, len(known)), []).append(task)
        return [
            (tuple(part), int(content_hash([request, number], 15), 16))
            for number, part in sorted(parts.items())
        ]

    def _request(
        self,
        side: str,
        without: tuple[str, ...],
        tasks: tuple[str, ...],
        constraint: Constraint | None,
        interventions: Sequence[Intervention],
        altered: Alteration | None,
        settings: SamplingSettings | None,
    ) -> dict[str, Any]:
        return {
            "side": side,
            "checkpoint": self._identity(side),
            "environment": environment_key(self.world()),
            "without": list(without),
            "tasks": content_hash(list(tasks)),
            "samples": self.budget.samples,
            "settings": (settings or self.budget.settings).content(),
            "seed": self.seed,
            "constraint": constraint.name if constraint else None,
            "interventions": [f"{change.site}:{change.name}" for change in interventions],
            # newer than old folders; a coupled run is another than an uncoupled one
            **({"altered": altered.name} if altered else {}),
            **({"coupled": True} if (constraint or settings) and not interventions else {}),
        }

    def _identity(self, side: str) -> str:
        """Of the checkpoint on disk, or of a policy in memory with its weights as they are now."""
        if self.pair is None:
            return identity_of_weights(self.policy(side))
        return (
            self.pair.before if side == "before" else self.pair.after[int(side.split("-")[1])]
        ).identity


def _log_name(side: str, without: tuple[str, ...], plain: bool) -> str:
    kept_apart = "" if plain else "altered-"  # from the plain logs
    return f"{side}-{kept_apart}{'without-' + '-'.join(without) if without else 'open'}"


def recipe_key(recipe: Path) -> str:
    """The identity of a recipe: what its TOML says, whatever its layout. Raises
    `UserError` for a missing file and for broken TOML.
    """
    text = read_text(recipe, "the recipe ", "give the file that `forensics train` read")
    try:
        return content_hash(json.dumps(parse_toml(text), default=str, sort_keys=True))
    except ValueError as error:
        raise UserError(f"the recipe {recipe} is not valid TOML: {error}; mend it") from None


def environment_key(environment: Environment) -> str:
    """The identity of a world: its name and every option."""
    return content_hash({"name": environment.name, "options": dict(environment.options)})
