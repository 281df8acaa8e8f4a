"""Which latents are tested: named ones, or the first N by a rule that is fixed
beforehand and looks at other tasks.

- `12,17`: these, in this order (the order of the curve of saturation)
- `top:N`: of the latents that a table calls specific to the after model, the N
  of largest contrast (see `readings`) in the models' difference; of all latents
  where there is no table
- `contrast:N`: the N of largest contrast among all latents, by all that they
  write in the after model, for a behaviour that no specific latent carries
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq

from crosscoders.steering.readings import Reader, Readings, top_features
from forensics.errors import UserError

Rule = Literal["listed", "top", "contrast"]
TABLE = "latents.parquet"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`number` latents by a `rule`; `listed` ones as they stand."""

    rule: Rule
    number: int
    listed: tuple[int, ...] = ()


def parse_features(text: str) -> Asked:
    """Raises `UserError` for a text that is none of the three forms."""
    head, colon, count = text.partition(":")
    if colon and head in ("top", "contrast") and count.isdigit() and int(count) > 0:
        return Asked(rule="top" if head == "top" else "contrast", number=int(count))
    parts = [part.strip() for part in text.split(",")]
    if all(part.isdigit() for part in parts):
        listed = tuple(dict.fromkeys(map(int, parts)))
        return Asked(rule="listed", number=len(listed), listed=listed)
    raise UserError(
        f"features '{text}' are neither a list of latents such as 12,17 nor top:N nor contrast:N"
    )


def pick(asked: Asked, reader: Reader, readings: Readings, table: Path | None) -> tuple[int, ...]:
    """The latents that are asked for. `table`: what `top` keeps to."""
    if asked.rule == "listed":
        return asked.listed
    if asked.rule == "contrast":
        return top_features(reader, readings, asked.number, whole=True)
    return top_features(
        reader, readings, asked.number, None if table is None else specific_latents(table)
    )


def table_beside(folder: Path, given: Path | None = None) -> Path | None:
    """The table of latents: the given one, else the one in the dictionary's
    folder or the folder above.
    """
    if given is not None:
        if not given.is_file():
            raise UserError(f"{given} does not exist; give the {TABLE} that `forensics diff` wrote")
        return given
    return next(
        (path for path in (folder / TABLE, folder.resolve().parent / TABLE) if path.is_file()), None
    )


def specific_latents(table: Path) -> Sequence[int]:
    """The latents that a table calls specific to the after model. Raises
    `UserError` where it cannot be read, or has none.
    """
    try:
        rows = pq.read_table(table, columns=["latent", "specific"]).to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{table} is no table of latents ({error}); run `forensics diff` again"
        ) from None
    found = [int(row["latent"]) for row in rows if row["specific"] == "after"]
    if not found:
        raise UserError(
            f"{table} calls no latent specific to the after model; use contrast:N to rank all of"
            " them"
        )
    return found
