"""The files of a diff, and reading them back. Light at import: no torch.

`patching.json`: where the change lives. `dictionary/`: the sparse dictionary.
`latents.parquet`: its latents.
`tokens.json`: their strongest tokens in context. `quality.json`,
`controls.json`: how good it is, and what shows nothing. `baselines.json`: what
simpler methods do. `diff.json`: what was asked, and the findings in sentences.
`steering.json`: what `forensics steer` adds.
"""

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
            f"{folder / DIFF} has version {found.get('schema_version')}, and {VERSION} is read here"
        )
    return found


def read_latents(folder: Path) -> list[dict[str, Any]]:
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
    return [{name: _known(value) for name, value in row.items()} for row in table.to_pylist()]


def _known(value: Any) -> Any:
    """NaN is a value that is not known."""
    return None if isinstance(value, float) and value != value else value
