"""`kl_split.json`: the split as plain numbers.

`total` nats a run, with `total_low`, `total_high` and `total_plain`. `by_step_kind`, `by_channel`, `by_turn` and
`by_token_class` map a name to `share`, `low`, `high` (of the total; `null` with the reason in `undefined` where there
is none), `nats`, `plain`, `difference_error`, and where the axis has them `choice`, `content` and `tokens`.
`estimator`: `conditional`, or `plain` where no whole distributions were known.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from forensics.records.base import SCHEMA_VERSION
from forensics.records.files import write_json
from probes.kl.split import KlSplit, Part

FILE: Final = "kl_split.json"
DIRECTION: Final = "KL(policy || reference) on the runs of the policy"
OF_KINDS: Final = ("choice", "content", "tokens", "tokens_low", "tokens_high")


def write_split(folder: Path, split: KlSplit) -> Path:
    """Writes `kl_split.json` into a folder and returns its path."""
    path = folder / FILE
    write_json(path, split_content(split))
    return path


def split_content(split: KlSplit) -> dict[str, Any]:
    """What the file holds."""
    axes = {"by_step_kind": split.by_kind, "by_channel": split.by_channel, "by_turn": split.by_turn,
            "by_token_class": split.by_token_class, "by_part": {"choice": split.choice, "content": split.content}}
    return {
        "schema_version": SCHEMA_VERSION, "direction": DIRECTION, "unit": "nats a run", "total": split.total,
        "total_low": split.low, "total_high": split.high, "total_plain": split.plain, "level": split.level,
        "estimator": "conditional" if split.conditional else "plain", "runs": split.runs, "tasks": split.tasks,
        "unread_steps": split.unread, "retokenised_runs": split.retokenised, "undefined": split.undefined,
        **{name: _parts(parts) for name, parts in axes.items()},
    }


def _parts(parts: Mapping[str, Part]) -> dict[str, Any]:
    return {name: {key: value for key, value in asdict(part).items() if key not in OF_KINDS or value is not None}
            for name, part in parts.items()}
