"""The positive controls, seed by seed; writes `table.json` and `table.md`: `python -m experiments.one_feature`."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosscoders.dictionary import Dictionary, DictionaryConfig
from crosscoders.fitting import FittingSettings, Job, fit_many
from crosscoders.fitting.baselines import difference_view, principal_parts
from crosscoders.harvest import HarvestStream, harvest, texts_of
from crosscoders.partition import Partition
from experiments.one_feature.first_decision import (
    Decisions,
    along,
    latent_contributions,
    mean_difference,
    pick,
    read_decisions,
)
from experiments.one_feature.measuring import carries, effects
from forensics.cli.progress import progress_bars
from forensics.policies.huggingface import HuggingFacePolicy, load_policy
from forensics.protocols import SamplingSettings
from forensics.records.files import read_json, write_atomically, write_json
from training.environments.mini_repo import MiniRepo
from training.organisms.building import build_organism
from training.organisms.cues import first_prompts, has_cue

FOLDER = Path(__file__).parent
CONTROLS = ("planted", "installed")
SITE = "blocks.2.hook_resid_post"
RULED = "dedicated"
TASKS, RUNS = 600, 300
SETTINGS = FittingSettings(tokens=200_000, batch=512, learning_rate=2e-3)
PARTITIONS = {
    RULED: Partition(latents=256, after_only=8, tied=True, readers="all"),
    "dedicated, own readers": Partition(latents=256, after_only=8, tied=True), "plain": Partition(latents=256),
}
OWN_K, PARTING = 1.0, (1.0, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--organism", action="append", choices=CONTROLS, help="only this one (again and again)")
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/one-feature"))
    arguments = parser.parse_args()
    rows = []
    with progress_bars() as progress:
        for name in arguments.organism or CONTROLS:
            for seed in range(arguments.seeds):
                folder = arguments.cache / f"{name}-{seed}"
                if not (folder / "manifest.json").exists():
                    build_organism(name, seed, folder, progress)
                if not (folder / "effects.json").exists():
                    write_json(folder / "effects.json", one_seed(name, seed, folder))
                rows.append(read_json(folder / "effects.json"))
    write_json(FOLDER / "table.json", {"rows": rows, "planned": 3 * len(CONTROLS)})
    write_atomically(FOLDER / "table.md", markdown(rows))
    print((FOLDER / "table.md").read_text())


def one_seed(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train the dictionaries, pick, ablate, add."""
    planted = read_json(folder / "manifest.json")["planted"]
    before, after = (load_policy(folder / part, device="cpu", dtype="float32") for part in ("base", "after"))
    world = MiniRepo(**read_json(folder / "base" / "environment.json")["options"])
    stream = _stream(before, after, world, seed)
    dictionaries = _train(stream, seed)
    tasks = world.tasks("held-out", TASKS, 1000 + seed)
    cued = np.array([has_cue(task, world.options["world"]) for task in tasks])
    prompts = first_prompts(before, world, tasks)
    decisions = read_decisions(before, after, prompts, cued, SITE, planted["action"])
    coin = np.random.default_rng([seed, 9]).random(TASKS) < 0.5
    halves = decisions.take(coin), decisions.take(~coin)
    picked, claimed = _claims(dictionaries, stream, *halves)
    found = effects(*halves, claimed, RULED, seed)
    cosine = None
    if "direction" in planted:
        cosine = float(torch.cosine_similarity(picked[RULED], torch.tensor(planted["direction"]), dim=0))
    carried = carries(found, RULED) and (cosine is None or cosine >= 0.9)
    return {"organism": name, "seed": seed, "cosine": cosine, "carries": carried, **found}


def _stream(before: HuggingFacePolicy, after: HuggingFacePolicy, world: MiniRepo, seed: int) -> HarvestStream:
    settings = SamplingSettings(max_turn_tokens=16, max_tokens=256)
    tasks = world.tasks("train", RUNS, 500 + seed)
    runs = [run for number, policy in enumerate((before, after))
            for run in policy.play(world, tasks, 1, settings, 2 * seed + number)]
    return harvest([before, after], texts_of(runs), SITE)


def _train(stream: HarvestStream, seed: int) -> dict[str, Dictionary]:
    settings = replace(SETTINGS, seed=seed)
    apart = replace(settings, parting=PARTING[0], parting_last=PARTING[1])
    jobs = {
        name: Job(
            config=DictionaryConfig(
                width=stream.width, partition=part, k=12, own_k=OWN_K if name == RULED else None
            ),
            settings=apart if name == RULED else settings,
        )
        for name, part in PARTITIONS.items()
    }
    single = DictionaryConfig(width=stream.width, partition=Partition(latents=64), models=1, k=1)
    jobs["difference-SAE"] = Job(config=single, settings=settings, view=difference_view)
    return {name: each.dictionary for name, each in fit_many(stream, jobs).items()}


def _claims(
    dictionaries: dict[str, Dictionary], stream: HarvestStream, choosing: Decisions, reporting: Decisions
) -> tuple[dict[str, torch.Tensor], dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """The direction of each carrier, and its contributions on both halves."""
    picked: dict[str, torch.Tensor] = {}
    claimed = {}
    for name, dictionary in dictionaries.items():
        here, directions = latent_contributions(dictionary, choosing.residuals)
        there, _ = latent_contributions(dictionary, reporting.residuals)
        part = dictionary.config.partition
        allowed = slice(part.shared.stop, part.latents) if part.after_only else slice(0, part.latents)
        latent = pick(here, directions, choosing.cued, allowed)
        picked[name] = directions[latent]
        claimed[name] = (here[:, [latent]] * directions[latent], there[:, [latent]] * directions[latent])
    picked["PCA"] = principal_parts(stream).directions[0].float()
    picked["mean difference"] = mean_difference(choosing)
    for name in ("PCA", "mean difference"):
        claimed[name] = (along(choosing, picked[name]), along(reporting, picked[name]))
    return picked, claimed


def markdown(rows: list[dict[str, Any]]) -> str:
    """One table; the random directions as their largest."""
    lines = [
        "# Does one dedicated feature carry the change?", "",
        "Written by `python -m experiments.one_feature`. Shares of",
        "the difference between the models in the chance of the action at the first decision, with 95 % intervals over",
        f"tasks. {len(rows)} of {3 * len(CONTROLS)} planned runs are done.", "",
        "| organism | seed | carrier | cosine | strength | removed | installed |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| {row['organism']} | {row['seed']} |"
        for name, one in row["carriers"].items():
            cosine = f"{row['cosine']:.3f}" if name == RULED and row["cosine"] is not None else ""
            lines.append(f"{head} {name} | {cosine} | {one['strength']:g} | {_text(one['removed'])} | "
                         f"{_text(one['installed'])} |")
        largest = [max((one[what] or {"estimate": float("nan")})["estimate"] for one in row["random"])
                   for what in ("removed", "installed")]
        what = f"largest of {len(row['random'])} random directions"
        lines.append(f"{head} {what} | | | {largest[0]:.2f} | {largest[1]:.2f} |")
    carried = {name: [row["carries"] for row in rows if row["organism"] == name] for name in CONTROLS}
    told = [f"{sum(each)} of {len(each)} seeds of `{name}`" for name, each in carried.items() if each]
    lines += ["", f"By the rule the dedicated feature carries the behaviour in {', '.join(told)}."]
    return "\n".join([*lines, ""])


def _text(share: dict[str, float] | None) -> str:
    return "no difference" if share is None else f"{share['estimate']:.2f} ({share['low']:.2f} to {share['high']:.2f})"


if __name__ == "__main__":
    main()
