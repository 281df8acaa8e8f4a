"""A case: what the investigator has, in a folder, resumable.

It is the one door to runs: an instrument asks for those of a subject under a condition, and the
case reads them from its folder, or plays what is not there yet (`forensics.runs.run_store`). A
second instrument that asks the same costs nothing.
"""

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from forensics.budget import Budget as Budget
from forensics.errors import MissingInput, UserError
from forensics.progress import Pace, Progress
from forensics.protocols import (
    Capability,
    Channel,
    Environment,
    Policy,
)
from forensics.readers import open_record
from forensics.records import content_hash
from forensics.records.given_files import parse_toml, read_text
from forensics.records.train_tables import TrainingRecord
from forensics.rollout_logs import Rollouts as Rollouts
from forensics.runs.run_store import OPEN, Condition, Kept, Player, RunStore
from forensics.subjects.subject import Logs, Role, Subject, can
from forensics.version import code_version
from forensics.world import environment_key

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the investigator has.

    `subjects`: one before training and one for each training seed after it; what they are is
    opened only when something must be sampled. `stored` maps a subject's name (`before`,
    `after-0`, ...) and the channels scrubbed from its world to logs that already exist, for
    cases made of logs. `training`: the folder of the training run that led to *after*,
    where there is one with a record; `recipe`: what `forensics train` would read to
    make it again; `trained`: names or prompts of its tasks, where the reader gave a
    list. `allowed`: kinds of action that the reader says are part of the job. `seed` is the
    root of every random stream; two subjects never share one, so that a checkpoint against
    itself is a real A/A comparison. `pace`: how fast its episodes are played.
    """

    folder: Path
    subjects: tuple[Subject, ...] = ()
    environment: Environment | None = None
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
    in_memory: Kept = field(default_factory=Kept, init=False, repr=False, compare=False)

    @property
    def afters(self) -> tuple[str, ...]:
        """The names of the subjects after training, one for each training seed."""
        return tuple(name for name, one in self._by_name.items() if one.role.seed is not None)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The shortcuts that the environment says it has (none for a case without one)."""
        return () if self.environment is None else self.environment.channels

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The held-out tasks of this case, the same for every subject and condition."""
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
        return open_record(self.training, self.progress)

    def input_hashes(self) -> dict[str, str]:
        """Content hashes of everything that a number of this case rests on. No paths."""
        hashes: dict[str, str] = {"budget": content_hash(self.budget.content())}
        hashes |= {one.role.name: one.identity for one in self.subjects if one.stated}
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
        subject: str,
        condition: Condition = OPEN,
        *,
        tasks: Sequence[str] | None = None,
    ) -> Rollouts:
        """Held-out episodes of one subject under one condition, read from disk or played now.

        `tasks`: only these, for what need not be measured on all of the case's tasks. Runs
        under another condition than the open world are coupled with the open ones
        (`forensics.runs.run_store`). Raises `MissingInput` where the case has neither logs nor a
        policy and an environment.
        """
        log = (subject, condition.scrubbed)
        if log in self.stored and not condition.changed and tasks is None:
            return self.stored[log]
        if not self.opens(subject, "play"):
            if self.stored and self.environment is not None:
                raise self._no_log(subject, condition)
            channels = ", ".join(condition.scrubbed)
            place = f" with {channels} scrubbed" if channels else ""
            raise MissingInput(
                f"There is no policy to sample for `{subject}`{place}.",
                "Give the checkpoints and the environment to `forensics investigate`.",
            )
        who = self._player(subject)
        request = self._store.request(who, condition, None if tasks is None else tuple(tasks))
        return self._store.rollouts(who, condition, request, self.progress, self.pace)

    def _no_log(self, subject: str, condition: Condition) -> MissingInput:
        """What is missing of a case of logs that were made elsewhere."""
        everything = {channel.name for channel in self.channels} == {*condition.scrubbed}
        world = "scrubbed" if everything else f"without:{'+'.join(condition.scrubbed)}"
        return MissingInput(
            f"No log holds runs of `{subject}` in this world.",
            f"Give them with `--logs {subject}/{world}=PATH`, or the checkpoints and a world to"
            " `forensics investigate`.",
        )

    def has_played(self, condition: Condition = OPEN) -> bool:
        """Whether the runs of every subject under this condition are there, so that reading
        them plays nothing.
        """
        return all(
            (not condition.changed and (subject, condition.scrubbed) in self.stored)
            or self._store.request(self._player(subject), condition).is_there
            for subject in ("before", *self.afters)
        )

    def kept(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gives, made once for all instruments. `key`: a name and the content
        address of everything that it is made of, so that no result depends on what
        is kept.
        """
        return self.in_memory.made(key, make)

    def world(self, without: Sequence[str] = ()) -> Environment:
        """The environment, these channels scrubbed. Raises `MissingInput` where there is none."""
        if self.environment is None:
            raise MissingInput("The case has no environment.", "Name one with `--env`.")
        return self.environment.without(*without) if without else self.environment

    def require_afters(self) -> None:
        """Raises `MissingInput` where there is no subject after training."""
        if not self.afters:
            raise MissingInput(
                "The case has no runs after training.", "Give at least one `--after`."
            )

    @cached_property
    def _by_name(self) -> dict[str, Subject]:
        logs = (Logs(role=Role.named(name)) for name, _ in self.stored)
        found: dict[Role, Subject] = {one.role: one for one in (*logs, *self.subjects)}
        return {role.name: found[role] for role in sorted(found)}

    def subject(self, name: str) -> Subject:
        """The subject of a name. Raises `MissingInput` where the case has none."""
        if name not in self._by_name:
            raise MissingInput(f"The case has no `{name}`.", "Give its checkpoint, or its logs.")
        return self._by_name[name]

    def opens(self, name: str, capability: Capability = "play") -> bool:
        """Whether a subject has a policy to open, one that may have this capability."""
        return name in self._by_name and can(self._by_name[name], capability)

    @property
    def runs_models(self) -> bool:
        """Whether any subject has a policy to open: logs alone have none."""
        return any(one.capabilities != frozenset() for one in self.subjects)

    def policy(self, name: str) -> Policy:
        """The policy of a subject, loaded now; the one before it is dropped."""
        return self.in_memory.policy(name, self.subject(name).open)

    @cached_property
    def _store(self) -> RunStore:
        return RunStore(
            folder=self.folder,
            world=self.world(),
            tasks=self.tasks,
            budget=self.budget,
            seed=self.seed,
        )

    def _player(self, name: str) -> Player:
        one = self.subject(name)
        return Player(name, one.identity, lambda: self.policy(name), self.said(name))

    def said(self, name: str) -> str:
        """What a subject is, for who waits: `before training`, `after training (seed 2 of 3)`."""
        return Role.named(name).said(len(self.afters))


def recipe_key(recipe: Path) -> str:
    """The identity of a recipe: what its TOML says, whatever its layout. Raises
    `UserError` for a missing file and for broken TOML.
    """
    text = read_text(recipe, "the recipe ", "give the file that `forensics train` read")
    try:
        return content_hash(json.dumps(parse_toml(text), default=str, sort_keys=True))
    except ValueError as error:
        raise UserError(f"the recipe {recipe} is not valid TOML: {error}; mend it") from None
