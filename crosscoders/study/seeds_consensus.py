"""What the seeds agree on, as a dictionary of its own beside that of the pair.

1. Latents that enough of the other seeds have are merged (`latents.consensus`). Kept in
   `consensus/` with the table of its latents on the tasks reported on, where `origin` is the
   latent of the pair's dictionary that each was.
2. Merged latents leave most of each row to others, so from there they are trained on for a
   `REFIT` of the pair's tokens, on the same stream; nothing revives what falls silent. Kept in
   `consensus/refitted/`. What is fitted to whole rows may turn away from what the seeds agree on:
   `kept` is how many are still matched to what they were.
3. Three rows are told: `full` (the pair's dictionary), `merged`, `refitted`. Of each: active
   latents a token, explained variance of both models and of their difference, what is lost with
   the reconstruction spliced in (KL divergence), and the behaviour that it carries.
4. Carried, of the exact chance of the behaviour at the first decision (of the loss, where none is
   known): `by_reconstruction`, where the after model runs through its own, the share that is left
   of the change from the before model; `by_difference`, where of what parts the activations only
   the dictionary's account is left, the share of what taking out all that parts them takes away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch

from crosscoders.dictionaries.crosscoder_run import train_crosscoders
from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import CONFIG, load_dictionary, save_dictionary
from crosscoders.latents.consensus import agreed, merged
from crosscoders.latents.reconstruction import Spliced, quality
from crosscoders.latents.stability import stability
from crosscoders.latents.table import study_latents
from crosscoders.steering.activation_edits import (
    account_change,
    routing_change,
    subspace_change,
)
from crosscoders.study.causal_probe import FEW_TEXTS, TEXTS, WORTH, Probe
from crosscoders.study.diff_files import CONSENSUS, LATENTS, SIDES
from crosscoders.study.material import Inquiry
from crosscoders.study.measures import Measured, spliced_texts
from crosscoders.study.study_dictionaries import PAIR, dictionary_job, is_seed
from forensics.errors import UserError
from forensics.phrases import percent, plural, share_of_change
from forensics.statistics import mean, ratio

REFIT: Final = 0.25  # of the tokens that the pair's dictionary is trained on
REFITTED: Final = "refitted"
NONE: Final = "No latent comes back from at least half of the other seeds: these have no consensus."
Carried = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Consensus:
    """`rows`: see the module; none where nothing is agreed on. `seeds`: how many."""

    rows: tuple[dict[str, Any], ...]
    seeds: int

    @property
    def sentence(self) -> str:
        """In words."""
        if not self.rows:
            return NONE
        full, own, refitted = self.rows
        whole, some = (" and ".join(map(_share, one["variance_explained"])) for one in (full, own))
        said = (
            f"Found from at least half of the other seeds: {plural(own['latents'], 'latent')} of"
            f" {full['latents']:,}. Merged over {self.seeds} seeds (in brackets: all latents):"
            f" {_share(own['difference_explained'])} ({_share(full['difference_explained'])}) of"
            " the variance of the models' difference is explained with"
            f" {own['active']:.2g} ({full['active']:.2g}) active a token"
        )
        if (share := _carried_share(own, "by_difference")) is not None:
            of_full = _carried_share(full, "by_difference")
            carried = "an unknown share" if of_full is None else share_of_change(of_full)
            said += (
                f", {share_of_change(share)} ({carried}) of what it does to the"
                f" {own['carried']['measure']} is carried"
            )
        said += f"; of the variance of the two models {some} ({whole})"
        if own["kl"]:
            nats = "{:.2g} ({:.2g})".format(*(one["kl"][SIDES[1]] for one in (own, full)))
            said += f", so that spliced into the after model it costs {nats} nats of KL a token"
        return (
            f"{said}. Trained on from there, {refitted['kept']} of"
            f" {plural(own['latents'], 'latent')} stay the same, and"
            f" {_share(refitted['difference_explained'])} of the difference is explained."
        )


def _share(share: float | None) -> str:
    return "an unknown share" if share is None else percent(share)


def _carried_share(row: Mapping[str, Any], how: str) -> float | None:
    found: Mapping[str, float] | None = row["carried"] and row["carried"][how]
    return found["estimate"] if found else None


def consensus_of(
    inquiry: Inquiry, dictionaries: Mapping[str, Dictionary], found: Measured
) -> Consensus | None:
    """Merged, refitted (or read back) and measured. `None` where there is one seed."""
    if found.stability is None:
        return None
    seeds = [dictionaries[PAIR], *(one for name, one in dictionaries.items() if is_seed(name))]
    one = merged(seeds, found.stability, found.table.column("frequency"))
    if one is None:
        return Consensus(rows=(), seeds=len(seeds))
    place, reported = inquiry.folder / CONSENSUS, inquiry.streams.reported
    study = study_latents(one, reported)
    study.table.with_column("origin", agreed(found.stability)).write(place / LATENTS)
    save_dictionary(one, place, **inquiry.about, merged_of=len(seeds))
    if not (place / REFITTED / CONFIG).is_file():
        fitted = _refitted(inquiry, one)
        save_dictionary(fitted, place / REFITTED, **inquiry.about, merged_of=len(seeds))
    fitted = load_dictionary(place / REFITTED, one.bias.device)
    everyone = {"full": seeds[0], "merged": one, REFITTED: fitted}
    told = (found.quality, asdict(study.quality), asdict(quality(fitted, reported)))
    runs = (found.spliced, *(spliced_texts(inquiry, each) for each in (one, fitted)))
    carried = _carried(inquiry, [*everyone.values()])
    kept = int((stability(one, [fitted], reported).partners >= 0).sum())
    rows = [
        {"name": name, "latents": len(each.bias), "kept": kept if each is fitted else None} | parts
        for (name, each), parts in zip(
            everyone.items(), map(_row, told, runs, carried), strict=True
        )
    ]
    return Consensus(rows=tuple(rows), seeds=len(seeds))


def _refitted(inquiry: Inquiry, start: Dictionary) -> Dictionary:
    request, tokens = inquiry.request, inquiry.training_tokens
    job = dictionary_job(request, PAIR, start.config.width, tokens)
    few = max(job.settings.batch, round(REFIT * tokens))
    settings = replace(job.settings, tokens=few, auxiliary=0.0)
    job = TrainingJob(config=start.config, settings=settings, start=start)

    def hear(now: Any) -> None:
        inquiry.progress("refitting what the seeds agree on", now.step, now.steps)

    trained = train_crosscoders(
        inquiry.streams.learnt, {CONSENSUS: job}, device=request.device, progress=hear
    )
    return trained[CONSENSUS].dictionary


def _row(
    told: Mapping[str, Any], runs: Sequence[Spliced], carried: Carried | None
) -> dict[str, Any]:
    sides = dict(zip(SIDES, runs, strict=False))
    return {
        "active": told["l0"],
        "variance_explained": list(told["variance_explained"]),
        "difference_explained": told["difference_explained"],
        "kl": {side: one.kl_spliced for side, one in sides.items()},
        "kl_recovered": {
            side: one.kl_recovered and asdict(one.kl_recovered) for side, one in sides.items()
        },
        "carried": carried,
    }


def _carried(inquiry: Inquiry, dictionaries: Sequence[Dictionary]) -> list[Carried | None]:
    """By dictionary; `None` where no two tasks have a text."""
    policies, streams = inquiry.policies, inquiry.streams
    most = TEXTS if streams.small else FEW_TEXTS
    try:
        probe = Probe.of(policies[-1], streams.reported, inquiry.behaviour, most=most)
    except UserError:
        return [None] * len(dictionaries)
    everything = torch.eye(streams.reported.width, device=dictionaries[0].bias.device)
    none = subspace_change(everything, mode="ablate", acting="after", strength=1.0)
    after, undone = probe.values(), probe.values(none)
    before = replace(probe, policy=policies[0], kept={}).values()
    least = WORTH[not probe.is_chance]
    return [
        {
            "measure": probe.measure,
            "by_reconstruction": _left(
                probe.values(routing_change(one, acting="after")), before, after, least
            ),
            "by_difference": _left(probe.values(account_change(one)), undone, after, least),
        }
        for one in dictionaries
    ]


def _left(
    values: np.ndarray, before: np.ndarray, after: np.ndarray, least: float
) -> dict[str, float] | None:
    """The share of the way from `before` to `after` `[tasks]` at which `values` lie; `None` where
    that way is not sure to be there.
    """
    whole = mean(after - before)
    if abs(whole.estimate) < least or whole.low <= 0 <= whole.high:
        return None
    return ratio(values - before, after - before).row()
