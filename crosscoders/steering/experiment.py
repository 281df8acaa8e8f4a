"""`forensics steer`: from a file, or options, to `steering.json` and a page of curves.

1. File, pair, worlds, dictionary, texts are checked; their hashes are stated before
   anything is played, and a resumed folder must have the same.
2. On the *choosing* tasks the after policy's unsteered runs are read at each position:
   what `top:N` and `contrast:N` rank, median values, mean and components of the difference.
3. On the *reported* tasks everything is run that `experiment_arms` plans. Nothing is chosen
   there: strengths are those of the file.
4. Beside the measure: success in another world (not of the random directions), and the KL
   divergence on harmless texts.
5. Parts are stored as they are done (`Bench.play`), so a run that was killed goes on.

What a change costs on texts that have nothing to do with it.

The policy reads each text twice at once, as it is and with the change at *every* token
(no action is decided in a text, so no position is chosen; a change that acts at decisions
alone costs less). Told is the KL divergence of what comes next, unchanged against changed,
nats a token, with an interval over texts.

Conditions played on the reported tasks, each one row: the measure, and what else changes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.outlier_positions import norms_of
from crosscoders.activations.streams import TokenizedText, read_texts
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import dictionary_key, load_dictionary, read_metadata
from crosscoders.steering.activation_edits import SIDES, Change, other_side, principal_directions
from crosscoders.steering.evaluation import (
    ALWAYS,
    FOLDER,
    Bench,
    Condition,
    choose_measure,
    difference_of,
    plain_estimate,
    row_of,
)
from crosscoders.steering.experiment_arms import DRAWN, Arm, Run, planned
from crosscoders.steering.experiment_file import (
    COMPONENTS,
    Experiment,
    ExperimentTable,
    SteeringConfig,
    of_options,
)
from crosscoders.steering.experiment_result import Found, dose_page, result_of
from crosscoders.steering.interventions import changed, parse_position
from crosscoders.steering.readings import (
    FedDictionary,
    parse_features,
    pick,
    read_bench,
    table_beside,
)
from forensics.budget import Budget
from forensics.errors import UserError
from forensics.investigation import (
    CaseRequest,
    Inputs,
    build_environment,
    case_identities,
    check_inputs,
)
from forensics.policies import Given, attach, kl_divergence
from forensics.progress import Progress, counted, part_of, silent
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import (
    canonical_json,
    content_hash,
    read_json,
    require_file,
    write_atomically,
    write_json,
)
from forensics.statistics import ratio
from forensics.study import Folder, Result, run_study
from forensics.subjects import opened

SHORTEST = 2  # tokens of a text that predicts something


def first_tokens(texts: Sequence[TokenizedText], most: int) -> list[TokenizedText]:
    """The first texts with no more than `most` tokens, at least one."""
    kept: list[TokenizedText] = []
    for text in texts:
        if len(text) < SHORTEST:
            continue
        if kept and sum(map(len, kept)) + len(text) > most:
            break
        kept.append(text)
    return kept


def text_cost(
    policy: Policy,
    companion: Policy,
    texts: Sequence[TokenizedText],
    change: Change,
    *,
    site: str,
    limit: float | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """`estimate`, `low`, `high` (`None` with one text alone), `tokens`, `texts`.
    `companion`: the other policy, read where the change needs it. `limit`: of the norm;
    what is beyond it stays.
    """
    change = change.to(policy.model.device)
    sums: dict[str, tuple[float, int]] = {}
    for text in counted(texts, progress, "reading harmless texts", len(texts)):
        divergence, tokens = _of_text(policy, companion, text, change, site, limit)
        had = sums.get(text.note.task, (0.0, 0))
        sums[text.note.task] = (had[0] + divergence, had[1] + tokens)
    parts, wholes = np.array(list(sums.values()), dtype=np.float64).T
    told: dict[str, Any] = {"tokens": int(wholes.sum()), "texts": len(sums)}
    if len(parts) < 2:
        return told | {"estimate": float(parts.sum() / wholes.sum()), "low": None, "high": None}
    found = ratio(parts, wholes, reach=0.0)
    return told | {"estimate": found.estimate, "low": max(found.low, 0.0), "high": found.high}


@torch.inference_mode()
def _of_text(
    policy: Policy,
    companion: Policy,
    text: TokenizedText,
    change: Change,
    site: str,
    limit: float | None,
) -> tuple[float, int]:
    ids, theirs = text.token_ids.tolist(), None
    if change.needs_other:
        theirs = torch.from_numpy(companion.activations([ids], [site])[0][site])
    read = 0  # positions come in order, a window at a time

    def edit(activation: Tensor) -> Tensor:
        nonlocal read
        here = slice(read, read + activation.shape[1])
        read = here.stop
        mask = torch.zeros(activation.shape[:2], dtype=torch.bool, device=activation.device)
        mask[1] = True if limit is None else norms_of(activation[1]) <= limit
        other = None if theirs is None else theirs[here].to(activation.device).expand(2, -1, -1)
        return changed(change, activation, other, mask)

    total, number = 0.0, 0
    windows = policy.distributions([ids] * 2, SamplingSettings())
    handle = attach(policy.model, site, edit)
    try:
        for _, _, logs in windows:
            total += float(kl_divergence(logs[0], logs[1]).sum())
            number += logs.shape[1]
    finally:
        handle.remove()
    return total, number


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The reported tasks, the world of the side effects (`None` without one) with its tasks,
    and the harmless texts.
    """

    tasks: tuple[str, ...]
    elsewhere: Environment | None
    elsewhere_tasks: tuple[str, ...]
    texts: Sequence[TokenizedText]

    def row(self, run: Run, measure: str, number: int, of: int) -> dict[str, Any]:
        """A row of `steering.json`."""
        bench, condition, acting = run.bench, run.condition, run.condition.acting
        told = part_of(bench.progress, f"steering, {condition.role}", number, of)
        told("", 0, 1)
        first, second, third = (part_of(told, "", step, 3) for step in range(3))
        plain = {side: Condition(role="unsteered", acting=side) for side in SIDES}
        outcomes = replace(bench, progress=first).play(condition, self.tasks)
        base = bench.play(plain[acting], self.tasks)
        goal = bench.play(plain[other_side(acting)], self.tasks)
        gained = difference_of(outcomes.of("success"), base.of("success"))
        split = "report" if run.told else "dose"
        return row_of(condition, split, measure, outcomes, base, goal) | {
            "set": run.set,
            "at": run.at,
            "success_effect": plain_estimate(gained),
            "elsewhere": self._elsewhere(run, second),
            "kl": self._kl(run, third),
        }

    def _elsewhere(self, run: Run, progress: Progress) -> dict[str, Any] | None:
        """Success in the other world, and how it differs from the same policy unsteered."""
        world, condition = self.elsewhere, run.condition
        if world is None or condition.role in DRAWN:
            return None
        bench, tasks = replace(run.bench, environment=world), self.elsewhere_tasks
        plain = Condition(role="unsteered", acting=condition.acting)
        base = bench.play(plain, tasks)
        outcomes = replace(bench, progress=progress).play(condition, tasks)
        row = row_of(condition, "elsewhere", "success", outcomes, base, base)
        return {name: row[name] for name in ("success", "effect", "handed_in", "n")}

    def _kl(self, run: Run, progress: Progress) -> dict[str, Any] | None:
        bench, condition = run.bench, run.condition
        if not self.texts or condition.change is None:
            return None
        request = [condition.content(), bench.identity, bench.position.name]
        path = bench.folder / FOLDER / f"kl-{content_hash(request)}.json"
        if not path.exists():
            sides = bench.before, bench.after
            acting, other = sides if condition.acting == "before" else sides[::-1]
            limit = bench.limit(condition.acting)
            cost = text_cost(
                acting,
                other,
                self.texts,
                condition.change,
                site=bench.site,
                limit=limit,
                progress=progress,
            )
            write_json(path, cost)
        found: dict[str, Any] = read_json(path)
        return found


