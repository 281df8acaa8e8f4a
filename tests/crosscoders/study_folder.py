"""The folder of a diff written by hand: what the page, the instrument and a browser are shown."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crosscoders.study.diff_files import (
    BASELINES,
    CONTROLS,
    DIFF,
    LATENTS,
    PATCHING,
    QUALITY,
    STEERING,
    TOKENS,
    VERSION,
)
from forensics.records.files import write_json

EVIL = "<img src=x onerror=alert(1)>"
NAN = float("nan")


def latent(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "latent": number,
        "partition": "shared",
        "relative_norm": 0.5,
        "decoder_cosine": 1.0,
        "nu_after": 1.0,
        "nu_before": 1.0,
        "frequency": 0.1,
        "q_value": 0.5,
        "specific": "none",
        "difference_history": 0.01,
        **fields,
    }


ROWS = [
    latent(0),
    latent(1, q_value=0.04, difference_history=-0.2),
    latent(2, q_value=NAN, difference_history=NAN),
    latent(3, partition="after-only", relative_norm=1.0, decoder_cosine=NAN, nu_after=0.02,
     nu_before=NAN, q_value=0.001, specific="after", difference_history=1.5, frequency=0.02),
    latent(4, partition="after-only", relative_norm=1.0, nu_after=0.9, q_value=0.2),
]  # fmt: skip


def share(name: str, value: float | None) -> dict[str, Any]:
    low, high = (None, None) if value is None else (value - 0.1, value + 0.1)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def change(
    place: str, positions: str | None, value: float | None, layer: int | None, **more: Any
) -> dict[str, Any]:
    return {
        "place": place,
        "positions": positions,
        "direction": "into-before",
        "relative_change": None,
        "layer": layer,
        "tasks": 12,
        **share("kl_moved", 0.5),
        **share("behaviour_moved", value),
        **share("chance", 0.3),
        **more,
    }


def patching() -> dict[str, Any]:
    patches = [
        change("hook_embed", "all", 0.11, None),
        change("blocks.0.hook_resid_post", "deciding", 0.25, 0),
        change("blocks.1.hook_resid_post", "deciding", 0.75, 1),
        change("blocks.1.hook_resid_post", "all", None, 1),
        change("blocks.1.hook_resid_post", "deciding", 0.33, 1, direction="into-after"),
        change("blocks.1.hook_attn_out", "deciding", 0.44, 1),
    ]
    grafts = [
        change("embed+unembed", None, 0.6, None),
        change("blocks.0.attn", None, 0.01, 0),
        change("blocks.1.mlp", None, 0.42, 1),
        change("blocks.1.mlp", None, 0.9, 1, direction="all-but"),
    ]
    return {
        "behaviour": "start history",
        "patch": patches,
        "graft": grafts,
        "sentences": ["The change is carried."],
    }


def context(word: str) -> dict[str, Any]:
    return {
        "text": "run-1",
        "task": "task-7",
        "source": "after",
        "position": 3,
        "value": 2.5,
        "at": 1,
        "tokens": ["open ", word, " end"],
        "values": [0.0, 2.5, 1.25],
    }


def steering(
    role: str, strength: float, value: float, draw: int | None = None, **more: Any
) -> dict[str, Any]:
    """A row as `forensics steer` writes it."""
    spread = {"estimate": value, "low": value - 0.05, "high": value + 0.05}
    return {
        "role": role,
        "in": "after",
        "mode": "ablate",
        "strength": strength,
        "features": [3],
        "draw": draw,
        "dictionary": "dictionary",
        "split": "report",
        "n": 50,
        "runs": 100,
        "channel_use": {"history": spread},
        "success": spread,
        "measured": spread,
        "moved": None,
        "moved_missing": "nothing moved",
    } | more


def written(folder: Path, *, steered: bool = True, **summary: Any) -> Path:
    """A diff's folder; a task's name and a token are hostile."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, folder / LATENTS)
    write_json(folder / PATCHING, patching())
    write_json(
        folder / TOKENS, {"3": [context(EVIL), context("\x1b[31mred")], "1": [context("plain")]}
    )
    spliced = {"after": {"cross-entropy": {"estimate": 0.93, "low": None, "high": None}}}
    write_json(
        folder / QUALITY,
        {
            "variance_explained": [0.8, None],
            "l0": 12.0,
            "dead_share": 0.25,
            "rows": 1000,
            "spliced": spliced,
        },
    )
    write_json(
        folder / CONTROLS, [{"name": "same model twice", "found": "0 of 8", "expected": "none"}]
    )
    area = {"estimate": 0.91, "low": 0.85, "high": 0.96, "tasks": 12}
    write_json(
        folder / BASELINES,
        {
            "contrast": "history",
            "rows": 1000,
            "missing": None,
            "methods": [
                {
                    "name": "dictionary",
                    "features": 5,
                    "active": 12.34,
                    "explained": 0.625,
                    "feature": "latent 3",
                    "auroc": area,
                },
                {
                    "name": "difference-SAE",
                    "features": 64,
                    "active": 2.0,
                    "explained": None,
                    "feature": None,
                    "auroc": None,
                },
            ],
        },
    )
    if steered:
        rows = [steering("features", 0.5, 0.6, split="dose"), steering("features", 1.0, 0.25)]
        rows += [steering("random-direction", 1.0, v, d) for d, v in enumerate((0.9, 0.7, 0.8))]
        write_json(folder / STEERING, {"rows": rows})
    write_json(
        folder / DIFF,
        {
            "schema_version": VERSION,
            "site": "blocks.1.hook_resid_post",
            "contrasts": ["history", "won"],
            "sentences": [f"A sentence about {EVIL}."],
            "facts": ["1,000 tokens"],
            "command": "forensics diff --out D",
            "contrast_sentence": "Decisions for history against others.",
            "before": "b" * 16,
            "after": ["a" * 16],
            "kinds": ["history"],
            **summary,
        },
    )
    return folder
