"""The files of a diff, and reading them back. Light at import: no torch.

`patching.json`: where the change lives. `dictionary/`: the sparse dictionary.
`latents.parquet`: its latents.
`tokens.json`: their strongest tokens in context. `quality.json`,
`controls.json`: how good it is, and what shows nothing. `baselines.json`: what
simpler methods do. `diff.json`: what was asked, and the findings in sentences.
`steering.json`: what `forensics steer` adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.records.files import read_json

DIFF: Final = "diff.json"
PATCHING: Final = "patching.json"
DICTIONARY: Final = "dictionary"
LATENTS: Final = "latents.parquet"
TOKENS: Final = "tokens.json"
QUALITY: Final = "quality.json"
CONTROLS: Final = "controls.json"
BASELINES: Final = "baselines.json"
STEERING: Final = "steering.json"
STEERED: Final = "steering"  # the folder that the suggested command writes it to
PAGE: Final = "diff.html"
VERSION: Final = 1
MOST_LATENTS: Final = 20  # with their tokens
COLUMNS: Final = (
    "latent",
    "partition",
    "relative_norm",
    "decoder_cosine",
    "nu_after",
    "nu_before",
    "frequency",
    "q_value",
)


def read_part(folder: Path, name: str) -> Any:
    """A JSON file of a diff, `None` where it was not written. Raises
    `UserError` where it is broken.
    """
    path = folder / name
    return read_json(path) if path.is_file() else None


def read_summary(folder: Path) -> dict[str, Any]:
    """`diff.json`. Raises `UserError` for a folder that holds no finished diff."""
    found = read_part(folder, DIFF)
    if not isinstance(found, dict):
        raise UserError(f"{folder} holds no {DIFF}; give the folder that `forensics diff` wrote")
    if found.get("schema_version") != VERSION:
        raise UserError(
            f"the diff in {folder} was made by another version of this program; make it again with"
            " `forensics diff ... --force`"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Latent:
    """A row of the table of latents; `None` is what could not be measured.
    `difference`: of the diff's first contrast.
    """

    latent: int
    partition: str
    relative_norm: float | None
    decoder_cosine: float | None
    nu_after: float | None
    nu_before: float | None
    frequency: float | None
    q_value: float | None
    difference: float | None = None
    specific: str | None = None  # `after`, `before` or `none`

    @property
    def is_specific(self) -> bool:
        return self.specific in ("after", "before")


def read_latents(folder: Path, contrasts: Sequence[str] | None) -> tuple[Latent, ...]:
    """The rows of `latents.parquet`, NaN as `None`. Raises `UserError` where it
    is missing, broken or another table.
    """
    import pyarrow as arrow
    from pyarrow import parquet

    path = folder / LATENTS
    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; run `forensics diff --resume` with the same options"
        ) from None
    except (arrow.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path} cannot be read ({str(error).splitlines()[0]}); delete it and use --resume"
        ) from None
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise UserError(
            f"{path} has no column {missing[0]}, so it is no table of latents; use --force"
        )
    columns = {name: name for name in (*COLUMNS, "specific")}
    columns["difference"] = f"difference_{contrasts[0]}" if contrasts else ""
    return tuple(
        Latent(**{name: _known(row.get(column)) for name, column in columns.items()})
        for row in table.to_pylist()
    )


def separating(latents: Sequence[Latent]) -> list[Latent]:
    """Latents by how surely they separate the two groups of steps, then by how
    much; those untested last.
    """

    def order(latent: Latent) -> tuple[float, float, int]:
        q, difference = latent.q_value, latent.difference
        return (2.0 if q is None else q, -abs(difference or 0.0), latent.latent)

    return sorted(latents, key=order)


def _known(value: Any) -> Any:
    """NaN is a value that is not known."""
    return None if isinstance(value, float) and value != value else value