COPY: Final = "experiment.toml"
COMPARING: Final = "finding what differs most"


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What was checked. `stated`: hashes and settings, no paths. `elsewhere`: the world of
    the side effects, `None` without one.
    """

    inputs: Inputs
    dictionary: Dictionary | None
    site: str
    elsewhere: Environment | None
    stated: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SteeringExperiment:
    """A file, carried out. `before`, `after`, `environment`: models in memory and a world, in
    place of those that the file names. `settings`: of sampling (default: the file's).
    """

    experiment: Experiment
    before: Given | None = None
    after: Given | None = None
    environment: Environment | None = None
    settings: SamplingSettings | None = None
    device: str = "auto"
    backend: str = "huggingface"
    name: ClassVar = "steering"
    files: ClassVar = (FOLDER, COPY)

    @property
    def table(self) -> ExperimentTable:
        return self.experiment.table

    @property
    def sampling(self) -> SamplingSettings:
        return self.settings or SamplingSettings(**self.table.sampling)  # type: ignore[arg-type]

    def check(self, folder: Folder) -> Ready:
        """Everything that the file names. Raises `UserError` for what is not there."""
        table, place = self.table, self.experiment.place
        for position in table.at:
            parse_position(position)
        dictionary = None if table.dictionary is None else load_dictionary(place(table.dictionary))
        _require_features(table, dictionary)
        site = table.site
        if site is None and table.dictionary is not None:
            site = read_metadata(place(table.dictionary)).get("site")
        if not isinstance(site, str) or site == "synthetic":
            raise UserError(
                f"{table.dictionary} does not say at which site it was trained; give --site, in an"
                ' experiment file site = "blocks.N.hook_resid_post"'
            )
        inputs = check_inputs(self._request(), folder.progress)
        _require_measure(table.measure, inputs.environment)
        elsewhere = self._elsewhere(inputs.environment)
        stated = self._stated(inputs, site, elsewhere)
        return Ready(
            inputs=inputs, dictionary=dictionary, site=site, elsewhere=elsewhere, stated=stated
        )

    def _request(self) -> CaseRequest:
        table = self.table
        for name in ("before", "after"):
            if getattr(self, name) is None and getattr(table, name) is None:
                raise UserError(
                    f"the experiment {self.experiment.path} names no {name}; add {name} = "
                    '"FOLDER", a checkpoint directory'
                )
        budget = Budget(
            tasks=table.tasks + table.choosing, samples=table.samples, settings=self.sampling
        )
        return CaseRequest(
            before=self.before or self.experiment.place(table.before or ""),
            after=self.after or self.experiment.place(table.after or ""),
            environment=self.environment or table.env,
            environment_options=table.env_option,
            budget=budget,
            seed=table.seed,
            device=self.device,
            backend=self.backend,
        )

    def _elsewhere(self, environment: Environment) -> Environment | None:
        effects = self.table.side_effects
        if effects.elsewhere == "none":
            return None
        if effects.elsewhere != "scrubbed":
            return build_environment(effects.elsewhere, effects.options)
        names = [channel.name for channel in environment.channels]
        return environment.without(*names) if names else None

    def _stated(self, inputs: Inputs, site: str, elsewhere: Environment | None) -> dict[str, Any]:
        table, place = self.table, self.experiment.place
        given: dict[str, Any] = {"site": site, "the experiment": self.experiment.sha256}
        if table.dictionary is not None:
            given["dictionary"] = dictionary_key(place(table.dictionary))
            ranked = any(name.startswith("top:") for name in table.features)
            latents = self._latents() if ranked else None
            given["latents"] = None if latents is None else _sha256(latents)
        if table.side_effects.texts is not None:
            texts = place(table.side_effects.texts)
            require_file(texts, "the harmless texts ", "give a text file or .jsonl")
            given["texts"] = _sha256(texts)
        if elsewhere is not None:
            given["elsewhere"] = {"name": elsewhere.name, "options": dict(elsewhere.options)}
        return {**case_identities(inputs.stated()), **given}

    def _latents(self) -> Path | None:
        assert self.table.dictionary is not None, "a table of latents lies beside a dictionary"
        given = self.table.latents and self.experiment.place(self.table.latents)
        return table_beside(self.experiment.place(self.table.dictionary), given or None)

    def inputs(self, ready: Ready) -> dict[str, Any]:
        return ready.stated

    def run(self, ready: Ready, folder: Folder) -> dict[str, Any]:
        table, benches = self.table, self._benches(ready, folder)
        choosing, reporting = _split(ready.inputs.environment, table)
        measure, missing = _measure(benches[0], choosing, table), _not_given(ready, table)
        arms = self._arms(ready, benches, choosing, measure)
        runs = planned(arms, table, measure, missing)
        played = Reported(
            tasks=reporting,
            elsewhere=ready.elsewhere,
            elsewhere_tasks=() if ready.elsewhere is None else _split(ready.elsewhere, table)[1],
            texts=self._texts(benches[0]),
        )
        found = Found(
            measure=measure,
            rows=[played.row(run, measure, number, len(runs)) for number, run in enumerate(runs)],
            missing=missing,
            sinks=any(arm.readings.limits is not None for arm in arms),
            latents={arm.name: list(arm.features) for arm in arms if arm.reader},
        )
        folder.progress("steering", len(runs), len(runs))
        return result_of(found, table, self._cited(ready))

    def _cited(self, ready: Ready) -> dict[str, Any]:
        """Hashes of the file and of what it names, and what they are of."""
        inputs = {name: one for name, one in ready.stated.items() if name != "the experiment"}
        return {
            "experiment_sha256": self.experiment.sha256,
            "inputs_sha256": hashlib.sha256(canonical_json(inputs).encode()).hexdigest(),
            "inputs": inputs,
        }

    def _benches(self, ready: Ready, folder: Folder) -> list[Bench]:
        before, after = opened(ready.inputs.subjects, folder.progress)
        return [
            Bench(
                before=before,
                after=after,
                environment=ready.inputs.environment,
                site=ready.site,
                position=parse_position(position),
                settings=self.sampling,
                samples=self.table.samples,
                seed=self.table.seed,
                folder=folder.path,
                identity=content_hash(ready.stated),
                progress=folder.progress,
            )
            for position in self.table.at
        ]

    def _texts(self, bench: Bench) -> list[TokenizedText]:
        effects = self.table.side_effects
        if effects.texts is None:
            return []
        path = self.experiment.place(effects.texts)
        return first_tokens(read_texts(path, bench.after.tokenizer, length=256), effects.tokens)

    def _arms(
        self, ready: Ready, benches: Sequence[Bench], choosing: Sequence[str], measure: str
    ) -> list[Arm]:
        table, arms = self.table, []
        asked = [int(found[1]) for name in table.features if (found := COMPONENTS.fullmatch(name))]
        for bench in benches:
            readings = read_bench(bench, choosing, measure, table.keep_outliers)
            bench.progress(COMPARING, 0, 1)
            components = principal_directions(readings.here, max([1, *table.projected, *asked]))
            bench.progress(COMPARING, 1, 1)
            blank = Arm(
                name="",
                bench=replace(bench, limits=readings.limits),
                readings=readings,
                table=table,
                components=components,
            )
            arms += [self._arm(ready, name, blank) for name in table.features]
        return arms

    def _arm(self, ready: Ready, name: str, blank: Arm) -> Arm:
        if found := COMPONENTS.fullmatch(name):
            if int(found[1]) > len(blank.components):
                raise UserError(
                    f"the models' difference has {len(blank.components)} principal components at"
                    f" {ready.site}, so {name} cannot be projected out; ask for fewer"
                )
            return replace(blank, name=name, number=int(found[1]))
        dictionary, width = ready.dictionary, blank.readings.here.shape[-1]
        assert dictionary is not None and self.table.dictionary is not None, "checked in the file"
        if dictionary.config.width != width:
            raise UserError(
                f"{self.table.dictionary} was trained at a width of {dictionary.config.width} and"
                f" {ready.site} has {width}; give the dictionary of this pair and site"
            )
        device = blank.bench.after.model.device
        reader = FedDictionary(
            dictionary=dictionary.to(device),
            encoding=self.table.encode_from,
            progress=blank.bench.progress,
        )
        asked = parse_features(name)
        table = self._latents() if asked.rule == "top" else None
        features = pick(asked, reader, blank.readings, table)
        key = ready.stated["dictionary"]
        return replace(blank, name=name, reader=reader, key=key, features=features)

    def write(self, found: dict[str, Any], folder: Folder) -> Result:
        write_atomically(folder.path / COPY, self.experiment.content)
        return Result(summary=found, sentences=tuple(found["sentences"]), page=dose_page(found))


def steering_of(
    before: Given,
    after: Given,
    environment: Environment | str | None = None,
    *,
    config: SteeringConfig | None = None,
    settings: SamplingSettings | None = None,
    options: Mapping[str, str] | None = None,
    device: str = "auto",
    backend: str = "huggingface",
    **asked: Any,
) -> SteeringExperiment:
    """What options state. `asked`: further keys of a file (`dictionary`, `features`, ...). Raises
    `UserError` for what cannot be meant.
    """
    named = isinstance(environment, str)
    asked |= {"env": environment if named else None, "env_option": dict(options or {})}
    keys = {name: str(one) if isinstance(one, Path) else one for name, one in asked.items()}
    return SteeringExperiment(
        experiment=of_options(config or SteeringConfig(), **keys),
        before=before,
        after=after,
        environment=None if isinstance(environment, str) else environment,
        settings=settings,
        device=device,
        backend=backend,
    )


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
    `asked`: see `steering_of`. Raises `UserError` for bad input.
    """
    study = steering_of(before, after, environment, **asked)
    return run_study(study, Path(out), resume=resume, force=force, progress=progress).summary


def _split(
    environment: Environment, table: ExperimentTable
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    tasks = environment.tasks("held-out", table.tasks + table.choosing, table.seed)
    return tuple(tasks[: table.choosing]), tuple(tasks[table.choosing :])


def _not_given(ready: Ready, table: ExperimentTable) -> dict[str, str]:
    missing = {}
    if table.side_effects.texts is None:
        missing["KL divergence"] = "no harmless texts were given; add texts to [side_effects]"
    if ready.elsewhere is None:
        missing["success elsewhere"] = (
            "no other world is there; add elsewhere, an environment, to [side_effects]"
        )
    return missing


def _require_features(table: ExperimentTable, dictionary: Dictionary | None) -> None:
    for name in table.features:
        if dictionary is None or COMPONENTS.fullmatch(name):
            continue
        latents = dictionary.config.partition.latents
        for latent in parse_features(name).listed:
            if latent >= latents:
                raise UserError(
                    f"there is no latent {latent} in {table.dictionary}, which has 0 to"
                    f" {latents - 1}; name others in features"
                )


def _require_measure(measure: str | None, environment: Environment) -> None:
    what, _, name = (measure or "success").partition(":")
    known = [channel.name for channel in environment.channels]
    if what == "channel" and name not in known:
        raise UserError(f"this world has no channel '{name}'; it has: {', '.join(known) or 'none'}")
    if what not in ("channel", "kind") and measure not in (None, *ALWAYS):
        raise UserError(
            f"there is no measure '{measure}'; use {', '.join(ALWAYS)}, channel:NAME or kind:NAME"
        )


def _measure(bench: Bench, tasks: Sequence[str], table: ExperimentTable) -> str:
    """The measure of the file, or the channel that differs most on the choosing tasks. Raises
    `UserError` for a kind that neither policy uses.
    """
    before, after = (
        bench.play(Condition(role="unsteered", acting=side), tasks) for side in ("before", "after")
    )
    measure = table.measure or choose_measure(before, after, bench.environment.channels)
    if measure.startswith("kind:") and not any(measure in one.measures for one in (before, after)):
        kinds = {name for one in (before, after) for name in one.measures if "kind:" in name}
        raise UserError(
            f"neither policy takes an action of the kind in {measure} on {len(tasks)} tasks; their"
            f" kinds are: {', '.join(sorted(kinds)) or 'none'}"
        )
    return measure


def _sha256(path: str | PathLike[str]) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
