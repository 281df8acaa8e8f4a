"""The controls, then `leak`, seed by seed; writes `table.json` and `table.md`:
`python -m experiments.one_feature`.
"""

import argparse
from pathlib import Path
from typing import Any

from crosscoders.dictionaries import save_dictionary, train_crosscoders
from experiments.one_feature.claiming import claims
from experiments.one_feature.episodes import EpisodeSettings, play_episodes
from experiments.one_feature.measuring import effects, exchanged
from experiments.one_feature.pairs import Pair
from experiments.one_feature.settings import RULED, StudySettings
from experiments.one_feature.tables import ORGANISMS, QUESTION, SEEDS, carried, markdown, works
from forensics.cli import progress_bars
from forensics.progress import Progress
from forensics.records.files import read_json, write_atomically, write_json
from training.organisms import build_organism

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--organism", action="append", choices=ORGANISMS, help="only this one (again and again)"
    )
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/one-feature"))
    arguments = parser.parse_args()
    settings, episodes = StudySettings(), EpisodeSettings()
    wanted = [name for name in ORGANISMS if name in (arguments.organism or ORGANISMS)]
    with progress_bars() as progress:
        for name in wanted:
            if name == QUESTION and not works(read_rows(arguments.cache, settings, episodes)):
                print(
                    f"`{QUESTION}` is not read: the rule asks that both controls hold in {SEEDS}"
                    " seeds first"
                )
                continue
            for seed in range(arguments.seeds):
                run_seed(
                    arguments.cache / f"{name}-{seed}", name, seed, settings, episodes, progress
                )
    rows = read_rows(arguments.cache, settings, episodes)
    write_json(FOLDER / "table.json", {"rows": rows, "planned": SEEDS * len(ORGANISMS)})
    write_atomically(FOLDER / "table.md", markdown(rows, SEEDS * len(ORGANISMS)))
    print((FOLDER / "table.md").read_text())


def run_seed(
    folder: Path,
    name: str,
    seed: int,
    settings: StudySettings,
    episodes: EpisodeSettings,
    progress: Progress,
) -> None:
    """Build the pair and measure it, each where that was not done with these settings."""
    if not (folder / "manifest.json").exists():
        build_organism(name, seed, folder, progress)
    place = effects_of(folder, name, seed, settings)
    if not place.exists():
        write_json(place, measure(folder, name, seed, settings, dictionary_of(place)))
    if not _whole_of(place).exists():
        write_json(_whole_of(place), exchanged(Pair.load(folder, seed, settings).halves()[1]))
    if name == QUESTION:
        _play(folder, place, episodes, progress)


def measure(
    folder: Path, name: str, seed: int, settings: StudySettings, kept: Path
) -> dict[str, Any]:
    """Train the dictionaries, pick, ablate, add. The ruled dictionary is saved in `kept`."""
    pair = Pair.load(folder, seed, settings)
    stream = pair.stream()
    fitted = train_crosscoders(stream, settings.jobs(stream.width, seed))
    dictionaries = {each: fitted[each].dictionary for each in fitted}
    save_dictionary(dictionaries[RULED], kept, site=settings.site, seed=seed)
    choosing, reporting, contrast = pair.halves()
    claimed = claims(dictionaries, stream, choosing, reporting, contrast)
    found = effects(
        choosing,
        reporting,
        {each: (claim.here, claim.there) for each, claim in claimed.items()},
        RULED,
        seed,
        settings.strengths,
        settings.random,
    )
    return {
        "organism": name,
        "seed": seed,
        "cosine": pair.cosine(claimed[RULED].direction),
        **found,
        "latents": {
            each: claim.latent for each, claim in claimed.items() if claim.latent is not None
        },
    }


def effects_of(folder: Path, name: str, seed: int, settings: StudySettings) -> Path:
    """Where the effects of these settings on this very pair are kept."""
    told = read_json(folder / "manifest.json")
    return folder / f"effects-{settings.key(name, seed, (told['base'], told['after']))}.json"


def dictionary_of(place: Path) -> Path:
    """The ruled dictionary that effects come from."""
    return place.with_name(place.stem.replace("effects", "dictionary"))


def _play(folder: Path, place: Path, episodes: EpisodeSettings, progress: Progress) -> None:
    """Add the episodes to what was measured at first decisions."""
    row = read_json(place)
    kept, strength = dictionary_of(place), row["carriers"][RULED]["strength"]
    found = play_episodes(
        folder, kept, row["latents"][RULED], strength, row["seed"], episodes, progress
    )
    write_json(_episodes_of(place, episodes), found)


def _episodes_of(place: Path, episodes: EpisodeSettings) -> Path:
    return place.with_name(place.name.replace("effects", f"episodes-{episodes.key}"))


def _whole_of(place: Path) -> Path:
    """Where it is kept what the whole residual of the site tells."""
    return place.with_name(place.name.replace("effects", "whole"))


def read_rows(
    cache: Path, settings: StudySettings, episodes: EpisodeSettings
) -> list[dict[str, Any]]:
    """What was measured with these settings, in the order of the plan; what
    other settings gave is not read.
    """
    rows = []
    for name in ORGANISMS:
        for seed in range(SEEDS):
            folder = cache / f"{name}-{seed}"
            built = (folder / "manifest.json").exists()
            if not built or not (place := effects_of(folder, name, seed, settings)).exists():
                continue
            row = read_json(place)
            beside = {"episodes": _episodes_of(place, episodes), "whole": _whole_of(place)}
            told = {
                what: read_json(path) if path.exists() else None for what, path in beside.items()
            }
            rows.append(row | told | {"carries": carried(row)})
    return rows


if __name__ == "__main__":
    main()
