"""What a diff found, in plain sentences with the numbers in them."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.latents.table import LatentTable
from crosscoders.patching.decisions import Theme
from crosscoders.study.diff_files import STEERED
from crosscoders.study.measures import SURE, Measured
from forensics.phrases import percent, plural, printable
from forensics.policies import Given

MOST_NAMED: Final = 5


def told(
    found: Measured,
    theme: Theme | None,
    location: Mapping[str, Any] | None,
    site: str,
    saved: SavedDictionary | None = None,
) -> dict[str, Any]:
    """What `diff.json` says of the findings: as sentences, the most important
    first, and as plain values.
    """
    table, latents = found.table, rising(found)
    said = list(location["sentences"]) if location else []
    if theme:
        shares = f"{percent(theme.before)} before training, {percent(theme.after)} after"
        said.append(f"Runs with {printable(theme.name)}: {shares}.")
    said += [_separating(table, found.separating, theme), _specific(found)]
    if theme and latents:
        said.append(
            f"Of these, more active where {printable(theme.name)} is decided: {_named(latents)}."
        )
    said += [_quality(found, site, saved), *_beside(found.baselines)]
    said += [
        f"Control, {one['name']}: {one['found']} (it should be: {one['expected']})."
        for one in found.controls
    ]
    said.append(
        "That a latent separates steps does not say that it causes them: test it with"
        " `forensics steer`."
    )
    first = table.contrasts[0] if table.contrasts else None
    groups = "Won against lost runs"
    if theme:
        kinds = ", ".join(map(printable, theme.kinds))
        groups = f"Decisions for {printable(theme.name)} ({kinds}) against all other decisions"
    return {
        "sentences": said,
        "contrast_sentence": f"{groups}, in {plural(first.tasks, 'task')} that have both."
        if first
        else "No two groups of steps are known, so nothing was tested.",
        "contrasts": [contrast.name for contrast in table.contrasts],
        "tasks": first.tasks if first else 0,
        "theme": vars(theme) | {"kinds": list(theme.kinds)} if theme else None,
        "where": location["where"] if location else None,
        "separating": found.separating,
        "specific": [int(one) for one in table.specific("after")],
    }


def _separating(table: LatentTable, separating: Sequence[int], theme: Theme | None) -> str:
    if not table.contrasts:
        return "Nothing is known that steps could be told apart by, so no latent was tested."
    groups = "won from lost runs"
    if theme:
        groups = f"decisions for {printable(theme.name)} from all others"
    if not separating:
        return f"No latent separates {groups} (q below {SURE})."
    kinds = table.column("specific")
    own = sum(kinds[latent] == "after" for latent in separating)
    return (
        f"{plural(len(separating), 'latent')} of {len(kinds)} separate {groups} (q below {SURE}),"
        f" {own} of them specific to the after model; the surest: {_named(separating)}."
    )


def rising(found: Measured) -> list[int]:
    """Latents that are specific to after and more active where the measured
    behaviour is decided, the most so first.
    """
    if not found.table.contrasts:
        return []
    gap = found.table.column(f"difference_{found.table.contrasts[0].name}")
    own = set(found.table.specific("after").tolist())
    return sorted(
        (one for one in found.separating if one in own and gap[one] > 0), key=lambda one: -gap[one]
    )


def _named(latents: Sequence[int]) -> str:
    return ", ".join(map(str, latents[:MOST_NAMED])) + (
        ", ..." if len(latents) > MOST_NAMED else ""
    )


def _specific(measured: Measured) -> str:
    latents = measured.table.specific("after").tolist()
    if measured.models == 1:
        return (
            "The dictionary has one decoder for both models, so no latent of it can belong to one"
            " of them; nu says how much of it the other model has."
        )
    if not latents:
        return (
            "No latent is specific to the after model by its block and by latent scaling: nothing"
            " new was found."
        )
    dedicated = (measured.table.column("partition") == "after-only").any()
    return (
        f"{plural(len(latents), 'latent')}{' lie in the after-only block and' if dedicated else ''}"
        f" are missing in the before model by latent scaling: {_named(latents)}."
    )


def _quality(found: Measured, site: str, saved: SavedDictionary | None) -> str:
    quality, number = found.quality, len(found.table.column("latent"))
    shares = " and ".join(
        "an unknown share" if one is None else percent(one) for one in quality["variance_explained"]
    )
    which = f"a dictionary of {number} latents"
    if saved:
        which = f"the dictionary that was given ({saved.kind}, {number} latents)"
    return (
        f"At {site} {which} explains {shares} of the variance of the two models with"
        f" {quality['l0']:.1f} active latents a token."
    )


def _beside(baselines: Mapping[str, Any] | None) -> list[str]:
    """What simpler methods do, in a sentence or two."""
    if baselines is None:
        return []
    methods = [
        one for one in baselines["methods"] if one["explained"] is not None and one["features"]
    ]
    shares = [f"{one['name']} {percent(one['explained'])} ({one['active']:.2g})" for one in methods]
    said = (
        [
            "Explained of the variance of the models' difference (active latents or components a"
            f" token): {'; '.join(shares)}."
        ]
        if shares
        else ["The models do not differ here, so there is nothing to explain."]
    )
    areas = [
        f"{one['name']} {one['auroc']['estimate']:.2f}"
        for one in baselines["methods"]
        if one["auroc"]
    ]
    if areas:
        said.append(
            "One feature each, chosen on the tasks trained on, tells these steps apart with an"
            f" AUROC of: {'; '.join(areas)}."
        )
    return said


def steer_command(
    before: Given, after: Given, out: Path, features: Sequence[int], options: Sequence[str]
) -> str:
    """The command that tests these latents, or where there are none those most
    active before the behaviour.
    """
    chosen = ",".join(map(str, features[:MOST_NAMED])) or f"contrast:{MOST_NAMED}"
    words = ["forensics", "steer", "--before", before, "--after", after, *options]
    words += ["--dictionary", out / "dictionary", "--features", chosen, "--out", out / STEERED]
    return shlex.join(map(str, words))
