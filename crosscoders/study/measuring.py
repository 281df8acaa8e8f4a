"""What is told of the dictionaries: table, strongest tokens, quality, and what the null controls show."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from crosscoders.activations import Stream, TextNote
from crosscoders.dictionary import Dictionary
from crosscoders.harvest import Text
from crosscoders.latents import (
    Contrast,
    LatentStudy,
    LatentTable,
    SpliceConfig,
    Spliced,
    Tops,
    false_discovery,
    latent_table,
    null_controls,
    recurrence,
    same_pair,
    shuffled_pair,
    spliced,
    study_latents,
)
from crosscoders.study.files import CONTROLS, LATENTS, QUALITY, TOKENS
from crosscoders.study.making import AGAIN, PAIR, SAME, SHUFFLED
from crosscoders.study.view import MOST_LATENTS
from forensics.records.files import write_json
from forensics.wording import percent

SPLICED_TEXTS: Final = 64
Controls = list[dict[str, Any]]
SURE: Final = 0.05  # q-values below this are told


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured on the reported texts. `separating`: latents, the surest first."""

    table: LatentTable
    separating: list[int]
    quality: dict[str, Any]
    controls: Controls


def measured(
    dictionaries: Mapping[str, Dictionary], policies: Sequence[Any], stream: Stream, texts: Sequence[Text],
    contrasts: Sequence[Contrast], folder: Path, seed: int,
) -> Measured:
    """Measure the dictionaries on a stream of `texts`, and write each part into `folder`."""
    study = study_latents(dictionaries[PAIR], stream, contrasts)
    study.table.write(folder / LATENTS)
    shown = shown_latents(study.table, contrasts[0].name if contrasts else None)
    write_json(folder / TOKENS, token_views(study.top, shown, stream.texts, policies[0].tokenizer))
    quality = quality_of(study, dictionaries[PAIR], policies, texts, stream.site, seed)
    write_json(folder / QUALITY, quality)
    controls = controls_of(study.table, dictionaries, stream)
    write_json(folder / CONTROLS, controls)
    return Measured(
        table=study.table, separating=separating_latents(study.table), quality=quality, controls=controls
    )


def shown_latents(table: LatentTable, contrast: str | None) -> list[int]:
    """The latents whose tokens are kept: by q-value and difference, and those that are specific to a model."""
    q = np.nan_to_num(table.column("q_value"), nan=2.0)
    size = np.zeros(len(q)) if contrast is None else -np.abs(np.nan_to_num(table.column(f"difference_{contrast}")))
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
    tops: Tops, latents: Sequence[int], texts: Sequence[TextNote], tokenizer: Any
) -> dict[str, list[dict[str, Any]]]:
    """`tokens.json`: for each latent its strongest tokens with what stands around them, in text."""
    notes = {note.id: note for note in texts}
    found: dict[str, list[dict[str, Any]]] = {}
    for latent in latents:
        rows = []
        for top in tops.of(latent):
            ids, note = (*top.before, top.token, *top.after), notes[top.text]
            at = len(top.before)
            rows.append({
                "text": top.text, "task": note.task, "source": note.source, "position": top.position,
                "value": top.value, "at": at, "tokens": [str(tokenizer.decode([i])) for i in ids],
                "values": [top.value if place == at else 0.0 for place in range(len(ids))],
            })
        found[str(latent)] = rows
    return found


def quality_of(
    study: LatentStudy, dictionary: Dictionary, policies: Sequence[Any], texts: Sequence[Text], site: str, seed: int
) -> dict[str, Any]:
    """`quality.json`: variance explained, activity, and what is recovered with the reconstruction spliced in."""
    chosen = [text for text in texts if len(text) > 1][:SPLICED_TEXTS]
    results = spliced(
        dictionary, policies, [text.token_ids.tolist() for text in chosen], SpliceConfig(site=site, seed=seed),
        tasks=[text.note.task for text in chosen],
    ) if chosen else ()
    sides = dict(zip(("before", "after"), results, strict=False))
    return asdict(study.quality) | {"spliced": {side: _recovered(found) for side, found in sides.items()}}


def _recovered(found: Spliced) -> dict[str, Any]:
    shares = {"cross-entropy": found.cross_entropy_recovered, "KL": found.kl_recovered}
    return {name: None if share is None else asdict(share) for name, share in shares.items()}


def controls_of(
    real: LatentTable, dictionaries: Mapping[str, Dictionary], stream: Stream
) -> Controls:
    """`controls.json`: what each control shows and what it should; none where none were trained."""
    if SAME not in dictionaries:
        return []
    same = latent_table(dictionaries[SAME], same_pair(stream))
    shuffled = latent_table(dictionaries[SHUFFLED], shuffled_pair(stream))
    rows = [
        {"name": control.name, "found": _share(control.share), "expected": control.must, "share": control.share,
         "holds": control.holds}
        for control in null_controls(same, shuffled)
    ]
    return [*rows, _discovery(real, same), _recurring(dictionaries, real)]


def _discovery(real: LatentTable, same: LatentTable) -> dict[str, Any]:
    found = false_discovery(real, same)
    told = "nothing was found" if found.rate is None or found.high is None else (
        f"{percent(found.rate)} of the {found.found} specific latents, at most {percent(found.high)}")
    return {"name": "false ones among the specific latents", "found": told, "expected": "few",
            "counts": asdict(found)}


def _recurring(dictionaries: Mapping[str, Dictionary], real: LatentTable) -> dict[str, Any]:
    alive = real.column("frequency") > 0
    everyone = np.ones(len(dictionaries[AGAIN].bias), dtype=bool)
    if not alive.any():
        return {"name": "second seed", "found": "no latent is ever active", "expected": "many come back"}
    found = recurrence(dictionaries[PAIR], dictionaries[AGAIN], alive=(alive, everyone))
    return {"name": "second seed", "found": f"{percent(found.share)} of the latents come back",
            "expected": f"more than by chance ({percent(found.chance)})", "share": found.share, "chance": found.chance}


def _share(share: float | None) -> str:
    return "no candidate" if share is None else f"{percent(share)} of the candidates are specific"
