"""What an investigation runs on, checked before anything is computed: arguments
that cannot be meant are refused in one sentence, then checkpoints, world,
training record and the list of trained tasks are read and hashed.
"""

import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from forensics.case import Budget, Case, recipe_key
from forensics.errors import UserError
from forensics.investigation.folder import Location, require_same_case, rule_file
from forensics.plugins import load_plugin
from forensics.policies import Given, stated_backend
from forensics.policies.checkpoints import (
    read_environment_hint,
    require_directory,
)
from forensics.policies.compatibility import (
    require_context,
    resolve_device,
)
from forensics.policies.weights import widened_hash
from forensics.progress import Progress, silent
from forensics.protocols import Capability, Environment
from forensics.readers import DumpedRecord, open_record
from forensics.records import content_hash
from forensics.records.case_file import Checkpoint
from forensics.records.given_files import parse_json, read_text
from forensics.records.train_tables import TrainingRecord
from forensics.study import Folder
from forensics.subjects import Subject, inspect_subjects
from forensics.subjects.given import IN_PROCESS
from forensics.verdict import Rule, require_gain_tests

WORLD = (
    "the name of an installed environment, an environment object, or None where the before"
    " directory names one"
)


@dataclass(frozen=True, kw_only=True)
class CaseRequest:
    """What a case is asked: the arguments of `forensics.investigate`, as they were given."""

    before: Given
    after: Given | Sequence[Given]
    environment: Environment | str | None = None
    environment_options: Mapping[str, str] | None = None
    budget: Budget | None = None
    training: Location | None = None
    trained_tasks: Location | None = None
    recipe: Location | None = None
    allow: Sequence[str] = ()
    accept: Sequence[str] = ()
    instruments: Sequence[str] = ()
    seed: int = 0
    device: str = "auto"
    backend: str = "huggingface"
    rule: Rule | Mapping[str, Any] | Location | None = None

    @property
    def afters(self) -> Sequence[Given]:
        after = self.after
        return after if isinstance(after, Sequence) and not isinstance(after, str) else [after]

    @property
    def directories(self) -> list[Path]:
        """Of the sides that are not in memory."""
        sides = (self.before, *self.afters)
        return [Path(side).expanduser() for side in sides if isinstance(side, str | PathLike)]

    def check(self) -> None:
        """Raises `UserError` for the first argument of a kind that has no meaning."""
        locations: list[tuple[str, Any]] = [
            ("before" if path is self.before else "after", path)
            for path in (self.before, *self.afters)
            if not hasattr(path, "capabilities")  # a policy in memory
        ]
        if self.training is not None:
            locations.append(("training", self.training))
        if self.trained_tasks is not None:
            locations.append(("trained_tasks", self.trained_tasks))
        for name, value in locations:
            require_location(name, value)
        world, options, seed = self.environment, self.environment_options, self.seed
        texts = isinstance(options, Mapping) and _are_texts([*options.keys(), *options.values()])
        whole = isinstance(seed, int) and not isinstance(seed, bool)
        checks = (
            ("environment", world is None or isinstance(world, str | Environment), WORLD),
            ("environment_options", options is None or texts, "a mapping of texts to texts"),
            ("budget", isinstance(self.budget, Budget | None), "a Budget"),
            ("seed", whole and 0 <= seed < 2**63, "a whole number from 0 to 2^63 - 1"),
            ("device", isinstance(self.device, str), "a text such as auto, cpu or cuda"),
            ("recipe", isinstance(self.recipe, str | PathLike | None), "a file, as text or path"),
            ("allow", _are_texts(self.allow), "a sequence of names of kinds of action"),
            ("accept", _are_texts(self.accept), "a sequence of names of gain tests"),
        )
        for name, fine, allowed in checks:
            if not fine:
                raise UserError(f"{name} is {getattr(self, name)!r} and must be {allowed}")
        require_gain_tests(self.accept)


def require_location(name: str, value: Any) -> None:
    """A directory must be named by a text or a path."""
    if not isinstance(value, str | PathLike):
        raise UserError(f"{name} is {value!r} and must be a directory, as a text or a path")


