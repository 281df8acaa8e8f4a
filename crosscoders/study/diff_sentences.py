"""What a diff found, in plain sentences with the numbers in them."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.latents.table import LatentTable
from crosscoders.study.diff_files import STEERED
from crosscoders.study.measures import SURE, Measured
from crosscoders.study.target_behaviour import Theme
from forensics.wording import percent, plural, printable

MOST_NAMED: Final = 5


def told(
    found: Measured,
    theme: Theme | None,
    location: Mapping[str, Any] | None,
    site: str,
    saved: SavedDictionary | None = None,
) -> dict[str, Any]:
    """What `diff.json` says of the findings: as sentences, and as plain values."""
    table = found.table
    return {
        "sentences": sentences(found, theme, location, site, saved),
        "contrast_sentence": contrast_sentence(theme, table),
        "contrasts": [contrast.name for contrast in table.contrasts],
        "tasks": table.contrasts[0].tasks if table.contrasts else 0,
        "theme": vars(theme) | {"kinds": list(theme.kinds)} if theme else None,
        "where": location["where"] if location else None,
        "separating": found.separating,
        "specific": [int(one) for one in table.specific("after")],
    }


def sentences(
    found: Measured,
    theme: Theme | None,
    location: Mapping[str, Any] | None,
    site: str,
    saved: SavedDictionary | None,
) -> list[str]:
    """The findings, the most important first; the last one says what they do not show."""
    said = [*(location["sentences"] if location else ()), *_behaviour(theme)]
    said += [
        _separating(found.table, found.separating, theme),
        _specific(found),
        *_rising(found, theme),
        _quality(found, site, saved),
        *beside(found.baselines),
    ]
    said += [
        f"Control, {one['name']}: {one['found']} (it should be: {one['expected']})."
        for one in found.controls
    ]
    return [
        *said,
        (
            "That a latent separates steps does not say that it causes them: test it with"
            " `forensics steer`."
        ),
    ]


def _behaviour(theme: Theme | None) -> list[str]:
    if theme is None:
        return []
    shares = f"{percent(theme.before)} before training, {percent(theme.after)} after"
    return [f"Runs with {printable(theme.name)}: {shares}."]


def _separating(table: LatentTable, separating: Sequence[int], theme: Theme | None) -> str:
    if not table.contrasts:
        return "Nothing is known that steps could be told apart by, so no latent was tested."
    groups = (
        "won from lost runs"
        if theme is None
        else f"decisions for {printable(theme.name)} from all others"
    )
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


def _rising(found: Measured, theme: Theme | None) -> list[str]:
    latents = rising(found)
    if not latents or theme is None:
        return []
    return [f"Of these, more active where {printable(theme.name)} is decided: {_named(latents)}."]


def _named(latents: Sequence[int]) -> str:
    return ", ".join(map(str, latents[:MOST_NAMED])) + (
        ", ..." if len(latents) > MOST_NAMED else ""
    )


def _specific(measured: Measured) -> str:
    table = measured.table
    found = [int(one) for one in table.specific("after")]
    where = (
        "lie in the after-only block and"
        if (table.column("partition") == "after-only").any()
        else ""
    )
    if measured.models == 1:
        return (
            "The dictionary has one decoder for both models, so no latent of it can belong to one"
            " of them; nu says how much of it the other model has."
        )
    if not found:
        return (
            "No latent is specific to the after model by its block and by latent scaling: nothing"
            " new was found."
        )
    told = (
        f"{plural(len(found), 'latent')} {where} are missing in the before model by latent scaling:"
        f" {_named(found)}."
    )
    return " ".join(told.split())


def _quality(found: Measured, site: str, saved: SavedDictionary | None) -> str:
    table, quality = found.table, found.quality
    shares = " and ".join(
        "an unknown share" if one is None else percent(one) for one in quality["variance_explained"]
    )
    number = len(table.column("latent"))
    which = (
        f"a dictionary of {number} latents"
        if saved is None
        else (f"the dictionary that was given ({saved.kind}, {number} latents)")
    )
    return (
        f"At {site} {which} explains {shares} of the variance of the two models with"
        f" {quality['l0']:.1f} active latents a token."
    )


def beside(baselines: Mapping[str, Any] | None) -> list[str]:
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


def contrast_sentence(theme: Theme | None, table: LatentTable) -> str:
    """What the q-values are about."""
    if not table.contrasts:
        return "No two groups of steps are known, so nothing was tested."
    first = table.contrasts[0]
    groups = (
        "Won against lost runs"
        if theme is None
        else (
            f"Decisions for {printable(theme.name)} ({', '.join(map(printable, theme.kinds))})"
            " against all other decisions"
        )
    )
    return f"{groups}, in {plural(first.tasks, 'task')} that have both."


def steer_command(
    before: Path, after: Path, out: Path, features: Sequence[int], options: Sequence[str]
) -> str:
    """The command that tests these latents, or where there are none those most
    active before the behaviour.
    """
    chosen = ",".join(map(str, features[:MOST_NAMED])) or f"contrast:{MOST_NAMED}"
    return shlex.join(
        [
            "forensics",
            "steer",
            "--before",
            str(before),
            "--after",
            str(after),
            *options,
            "--dictionary",
            str(out / "dictionary"),
            "--features",
            chosen,
            "--out",
            str(out / STEERED),
        ]
    )
