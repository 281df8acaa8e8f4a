"""`steer`: from checkpoints and dictionaries in folders to `steering.json`.

1. The pair, the world and the dictionaries are checked; what a resumed folder
   was started with must be the same.
2. Held-out tasks are split in two: strengths (and `top:N`) are chosen on the
   first part, everything is reported on the second.
3. Results are stored part by part (`playing`); `steering.json` is written once,
   at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

from crosscoders.activations.outlier_positions import TIMES
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import (
    dictionary_key,
    load_dictionary,
    read_metadata,
)
from crosscoders.steering.activation_edits import SIDES
from crosscoders.steering.conditions import SteeringConfig, Subject
from crosscoders.steering.evaluation import FOLDER, Bench, Condition
from crosscoders.steering.interventions import parse_position
from crosscoders.steering.readings import (
    Asked,
    FedDictionary,
    Readings,
    parse_features,
    pick,
    read_pairs,
    table_beside,
    uses_of,
    with_and_without,
)
from crosscoders.steering.steer_study import (
    Steered,
    Study,
    choose_measure,
    rows_of,
    sentences,
    summary_of,
)
from forensics.budget import Budget
from forensics.errors import UserError
from forensics.investigation import CaseRequest, Inputs, case_identities, check_inputs
from forensics.policies import Given
from forensics.progress import Progress, counted, silent
from forensics.protocols import Environment, SamplingSettings
from forensics.records import SCHEMA_VERSION, content_hash
from forensics.study import Folder, Result, run_study
from forensics.subjects import opened
from forensics.version import code_version

READING: Final = "reading both models"


@dataclass(frozen=True, kw_only=True)
class Steer:
    """What `forensics steer` is asked, and how it is carried out. `features`: see
    `readings`. `against`: a further dictionary for the curve of saturation.
    `latents`: the table that `top:N` keeps to; by default `latents.parquet` beside
    the dictionary, where it is. `site`: by default the one that the dictionary was
    trained at. `tasks` are reported on, `choosing` chosen on. `keep_outliers`: change
    attention sinks too.
    """

    before: Given
    after: Given
    environment: Environment | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    dictionary: Path
    features: str
    against: Path | None = None
    latents: Path | None = None
    site: str | None = None
    at: str = "deciding"
    tasks: int = 200
    choosing: int = 100
    samples: int = 4
    settings: SamplingSettings = field(default_factory=SamplingSettings)
    seed: int = 0
    device: str = "auto"
    backend: str = "huggingface"
    keep_outliers: bool = False
    config: SteeringConfig = field(default_factory=SteeringConfig)
    name: ClassVar = "steering"
    files: ClassVar = (FOLDER,)

    def __post_init__(self) -> None:
        parse_features(self.features)
        if min(self.tasks, self.choosing) < 2:
            raise UserError("both splits need two tasks or more; raise --tasks or --choosing")
        if self.samples < 1:
            raise UserError(f"samples is {self.samples} and must be 1 or more")

    def check(self, folder: Folder) -> tuple[Inputs, Dictionary, dict[str, Any]]:
        """The pair, the dictionary, and the request without paths: dictionaries by
        their hashes.
        """
        parse_position(self.at)
        dictionary = load_dictionary(self.dictionary)
        site = self.site or read_metadata(self.dictionary).get("site")
        if not isinstance(site, str) or site == "synthetic":
            raise UserError(
                f"{self.dictionary} does not say at which site it was trained; give --site"
            )
        budget = Budget(
            tasks=self.tasks + self.choosing, samples=self.samples, settings=self.settings
        )
        case = CaseRequest(
            before=self.before,
            after=self.after,
            environment=self.environment,
            environment_options=self.options,
            budget=budget,
            seed=self.seed,
            device=self.device,
            backend=self.backend,
        )
        inputs = check_inputs(case, folder.progress)
        same = ("features", "at", "tasks", "choosing", "samples", "seed")
        request = {name: getattr(self, name) for name in same} | {
            "dictionary": dictionary_key(self.dictionary),
            "against": self.against and dictionary_key(self.against),
            "latents": self.latents and content_hash(self.latents.read_bytes().hex()),
            "site": site,
            "settings": self.settings.content(),
            "config": {**asdict(self.config), "strengths": list(self.config.strengths)},
            **({"keep_outliers": True} if self.keep_outliers else {}),
        }
        return inputs, dictionary, request

    def inputs(self, ready: tuple[Inputs, Dictionary, dict[str, Any]]) -> dict[str, Any]:
        inputs, _, request = ready
        return {**case_identities(inputs.stated()), **request}

    def run(
        self, ready: tuple[Inputs, Dictionary, dict[str, Any]], folder: Folder
    ) -> dict[str, Any]:
        inputs, dictionary, request = ready
        subjects = inputs.subjects
        before, after = opened(subjects, folder.progress)
        bench = Bench(
            before=before,
            after=after,
            environment=inputs.environment,
            site=request["site"],
            position=parse_position(self.at),
            settings=self.settings,
            samples=self.samples,
            seed=self.seed,
            folder=folder.path,
            identity=content_hash([request, *inputs.identities]),
            progress=folder.progress,
        )
        stated = {"pair": inputs.stated(), "request": request}
        result = _run(bench, inputs, self, dictionary)
        return {"schema_version": SCHEMA_VERSION, "inputs": stated, **result}

    def write(self, found: dict[str, Any], folder: Folder) -> Result:
        return Result(summary=found, sentences=tuple(found["sentences"]))


def steer(
    before: Given,
    after: Given,
    environment: Environment | str | None = None,
    *,
    out: str | PathLike[str],
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
    **asked: Any,
) -> dict[str, Any]:
    """Test features causally. Writes the folder `out`; returns what its
    `steering.json` says. `before`, `after`: directories, or policies in memory.
    `asked`: further fields of `Steer`. Raises `UserError` for bad input.
    """
    study = Steer(before=before, after=after, environment=environment, **asked)
    return run_study(study, Path(out), resume=resume, force=force, progress=progress).summary


def _run(bench: Bench, inputs: Inputs, request: Steer, dictionary: Dictionary) -> dict[str, Any]:
    """The study on a bench, as plain values."""
    tasks = inputs.environment.tasks("held-out", request.tasks + request.choosing, request.seed)
    choosing, reporting = tuple(tasks[: request.choosing]), tuple(tasks[request.choosing :])
    before, after = (
        bench.play(Condition(role="unsteered", acting=side), choosing) for side in SIDES
    )
    measure = request.config.measure or choose_measure(before, after, bench.environment.channels)
    kind, _, name = measure.partition(":")
    known = [channel.name for channel in bench.environment.channels]
    if kind == "channel" and name not in known:
        raise UserError(f"this world has no channel '{name}'; it has: {', '.join(known) or 'none'}")
    for outcomes in (before, after):
        outcomes.of(measure)  # refuses a measure that no run has
    readings = read_bench(bench, choosing, measure, request.keep_outliers)
    bench = replace(bench, limits=readings.limits)
    subjects = [_subject(request, dictionary, request.dictionary, "dictionary", readings, bench)]
    if request.against is not None:
        other = load_dictionary(request.against)
        subjects.append(_subject(request, other, request.against, "against", readings, bench))
    study = Study(
        bench=bench, choosing=choosing, reporting=reporting, config=request.config, measure=measure
    )
    result = plain_result(study.run(subjects), subjects, request.config.level)
    if readings.limits is not None:
        result["sentences"].append(
            f"Attention sinks (rows with more than {TIMES:g} times the median norm at"
            f" {bench.site}) were left as they are."
        )
    return result


def plain_result(steered: Steered, subjects: Sequence[Subject], level: float) -> dict[str, Any]:
    """What `steering.json` holds of a study, beside its inputs."""
    rows = rows_of(steered, level)
    return {
        "measure": steered.measure,
        "direction": steered.direction,
        "chosen_strengths": steered.strengths,
        "features": {subject.name: list(subject.features) for subject in subjects},
        "level": level,
        "broken": list(steered.broken),
        "missing": steered.missing,
        "summary": summary_of(steered, rows),
        "sentences": sentences(steered, rows),
        "rows": rows,
        "code": code_version(),
    }


def read_bench(
    bench: Bench, tasks: Sequence[str], measure: str, keep_outliers: bool = False
) -> Readings:
    """The activations of both models on unsteered runs of the after policy, one a task.
    Where no action tells what is measured, as in a world of one turn, also on
    runs in which the channels' content is taken out.
    """
    uses = uses_of(measure, bench.environment.channels)

    def read(environment: Environment, name: str) -> Readings:
        seed = int(content_hash([bench.seed, name], 15), 16)
        played = bench.after.play(environment, tasks, 1, bench.settings, seed)
        # all are played before one is read: their inference mode ends there
        runs = [*counted(played, bench.progress, "playing, to be read", len(tasks))]
        found = read_pairs(
            bench.before,
            bench.after,
            counted(runs, bench.progress, READING, len(runs)),
            site=bench.site,
            position=bench.position,
            steps=bench.steps(),
            uses=uses,
            keep_outliers=keep_outliers,
        )
        bench.progress(READING, len(runs), len(runs))  # where the first ones were enough
        return found

    found = read(bench.environment, "after")
    channels = [channel.name for channel in bench.environment.channels]
    if not channels or bool(found.used.any()) != bool(found.used.all()):
        return found
    return with_and_without(found, read(bench.environment.without(*channels), "scrubbed"))


def _subject(
    request: Steer,
    dictionary: Dictionary,
    folder: Path,
    name: str,
    readings: Readings,
    bench: Bench,
) -> Subject:
    width = readings.here.shape[-1]
    if dictionary.config.width != width:
        raise UserError(
            f"{folder} was trained at a width of {dictionary.config.width} and this site has"
            f" {width}; give the dictionary of this pair and site"
        )
    reader = FedDictionary(
        dictionary=dictionary.to(bench.after.model.device),
        encoding=request.config.encoding,
        progress=bench.progress,
    )
    asked = parse_features(request.features)
    first = name == "dictionary"
    if not first and asked.rule == "listed":  # latents of another dictionary mean nothing here
        asked = Asked(rule="top", number=asked.number)
    table = table_beside(folder, request.latents if first else None)
    return Subject(
        name=name,
        key=dictionary_key(folder),
        reader=reader,
        features=pick(asked, reader, readings, table),
        config=request.config,
        readings=readings,
        seed=request.seed,
    )
