"""Whole episodes of `leak` by `forensics steer`: the picked latent ablated in
after, added to before.

At every decision of an episode, with random directions of equal norm, random
latents and all other controls beside it. Ablation is whole; the strength of
adding is the one that was chosen at first decisions, so nothing is chosen here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from crosscoders import SteeringConfig, steer
from crosscoders.dictionaries import dictionary_key
from experiments.one_feature.pairs import MEASURE
from forensics.errors import UserError
from forensics.progress import Progress
from forensics.protocols import SamplingSettings
from forensics.records import content_hash
from forensics.records.files import read_json

FILE = "steering.json"
Mode = Literal["ablate", "add"]
SIDES: dict[Mode, Literal["before", "after"]] = {"ablate": "after", "add": "before"}
TOLD = (
    "role",
    "in",
    "strength",
    "draw",
    "n",
    "runs",
    "channel_use",
    "success",
    "handed_in",
    "turns",
    "effect",
    "moved",
)


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """`tasks` are reported on; on `choosing` further ones activations are read."""

    tasks: int = 150
    choosing: int = 50
    samples: int = 2
    controls: int = 20
    turn: int = 16
    whole: int = 256

    @property
    def key(self) -> str:
        return content_hash(asdict(self))[:16]


def play_episodes(
    folder: Path,
    dictionary: Path,
    latent: int,
    strength: float,
    seed: int,
    settings: EpisodeSettings,
    progress: Progress,
) -> dict[str, Any]:
    """By mode what `steering.json` says of the reported tasks, or why there is
    nothing (`undefined`): a latent that is never active at decisions cannot be
    added there. Resumable; nothing is played twice.
    """
    strengths: dict[Mode, float] = {"ablate": 1.0, "add": strength}
    found: dict[str, Any] = {}
    for mode in SIDES:
        try:
            steered = _steered(
                folder, dictionary, latent, mode, strengths[mode], seed, settings, progress
            )
        except UserError as error:
            found[mode] = {"undefined": str(error)}
        else:
            found[mode] = _told(steered)
    return found


def _steered(
    folder: Path,
    dictionary: Path,
    latent: int,
    mode: Mode,
    strength: float,
    seed: int,
    settings: EpisodeSettings,
    progress: Progress,
) -> Mapping[str, Any]:
    key = content_hash(
        [
            asdict(settings),
            dictionary_key(dictionary),
            latent,
            mode,
            strength,
            seed,
        ]
    )[:16]
    out = folder / f"steering-{mode}-{key}"
    if not (out / FILE).exists():
        steer(
            folder / "base",
            folder / "after",
            out=out,
            resume=True,
            progress=progress,
            dictionary=dictionary,
            features=str(latent),
            tasks=settings.tasks,
            choosing=settings.choosing,
            samples=settings.samples,
            seed=2000 + seed,
            device="cpu",
            settings=SamplingSettings(max_turn_tokens=settings.turn, max_tokens=settings.whole),
            config=SteeringConfig(
                mode=mode,
                acting=SIDES[mode],
                strengths=(strength,),
                controls=settings.controls,
                measure=MEASURE,
            ),
        )
    found: Mapping[str, Any] = read_json(out / FILE)
    return found


def _told(found: Mapping[str, Any]) -> dict[str, Any]:
    """The reported rows, and the summary against the random directions."""
    rows = [{key: row[key] for key in TOLD} for row in found["rows"] if row["split"] == "report"]
    return {
        "summary": found["summary"],
        "rows": rows,
        "missing": found["missing"],
        "broken": found["broken"],
    }
