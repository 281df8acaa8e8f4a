"""What is told of the dictionaries: table, strongest tokens, quality, null
controls, simpler methods beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from crosscoders.activations.streams import Stream, TextNote
from crosscoders.activations.texts import TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.controls import (
    NO_SHARE,
    false_discovery_row,
    given_row,
    same_pair,
    same_pair_row,
    second_seed_row,
    shuffled_pair,
    shuffled_pair_row,
)
from crosscoders.latents.reconstruction import SpliceConfig, Spliced, spliced
from crosscoders.latents.row_groups import Contrast
from crosscoders.latents.table import LatentStudy, LatentTable, latent_table, study_latents
from crosscoders.latents.top_activations import TopTokens
from crosscoders.study.diff_files import BASELINES, CONTROLS, LATENTS, MOST_LATENTS, QUALITY, TOKENS
from crosscoders.study.difference_baselines import compared
from crosscoders.study.trained import AGAIN, DIFFERENCE, PAIR, SAME, SHUFFLED
from forensics.records.files import write_json

SPLICED_TEXTS: Final = 64
SURE: Final = 0.05  # q-values below this are told


@dataclass(frozen=True, kw_only=True)
class Reading:
    """`texts` and what both `policies` are on them: `stream` is what is
    reported on, `learnt` what may be chosen on.
    """

    policies: Sequence[Any]
    texts: Sequence[TokenizedText]
    stream: Stream
    learnt: Stream


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured on the reported texts. `separating`:
    latents, the surest first. `baselines`: see `comparing`; `None` where they
    were not asked for. `models`: of the dictionary.
    """

    models: int
    table: LatentTable
    separating: list[int]
    quality: dict[str, Any]
    controls: list[dict[str, Any]]
    baselines: dict[str, Any] | None


def measured(
    dictionaries: Mapping[str, Dictionary],
    reading: Reading,
    contrasts: Sequence[Contrast],
    folder: Path,
    *,
    seed: int,
    controls: bool,
) -> Measured:
    """Measure the dictionaries, and write each part into `folder`."""
    stream = reading.stream
    study = study_latents(dictionaries[PAIR], stream, contrasts)
    study.table.write(folder / LATENTS)
    shown = shown_latents(study.table, contrasts[0].name if contrasts else None)
    write_json(
        folder / TOKENS, token_views(study.top, shown, stream.texts, reading.policies[0].tokenizer)
    )
    quality = quality_of(study, dictionaries[PAIR], reading, seed)
    write_json(folder / QUALITY, quality)
    nulls = controls_of(study.table, dictionaries, stream) if controls else []
    write_json(folder / CONTROLS, nulls)
    return Measured(
        models=dictionaries[PAIR].config.models,
        table=study.table,
        separating=separating_latents(study.table),
        quality=quality,
        controls=nulls,
        baselines=_beside(study.table, dictionaries, reading, contrasts, folder),
    )


def controls_of(
    real: LatentTable, dictionaries: Mapping[str, Dictionary], stream: Stream
) -> list[dict[str, Any]]:
    """`controls.json`: what each control shows and what it should, from dictionaries
    that were trained beside that of the pair; or, for one that was given, from
    that one on the same model twice. In a dictionary of one model no latent could
    be specific.
    """
    if SAME not in dictionaries:
        pair = dictionaries[PAIR]
        return [given_row(pair, stream)] if pair.config.models > 1 else []
    same = latent_table(dictionaries[SAME], same_pair(stream), config=NO_SHARE)
    shuffled = latent_table(dictionaries[SHUFFLED], shuffled_pair(stream))
    rows = [same_pair_row(same), shuffled_pair_row(shuffled), false_discovery_row(real, same)]
    alive = real.column("frequency") > 0
    if not alive.any():
        none = {"found": "no latent is ever active", "expected": "many come back"}
        return [*rows, {"name": "second seed", **none}]
    again = dictionaries[AGAIN]
    everyone = np.ones(len(again.bias), dtype=bool)
    return [*rows, second_seed_row(dictionaries[PAIR], again, alive=(alive, everyone))]


def _beside(
    table: LatentTable,
    dictionaries: Mapping[str, Dictionary],
    reading: Reading,
    contrasts: Sequence[Contrast],
    folder: Path,
) -> dict[str, Any] | None:
    """`baselines.json`; `None` where no baseline was trained."""
    if DIFFERENCE not in dictionaries:
        return None
    found = compared(
        dictionaries[PAIR],
        dictionaries[DIFFERENCE],
        reading.learnt,
        reading.stream,
        contrasts[0] if contrasts else None,
        table.specific("after").tolist(),
    )
    write_json(folder / BASELINES, found)
    return found


def shown_latents(table: LatentTable, contrast: str | None) -> list[int]:
    """The latents whose tokens are kept: by q-value and difference, and those
    that are specific to a model.
    """
    q = np.nan_to_num(table.column("q_value"), nan=2.0)
    size = (
        np.zeros(len(q))
        if contrast is None
        else -np.abs(np.nan_to_num(table.column(f"difference_{contrast}")))
    )
    by_contrast = np.lexsort((np.arange(len(q)), size, q))[:MOST_LATENTS]
    specific = np.concatenate([table.specific(side)[:MOST_LATENTS] for side in ("after", "before")])
    return [int(one) for one in dict.fromkeys([*by_contrast.tolist(), *specific.tolist()])]


def separating_latents(table: LatentTable) -> list[int]:
    """Latents that separate the first contrast's groups, the surest first."""
    q = table.column("q_value")
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero(q < SURE)
    return [int(one) for one in found[np.argsort(q[found], kind="stable")]]


def token_views(
    tops: TopTokens, latents: Sequence[int], texts: Sequence[TextNote], tokenizer: Any
) -> dict[str, list[dict[str, Any]]]:
    """`tokens.json`: for each latent its strongest tokens with what stands around them, in text."""
    notes = {note.id: note for note in texts}
    found: dict[str, list[dict[str, Any]]] = {}
    for latent in latents:
        rows = []
        for top in tops.of(latent):
            ids, note = (*top.before, top.token, *top.after), notes[top.text]
            at = len(top.before)
            rows.append(
                {
                    "text": top.text,
                    "task": note.task,
                    "source": note.source,
                    "position": top.position,
                    "value": top.value,
                    "at": at,
                    "tokens": [str(tokenizer.decode([i])) for i in ids],
                    "values": [top.value if place == at else 0.0 for place in range(len(ids))],
                }
            )
        found[str(latent)] = rows
    return found


def quality_of(
    study: LatentStudy, dictionary: Dictionary, reading: Reading, seed: int
) -> dict[str, Any]:
    """`quality.json`: variance explained, activity, and what is recovered with
    the reconstruction spliced in.
    """
    chosen = [text for text in reading.texts if len(text) > 1][:SPLICED_TEXTS]
    results = (
        spliced(
            dictionary,
            reading.policies,
            [text.token_ids.tolist() for text in chosen],
            SpliceConfig(site=reading.stream.site, seed=seed),
            tasks=[text.note.task for text in chosen],
        )
        if chosen
        else ()
    )
    sides = dict(zip(("before", "after"), results, strict=False))
    return asdict(study.quality) | {
        "spliced": {side: _recovered(found) for side, found in sides.items()}
    }


def _recovered(found: Spliced) -> dict[str, Any]:
    shares = {"cross-entropy": found.cross_entropy_recovered, "KL": found.kl_recovered}
    return {name: None if share is None else asdict(share) for name, share in shares.items()}
