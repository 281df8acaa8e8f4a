"""What the page shows, as plain data made of a diff's files. Nothing here
draws, nothing loads a model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crosscoders.study.diff_files import (
    BASELINES,
    CONTROLS,
    PATCHING,
    QUALITY,
    STEERED,
    STEERING,
    TOKENS,
    read_latents,
    read_part,
    read_summary,
)

SHADES: Final = 20  # of a token's background
MOST_LATENTS: Final = 20  # with their tokens
MOST_CONTEXTS: Final = 8


@dataclass(frozen=True, kw_only=True)
class Word:
    """A token in context. `shade`: its activation as one of `SHADES + 1`;
    `peak`: the token that was looked up.
    """

    text: str
    shade: int
    peak: bool


@dataclass(frozen=True, kw_only=True)
class Context:
    """One of a latent's strongest tokens, with what stands around it."""

    text: str
    task: str
    source: str
    position: int
    value: float
    words: tuple[Word, ...]


@dataclass(frozen=True, kw_only=True)
class LatentView:
    """A row of the table of latents; `None` is what could not be measured."""

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
    contexts: tuple[Context, ...] = ()

    @property
    def is_specific(self) -> bool:
        return self.specific in ("after", "before")


@dataclass(frozen=True, kw_only=True)
class DiffView:
    """A diff. `summary` is `diff.json`; parts that were not made are `None` or empty."""

    summary: Mapping[str, Any]
    latents: tuple[LatentView, ...]
    separating: tuple[LatentView, ...]
    patching: Mapping[str, Any] | None
    quality: Mapping[str, Any] | None
    controls: Sequence[Mapping[str, Any]]
    steering: Sequence[Mapping[str, Any]]
    baselines: Mapping[str, Any] | None = None


def read_view(folder: Path) -> DiffView:
    """A diff as its folder tells it. Raises `UserError` where a file is missing or broken."""
    summary, tokens = read_summary(folder), read_part(folder, TOKENS) or {}
    latents = read_latent_views(folder, summary)
    shown = separating(latents)[:MOST_LATENTS]
    return DiffView(
        summary=summary,
        latents=latents,
        patching=read_part(folder, PATCHING),
        separating=tuple(
            _with_contexts(latent, tokens.get(str(latent.latent), ())) for latent in shown
        ),
        quality=read_part(folder, QUALITY),
        controls=read_part(folder, CONTROLS) or (),
        baselines=read_part(folder, BASELINES),
        steering=steering_rows(
            read_part(folder, STEERING) or read_part(folder / STEERED, STEERING)
        ),
    )


def read_latent_views(folder: Path, summary: Mapping[str, Any]) -> tuple[LatentView, ...]:
    """The rows of `latents.parquet`; the difference is that of the diff's first contrast."""
    contrasts = summary.get("contrasts") or [None]
    return tuple(_latent(row, f"difference_{contrasts[0]}") for row in read_latents(folder))


def separating(latents: Sequence[LatentView]) -> list[LatentView]:
    """Latents by how surely they separate the two groups of steps, then by how
    much; those untested last.
    """

    def order(latent: LatentView) -> tuple[float, float, int]:
        q, difference = latent.q_value, latent.difference
        return (2.0 if q is None else q, -abs(difference or 0.0), latent.latent)

    return sorted(latents, key=order)


def steering_rows(found: Any) -> tuple[Mapping[str, Any], ...]:
    """The rows of `steering.json`, which stands alone or under `rows`."""
    rows = found.get("rows", ()) if isinstance(found, dict) else found or ()
    return tuple(row for row in rows if isinstance(row, dict))


def _latent(row: Mapping[str, Any], difference: str) -> LatentView:
    known: dict[str, Any] = {name: row.get(name) for name in LatentView.__dataclass_fields__}
    return LatentView(**{**known, "difference": row.get(difference), "contexts": ()})


def _with_contexts(latent: LatentView, found: Sequence[Mapping[str, Any]]) -> LatentView:
    top = max((float(value) for context in found for value in context["values"]), default=0.0)
    contexts = tuple(_context(context, max(top, 1e-12)) for context in found[:MOST_CONTEXTS])
    return LatentView(**{**vars(latent), "contexts": contexts})


def _context(found: Mapping[str, Any], top: float) -> Context:
    """`top`: the latent's largest activation anywhere, which has the deepest shade."""
    values = [float(value) for value in found["values"]]
    words = tuple(
        Word(text=str(text), shade=round(SHADES * max(value, 0.0) / top), peak=place == found["at"])
        for place, (text, value) in enumerate(zip(found["tokens"], values, strict=True))
    )
    return Context(
        text=str(found["text"]),
        task=str(found["task"]),
        source=str(found["source"]),
        position=int(found["position"]),
        value=float(found["value"]),
        words=words,
    )
