"""A harvest kept on disk: one file of activations a site, in the order of the
texts, beside the rows' columns and the texts' notes.

1. Which rows there will be is known from the texts alone, so `cache.json`, the
   rows and the notes are written first. `cache.json` names checkpoints, sites
   and texts by hash; a folder that holds another harvest is refused.
2. Window after window is harvested and put behind what its sites' files hold,
   and flushed.
3. Going on keeps every whole text that all files hold, so a kill costs one
   window at most; a file that was cut short is made again from there.
4. Reading takes blocks of neighbouring rows; with a seed in random order, through
   a shuffling pool.
"""

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosscoders.activations.harvest_stream import Harvest, site_identity
from crosscoders.activations.streams import Block, Rows, StepNote, TextNote, shuffled
from forensics.errors import UserError
from forensics.progress import Progress, silent
from forensics.records.files import (
    as_user_error,
    read_json,
    write_atomically,
    write_json,
    write_json_lines,
)

INDEX, NOTES, ROWS = "cache.json", "texts.jsonl", "rows.npz"
VERSION = 2


def cache(
    harvest: Harvest,
    folder: Path | str,
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> None:
    """Write the activations at all sites of a harvest, from one pass; `cached`
    reads them.

    Holds one window in memory. Raises `UserError` where the folder holds another
    harvest, or this one and neither `resume` nor `force` was asked for.
    """
    place = Path(folder).expanduser()
    texts = enumerate(harvest.texts)
    rows = Rows.join([text.rows(i).take(harvest.kept(text)) for i, text in texts])
    index = {
        "schema_version": VERSION,
        "harvest": harvest.identity,
        "sites": list(harvest.sites),
        "widths": [harvest.widths[site] for site in harvest.sites],
        "models": len(harvest.readers),
        "checkpoints": [reader.identity for reader in harvest.readers],
        "dtype": str(harvest.dtype).removeprefix("torch."),
        "rows": len(rows),
    }
    files = [place / f"site-{i}.bin" for i in range(len(harvest.sites))]
    if force or not (place / INDEX).is_file():
        for file in (place / INDEX, *place.glob("site-*.bin")):
            file.unlink(missing_ok=True)
        write_json_lines(place / NOTES, [asdict(note) for note in harvest.notes])
        columns = io.BytesIO()
        np.savez(columns, **vars(rows))
        write_atomically(place / ROWS, columns.getvalue())
        write_json(place / INDEX, index)
    elif not resume:
        raise UserError(
            f"{place} already holds a harvest; use resume to go on with it, or another folder"
        )
    elif _read_index(place) != index:
        raise UserError(
            f"{place} holds activations of other checkpoints, sites or texts; harvest into"
            " another folder"
        )
    sizes = [_row_bytes(index, i) for i in range(len(files))]
    with ExitStack() as stack:
        outs = [stack.enter_context(open(file, "ab")) for file in files]
        done = min(out.tell() // size for out, size in zip(outs, sizes, strict=True))
        first = int(rows.text[done]) if done < len(rows) else len(harvest.texts)
        done = int(np.searchsorted(rows.text, first))  # whole texts only
        for out, size in zip(outs, sizes, strict=True):
            out.truncate(done * size)
        for found, part in harvest.chunks(first=first):
            for out, site in zip(outs, harvest.sites, strict=True):
                try:
                    out.write(found[site].cpu().contiguous().view(torch.uint8).numpy().data)
                    out.flush()
                    os.fsync(out.fileno())
                except OSError as error:
                    raise as_user_error(error, Path(out.name)) from error
            done += len(part)
            progress("reading activations", done, len(rows))


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

    Raises `UserError` where the folder is not finished, a file is cut short,
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
    stream = CachedStream(place, site, index, block, pool, device)
    size, whole = stream.file.stat().st_size, index["rows"] * stream.row_bytes
    if size != whole:
        raise UserError(
            f"{stream.file} has {size} bytes of {whole}; harvest into the same folder again with"
            " resume"
        )
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

    @property
    def file(self) -> Path:
        return self.folder / f"site-{self.index['sites'].index(self.site)}.bin"

    @property
    def row_bytes(self) -> int:
        return _row_bytes(self.index, self.index["sites"].index(self.site))

    @cached_property
    def texts(self) -> Sequence[TextNote]:
        with open(self.folder / NOTES, encoding="utf-8") as lines:
            notes = [json.loads(line) for line in lines]
        return tuple(
            TextNote(**{**note, "steps": tuple(_step(**step) for step in note["steps"])})
            for note in notes
        )

    @cached_property
    def rows(self) -> Rows:
        with np.load(self.folder / ROWS) as columns:
            return Rows(**columns)

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        starts = np.arange(0, self.index["rows"], self.block)
        if seed is None:
            return map(self._read, starts)
        starts = np.random.default_rng(seed).permutation(starts)
        return shuffled(map(self._read, starts), self.pool, np.random.default_rng([seed, 1]))

    def _read(self, first: int) -> Block:
        rows = self.rows.take(slice(first, first + self.block))
        raw = np.fromfile(
            self.file, np.uint8, len(rows) * self.row_bytes, offset=first * self.row_bytes
        )
        if len(raw) < len(rows) * self.row_bytes:
            raise UserError(
                f"{self.file} was cut short; harvest into the same folder again with resume"
            )
        flat = torch.from_numpy(raw).view(getattr(torch, self.index["dtype"]))
        activations = flat.view(len(rows), self.models, self.width).to(self.device)
        return Block(activations=activations, rows=rows)


def _row_bytes(index: dict[str, Any], site: int) -> int:
    return int(index["models"] * index["widths"][site] * getattr(torch, index["dtype"]).itemsize)


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


def _step(role: str, kinds: Sequence[str], channels: Sequence[str]) -> StepNote:
    return StepNote(role=role, kinds=tuple(kinds), channels=tuple(channels))
