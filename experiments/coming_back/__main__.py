"""See rule.md."""

import argparse
from pathlib import Path
from typing import Any

import torch

from crosscoders import Block, latent_table
from crosscoders.latents.controls import NO_SHARE, same_pair
from crosscoders.latents.stability import stability
from crosscoders.study.diff_files import MOST_TOKENS, DiffRequest
from crosscoders.study.material import played, study_streams
from crosscoders.study.reported import reported
from experiments.coming_back.known_features import HeldStream, known_features
from experiments.coming_back.side_by_side import dictionaries
from forensics.budget import Budget
from forensics.investigation import CaseRequest, check_case, start_case
from forensics.progress import silent
from forensics.records import read_json, write_json
from forensics.study import Folder

HERE, BUNDLED = Path(__file__).parent, Path("training/bundled")
DIFF, FRESH = (1, 2, 3), tuple(range(1001, 1011))
IDENTICAL, FEW, ENOUGH = 20, 40_000, 8192  # pairs, tokens to train on, rows to judge on
SITE = "blocks.1.hook_resid_post"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="*", default=["leak", "honest", "known", "identical"])
    parser.add_argument("--cache", type=Path, default=Path(".truth-cache/coming-back"))
    asked = parser.parse_args()
    asked.cache.mkdir(parents=True, exist_ok=True)
    for pair in asked.pairs:
        if not (asked.cache / f"{pair}.json").is_file():
            found = identical(asked.cache) if pair == "identical" else fresh(pair, asked.cache)
            write_json(asked.cache / f"{pair}.json", found)
    done = {file.stem: read_json(file) for file in sorted(asked.cache.glob("*.json"))}
    write_json(HERE / "table.json", done)
    return 0


def fresh(pair: str, cache: Path) -> dict[str, Any]:
    """What the diff reports of a pair, and in how many fresh dictionaries each of it is."""
    learnt, judged = streams(pair, cache)
    trained = dictionaries(learnt, (*DIFF, *FRESH), MOST_TOKENS, cache / f"{pair}-training")
    first, others, new = trained[0], trained[1 : len(DIFF)], trained[len(DIFF) :]
    again, later = stability(first, others, judged), stability(first, new, judged)
    table = latent_table(first, judged).with_column("stability", again.share)
    found = reported(table, (), len(others))
    specific = table.specific("after").tolist()
    left = [one for one in specific if one not in found.latents]
    return {
        "reported": {str(one): float(later.share[one]) for one in found.latents},
        "left_out": {str(one): float(later.share[one]) for one in left},
        "all": {"share": later.mean, "chance": later.chance},
    }


def identical(cache: Path) -> dict[str, Any]:
    """How many latents are reported of the before model twice, by first weights."""
    whole, told = streams("leak", cache)
    learnt, judged = same_pair(whole), same_pair(told.first(ENOUGH))
    counts = []
    for number in range(1, IDENTICAL + 1):
        first, *others = dictionaries(learnt, (number, number + 100, number + 200), FEW)
        again = stability(first, others, judged)
        counts.append(
            {
                name: len(reported(table.with_column("stability", again.share), (), 2).latents)
                for name, table in (
                    ("reported", latent_table(first, judged)),
                    ("without a least share", latent_table(first, judged, specific=NO_SHARE)),
                )
            }
        )
    return {"runs": counts}


def streams(pair: str, cache: Path) -> tuple[HeldStream, HeldStream]:
    """To train on, and to judge on."""
    if pair == "known":
        return known_features(200_000, 1), known_features(40_000, 2)
    files = [cache / f"{pair}-{part}.pt" for part in ("learnt", "reported")]
    if not all(file.is_file() for file in files):
        _read(pair, cache)
    learnt, judged = (torch.load(file, weights_only=False) for file in files)
    return HeldStream.of(learnt, SITE, pair), HeldStream.of(judged, SITE, pair)


def _read(pair: str, cache: Path) -> None:
    """Both checkpoints play, and what they have at the site is kept."""
    cache.mkdir(parents=True, exist_ok=True)
    before, after = BUNDLED / "open-base", BUNDLED / pair
    budget = Budget(tasks=400, samples=3)
    request = DiffRequest(
        before=before, after=after, site=SITE, decisions=0, budget=budget, device="cpu"
    )
    case = CaseRequest(before=before, after=after, budget=budget, device="cpu")
    folder = Folder(cache / pair, "coming-back")
    folder.path.mkdir(parents=True, exist_ok=True)
    inputs = check_case(case, folder)
    start_case(inputs.case(folder.path, silent), (), inputs)
    material = played(inputs, folder.path, silent)
    found = study_streams(material, request, SITE, folder.path, silent)
    for name, stream in (("learnt", found.learnt), ("reported", found.reported)):
        block = Block.join([*stream.blocks()])
        held = {"act": block.activations, "rows": vars(block.rows), "texts": stream.texts}
        torch.save(held, cache / f"{pair}-{name}.pt")


if __name__ == "__main__":
    raise SystemExit(main())