def _are_texts(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(text, str) for text in value)
    )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The checked inputs: the subject before training and those after it, a world, a budget and
    the seed of every random stream.

    `training`: the record of the run that led from before to after,
    `recipe`: its recipe, `trained`: the lines of a list of its tasks from the file
    `trained_file`, where they were given. `given`: the options that the world was built with,
    which may hold paths and so identify nothing. `instruments`: the names of those that were
    chosen. `rule`: the file of a rule of one's own.
    """

    subjects: tuple[Subject, ...]
    environment: Environment
    given: Mapping[str, str]
    budget: Budget
    seed: int
    device: str
    training: TrainingRecord | None = None
    trained: tuple[str, ...] = ()
    trained_file: Path | None = None
    recipe: Path | None = None
    instruments: tuple[str, ...] = ()
    backend: str = "huggingface"
    rule: str | None = None

    @property
    def identities(self) -> tuple[str, ...]:
        """Of the subject before training, then of those after it."""
        return tuple(subject.identity for subject in self.subjects)

    def case(self, folder: Path, progress: Progress = silent, allow: Sequence[str] = ()) -> Case:
        """The case on these inputs, with these kinds of action allowed; a
        policy is loaded only to be sampled from.
        """
        return Case(
            folder=folder,
            subjects=self.subjects,
            environment=self.environment,
            budget=self.budget,
            seed=self.seed,
            progress=progress,
            training=None if self.training is None else self.training.folder,
            trained=self.trained,
            recipe=self.recipe,
            allowed=tuple(sorted(set(allow))),
        )

    def stated(self) -> dict[str, Any]:
        """The inputs as `case.json` states them; paths are hints, hashes identify."""
        world = self.environment
        recorded: dict[str, Any] = (
            {}
            if self.training is None
            else {
                "training": {
                    "path": str(self.training.folder),
                    "record": self.training.key,
                }
            }
        )
        if self.trained:
            recorded["trained_tasks"] = {
                "path": str(self.trained_file),
                "lines": len(self.trained),
                "content": content_hash(list(self.trained)),
            }
        if self.recipe is not None:
            recorded["recipe"] = {"path": str(self.recipe), "content": recipe_key(self.recipe)}
        if self.instruments:
            recorded["instruments"] = list(self.instruments)
        before, *after = (one.stated.model_dump(mode="json") for one in self.subjects if one.stated)
        return recorded | {
            "before": before,
            "after": after,
            "environment": {
                "name": world.name,
                "options": dict(world.options),
                "given": dict(self.given),
                "channels": [channel.content() for channel in world.channels],
                **({"notes": notes} if (notes := list(world_notes(world))) else {}),
            },
            "budget": self.budget.content(),
            "seed": self.seed,
            **stated_backend(self.backend),
            **({"rule": self.rule} if self.rule else {}),
        }


def check_case(request: CaseRequest, folder: Folder) -> Inputs:
    """The checked inputs of a case in this folder, where it is gone on with
    those that it was started with. Raises `UserError`.
    """
    for directory in request.directories:
        if folder.path.resolve() == directory.resolve():
            raise UserError(
                f"--out {folder.path} is a checkpoint directory; choose another folder for the case"
            )
    inputs = check_inputs(request, folder.progress, ("play",))
    require_same_case(folder, inputs.stated())
    return inputs


def check_inputs(
    request: CaseRequest, progress: Progress = silent, needs: Sequence[Capability] = IN_PROCESS
) -> Inputs:
    """Check everything that a user gave. Raises `UserError` with the cure, the
    cheap checks first. `needs`: what a policy in memory must be able to do.
    """
    before = request.before
    for directory in request.directories:
        require_directory(directory)
    options, budget = request.environment_options or {}, request.budget or Budget()
    world, given = choose_environment(before, request.environment, options)
    tasks = world.tasks("held-out", budget.tasks, request.seed)
    place = resolve_device(request.device)
    load_plugin("forensics.policies", request.backend)  # an unknown one is refused at once
    for note in world_notes(world):
        logging.getLogger("forensics").warning("%s: %s", world.name, note)
    listed = request.trained_tasks
    trained_file = None if listed is None else Path(listed).expanduser()
    trained = () if trained_file is None else read_task_list(trained_file)
    training = request.training
    run = None if training is None else open_record(Path(training).expanduser(), progress)
    recipe = None if request.recipe is None else Path(request.recipe).expanduser()
    if recipe is not None:
        recipe_key(recipe)  # an unreadable one is refused at once
    subjects = inspect_subjects(
        before, request.afters, progress, needs, backend=request.backend, device=place
    )
    require_context(before, world, tasks, request.seed, budget.settings.max_tokens)
    if run is not None:
        require_same_start(run, subjects[0])
        if isinstance(run, DumpedRecord):
            logging.getLogger("forensics").warning("%s", run.told())
    return Inputs(
        subjects=subjects,
        environment=world,
        given=given,
        budget=budget,
        seed=request.seed,
        device=place,
        training=run,
        trained=trained,
        trained_file=trained_file,
        recipe=recipe,
        instruments=tuple(request.instruments),
        backend=request.backend,
        rule=rule_file(request.rule),
    )


def require_same_start(record: TrainingRecord, before: Subject) -> None:
    """The record must be of a run that started from the before checkpoint,
    where it says so by a hash: of the weights as they are saved, or as a trainer
    opens them in float32.
    """
    start, stated = record.run.start, before.stated
    if not isinstance(stated, Checkpoint) or not re.fullmatch("[0-9a-f]{16,64}", start):
        return
    known = stated.weights.startswith(start) or widened_hash(Path(stated.path)).startswith(start)
    if not known:
        raise UserError(
            f"the training record in {record.folder} started from other weights ({start[:16]}) than"
            f" {stated.path} ({before.identity}); give the record of the run that led from --before"
            " to --after"
        )


def choose_environment(
    before: Given, environment: Environment | str | None, options: Mapping[str, str]
) -> tuple[Environment, Mapping[str, str]]:
    """The world by name, or the one that the before directory's
    `environment.json` names, and its options.

    Options that are given override those of the file.
    """
    if environment is not None and not isinstance(environment, str):
        if options:
            raise UserError(
                "options belong to an environment's name; give them to the environment object"
                " itself"
            )
        return environment, {}
    directory = isinstance(before, str | PathLike)
    hint = read_environment_hint(fspath(before)) if isinstance(before, str | PathLike) else None
    if environment is None and hint is None:
        if isinstance(before, str | PathLike):
            require_directory(Path(before).expanduser())
        raise UserError(
            f"{before if directory else 'a model in memory'} does not say which world it was"
            " trained for; name one with --env"
        )
    if hint is not None and environment in (None, hint.name):
        options = {**hint.options, **options}
    name = hint.name if hint is not None and environment is None else str(environment)
    return build_environment(name, options), options


def build_environment(name: str, options: Mapping[str, str]) -> Environment:
    """An installed environment with its options; what it does not know is
    refused in one sentence.
    """
    try:
        kind = load_plugin("forensics.environments", name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"the environment {name} cannot be loaded ({error}); reinstall the package it is in"
        ) from error
    signature = inspect.signature(kind)
    try:
        signature.bind(**options)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise UserError(
            f"the environment {name} refuses these options ({error}); it has: {known}"
        ) from None
    world: Environment = kind(**options)
    return world


def world_notes(world: Environment) -> tuple[str, ...]:
    """What a world wants its verdicts' readers to know (`notes`, which a world need not have)."""
    return tuple(str(note) for note in getattr(world, "notes", ()))


def read_task_list(path: Path) -> tuple[str, ...]:
    """The tasks of a list: a name or a prompt a line, without repeats; a line that
    is a JSON string may hold line breaks. Raises `UserError`.
    """
    cure = "give a text file with the name or the prompt of a task on each line"
    text = read_text(path, "", cure, encoding="utf-8-sig")
    lines = (line.strip() for line in text.split("\n"))
    found = tuple(dict.fromkeys(_unquoted(line) for line in lines if line))
    if not found:
        raise UserError(f"{path} lists no tasks; write the name or the prompt of one on each line")
    return found


def _unquoted(line: str) -> str:
    if not line.startswith('"'):
        return line
    try:
        value = parse_json(line)
    except ValueError:
        return line
    return value if isinstance(value, str) else line
