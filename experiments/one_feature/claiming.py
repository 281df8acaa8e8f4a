"""What each carrier claims of the models' difference: a latent of a dictionary, or a direction."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from crosscoders import Stream, principal_components
from crosscoders.dictionaries import Dictionary
from experiments.one_feature.first_decision import (
    Contrast,
    Decisions,
    along,
    latent_contributions,
    mean_difference,
    pick,
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`direction [width]`; `here`, `there`: its contributions `[tasks, width]`
    on the choosing and the reporting half.
    `latent`: of which latent, where it is one.
    """

    direction: torch.Tensor
    here: torch.Tensor
    there: torch.Tensor
    latent: int | None = None


def claims(
    dictionaries: Mapping[str, Dictionary],
    stream: Stream,
    choosing: Decisions,
    reporting: Decisions,
    contrast: Contrast,
) -> dict[str, Claim]:
    """Of every dictionary, and of the baselines that have no latents."""
    found = {
        name: _latent(each, choosing, reporting, contrast) for name, each in dictionaries.items()
    }
    baselines = {
        "PCA": principal_components(stream).directions[0].float(),
        "mean difference": mean_difference(contrast),
    }
    for name, direction in baselines.items():
        here, there = along(choosing, direction), along(reporting, direction)
        found[name] = Claim(direction=direction, here=here, there=there)
    return found


def _latent(
    dictionary: Dictionary, choosing: Decisions, reporting: Decisions, contrast: Contrast
) -> Claim:
    """The latent of the largest contrast: of the after-only ones where there
    are some, else of all.
    """
    told, directions = latent_contributions(dictionary, contrast.residuals)
    part = dictionary.config.partition
    allowed = slice(part.shared.stop, part.latents) if part.after_only else slice(0, part.latents)
    latent = pick(told, directions, contrast.flags, allowed)
    here, there = (
        latent_contributions(dictionary, half.residuals)[0][:, [latent]] * directions[latent]
        for half in (choosing, reporting)
    )
    return Claim(direction=directions[latent], here=here, there=there, latent=latent)
