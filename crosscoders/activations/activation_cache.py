"""A harvest kept on disk: shards, an index that says what they hold, and the
texts' notes.

1. The texts are cut into ranges whose rows fill a shard; the cut depends on
   texts and configuration alone.
2. Shard after shard is harvested and written; the index, written after each,
   lists what is finished.
3. Going on keeps every finished shard of the right size and makes the others,
   so a kill costs one shard at most.
4. A shard is one safetensors file with the rows of a range of texts at every
   site. It is written beside its place, flushed and renamed, so that a crash
   leaves a whole shard or none.
5. Reading takes blocks of neighbouring rows; with a seed in random order over
   all shards, through a shuffling pool.

The index names checkpoints, site and texts by hash; a folder that holds another
harvest is refused.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from crosscoders.activations.harvest_stream import Harvest, HarvestStream, Sites, site_identity
from crosscoders.activations.streams import Block, Rows, StepNote, TextNote, in_blocks, shuffled
from forensics.errors import UserError
from forensics.records.files import as_user_error, read_json, write_json, write_json_lines

INDEX, NOTES = "index.json", "texts.jsonl"
VERSION = 1
SHARD_BYTES = 256 * 2**20
COLUMNS = tuple(vars(Rows.blank(0)))
AGAIN = (
    "harvest into the same folder again with resume, which makes that shard anew and keeps the"
    " others"
)
Progress = Callable[[int, int], None]


def cache(
    source: HarvestStream,
    folder: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> "CachedStream":
    """Write a stream's activations into `folder` and give them back as a
    stream; see `cache_sites`.
    """
    one = Harvest(
        source.harvest.readers,
        source.harvest.texts,
        (source.site,),
        source.harvest.config,
        {source.site: source.width},
    )
    cache_sites(one, folder, resume=resume, force=force, shard_bytes=shard_bytes, progress=progress)
    return cached(
        folder, source.site, block=one.config.block, pool=one.config.pool, device=str(one.device)
    )


def cache_sites(
    harvest: Harvest,
    folder: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> None:
    """Write all sites of a harvest, from one pass. `progress` is told of shards
    done, and of how many there are.

    Holds one shard in memory. Raises `UserError` where the folder holds another
    harvest, or this one and neither `resume` nor `force` was asked for.
    """
    place = Path(folder).expanduser()
    plan = _plan(harvest, shard_bytes)
    done = _start(harvest, place, plan, resume, force)
    for number, (first, last) in enumerate(plan):
        file = place / _file(number)
        if number not in done or not file.is_file() or file.stat().st_size != done[number]["bytes"]:
            done[number] = _make(harvest, file, first, last)
            _write_index(harvest, place, plan, done)
        if progress:
            progress(number + 1, len(plan))


def cached(
    folder: Path | str,
    site: str | None = None,
    *,
    identity: str | None = None,
    block: int = 4096,
    pool: int = 65536,
    device: str = "cpu",
) -> "CachedStream":
    """The stream of one site (the only one unless given) of a folder that
    `cache` wrote.

    Raises `UserError` where the folder is not finished, a shard is cut short,
    or `identity` (what the stream ought to be) differs.
    """
    place = Path(folder).expanduser()
    index = _read_index(place)
    if site is None and len(index["sites"]) == 1:
        site = index["sites"][0]
    if site is None or site not in index["sites"]:
        raise UserError(
            f"{place} holds the sites {', '.join(index['sites'])}; name one of them, not '{site}'"
        )
    missing = len(index["plan"]) - len(index["shards"])
    if missing:
        raise UserError(
            f"the harvest in {place} lacks {missing} of {len(index['plan'])} shards; harvest into"
            " it again with resume"
        )
    for name, shard in index["shards"].items():
        require_whole(place / name, shard["bytes"])
    stream = CachedStream(place, site, index, block, pool, device)
    if identity not in (None, stream.identity):
        raise UserError(
            f"{place} holds activations of other checkpoints or texts; harvest into another folder"
        )
    return stream


@dataclass(frozen=True)
class CachedStream:
    """One site of a cache as a `Stream`."""

    folder: Path
    site: str
    index: dict[str, Any]
    block: int
    pool: int
    device: str

    @property
    def models(self) -> int:
        return int(self.index["models"])

    @property
    def width(self) -> int:
        return int(self.index["widths"][self.index["sites"].index(self.site)])

    @property
    def identity(self) -> str:
        return site_identity(self.index["harvest"], self.site)

    @cached_property
    def texts(self) -> Sequence[TextNote]:
        return _read_notes(self.folder, self.index["texts"])

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        parts = [
            (name, first, min(first + self.block, shard["rows"]))
            for name, shard in sorted(self.index["shards"].items())
            for first in range(0, shard["rows"], self.block)
        ]
        if seed is not None:
            parts = [parts[i] for i in np.random.default_rng(seed).permutation(len(parts))]
        number = self.index["sites"].index(self.site)
        read = (
            read_part(self.folder / name, number, first, last, self.device)
            for name, first, last in parts
        )
        blocks = in_blocks(read, self.block)
        return (
            blocks
            if seed is None
            else shuffled(blocks, self.pool, np.random.default_rng([seed, 1]))
        )


def _plan(harvest: Harvest, shard_bytes: int) -> list[tuple[int, int]]:
    """Ranges of texts whose rows fill a shard."""
    row = len(harvest.readers) * sum(harvest.widths.values()) * harvest.dtype.itemsize
    most, plan, first, rows = max(1, shard_bytes // row), [], 0, 0
    for i, text in enumerate(harvest.texts):
        rows += int(harvest.kept(text).sum())
        if rows >= most or i + 1 == len(harvest.texts):
            plan.append((first, i + 1))
            first, rows = i + 1, 0
    return plan


def _start(
    harvest: Harvest, place: Path, plan: list[tuple[int, int]], resume: bool, force: bool
) -> dict[int, dict[str, Any]]:
    """The finished shards of a folder, which is made ready where it has none."""
    if force:
        _clear(place)
    if (place / INDEX).is_file():
        if not resume:
            raise UserError(
                f"{place} already holds a harvest; use resume to go on with it, or another folder"
            )
        index = _read_index(place)
        if (index["harvest"], index["sites"], index["plan"]) != (
            harvest.identity,
            list(harvest.sites),
            [list(part) for part in plan],
        ):
            raise UserError(
                f"{place} holds activations of other checkpoints, sites or texts; harvest into"
                " another folder"
            )
        return {
            int(name.split("-")[1].split(".")[0]): shard for name, shard in index["shards"].items()
        }
    _clear(place)
    write_json_lines(place / NOTES, [asdict(note) for note in harvest.notes])
    _write_index(harvest, place, plan, {})
    return {}


def _clear(place: Path) -> None:
    for path in (
        place / INDEX,
        place / NOTES,
        *place.glob("shard-*.safetensors"),
        *place.glob(".shard-*.draft"),
    ):
        path.unlink(missing_ok=True)


def _make(harvest: Harvest, file: Path, first: int, last: int) -> dict[str, Any]:
    chunks = list(harvest.chunks(first=first, last=last))
    rows = (
        Rows.join([rows for _, rows in chunks])
        if chunks
        else harvest.texts[first].rows(first).take(np.arange(0))
    )
    found = {
        site: (
            torch.cat([sites[site] for sites, _ in chunks])
            if chunks
            else torch.empty((0, len(harvest.readers), width), dtype=harvest.dtype)
        )
        for site, width in harvest.widths.items()
    }
    return {"rows": len(rows), "bytes": write_shard(file, harvest.sites, found, rows)}


def _write_index(
    harvest: Harvest, place: Path, plan: list[tuple[int, int]], done: dict[int, dict[str, Any]]
) -> None:
    write_json(
        place / INDEX,
        {
            "schema_version": VERSION,
            "harvest": harvest.identity,
            "sites": list(harvest.sites),
            "widths": [harvest.widths[site] for site in harvest.sites],
            "models": len(harvest.readers),
            "checkpoints": [reader.identity for reader in harvest.readers],
            "dtype": str(harvest.dtype),
            "texts": len(harvest.texts),
            "plan": plan,
            "shards": {_file(number): shard for number, shard in sorted(done.items())},
        },
    )


def _read_index(place: Path) -> dict[str, Any]:
    if not (place / INDEX).is_file():
        raise UserError(
            f"{place} holds no harvest ({INDEX} is missing); give a folder that a harvest was"
            " cached in"
        )
    index: dict[str, Any] = read_json(place / INDEX)
    if not isinstance(index, dict) or index.get("schema_version") != VERSION:
        raise UserError(
            f"{place / INDEX} is not the index of a harvest of version {VERSION}; harvest again"
        )
    return index


def _read_notes(place: Path, number: int) -> tuple[TextNote, ...]:
    with open(place / NOTES, encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    if len(found) != number:
        raise UserError(
            f"{place / NOTES} has {len(found)} texts of {number}; harvest again with force"
        )
    return tuple(
        TextNote(**note | {"steps": tuple(_step(step) for step in note["steps"])}) for note in found
    )


def _step(fields: dict[str, Any]) -> StepNote:
    return StepNote(
        role=fields["role"], kinds=tuple(fields["kinds"]), channels=tuple(fields["channels"])
    )


def _file(number: int) -> str:
    return f"shard-{number:06d}.safetensors"


def write_shard(path: Path, sites: Sequence[str], found: Sites, rows: Rows) -> int:
    """Write a shard; gives its size in bytes. A full disk is a `UserError`."""
    tensors = {_name(i): found[site].cpu().contiguous() for i, site in enumerate(sites)}
    tensors |= {name: torch.from_numpy(column.copy()) for name, column in vars(rows).items()}
    draft = path.with_name(f".{path.name}.draft")
    try:
        save_file(tensors, draft)
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise as_user_error(error, path) from error
    except SafetensorError as error:
        draft.unlink(missing_ok=True)
        raise UserError(
            f"{path.name} cannot be written ({error}); free some space and resume"
        ) from error
    return path.stat().st_size


def read_part(path: Path, site: int, first: int, last: int, device: str) -> Block:
    """Rows `first` to `last` of a shard, at the site of that number. Raises
    `UserError` where it is cut short.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            activations = file.get_slice(_name(site))[first:last]
            columns = {name: file.get_slice(name)[first:last].numpy() for name in COLUMNS}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); {AGAIN}") from error
    return Block(activations=activations.to(device), rows=Rows(**columns))


def require_whole(path: Path, size: int) -> None:
    """Raises `UserError` where a shard is missing or has another size than was written."""
    found = path.stat().st_size if path.is_file() else None
    if found != size:
        state = "is missing" if found is None else f"has {found} bytes of {size}"
        raise UserError(f"{path} {state}; {AGAIN}")


def _name(site: int) -> str:
    return f"activations.{site}"
