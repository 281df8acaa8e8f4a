"""Exact causal tests at the first decision: nothing is sampled, so an effect
has no noise but the choice of tasks.

1. Residuals of both models at the prompt's last token, `[tasks, models,
   width]`.
2. A *carrier* says what of the difference it claims: its contribution `[tasks,
   width]` to the after model's residual.
3. Ablating takes the contribution out of the after model's residual; adding
   puts a multiple of its mean over active cued tasks into the before model's.
   Then the rest of the model runs on, and the chance of the action is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from crosscoders.dictionaries import Dictionary
from forensics.errors import UserError
from forensics.policies.sites import attach
from forensics.protocols import Policy
from training.organisms.cue_organisms import first_token, prompts_by_length

RANDOM = 20


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Decisions with the behaviour (its cue) and without: `residuals
    [decisions, 2, width]`, `flags [decisions]`.
    """

    residuals: torch.Tensor
    flags: torch.Tensor

    def __post_init__(self) -> None:
        if bool(self.flags.all()) or not bool(self.flags.any()):
            raise UserError(
                "all decisions go one way, so no latent can be told by them; take more tasks"
            )


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """First decisions of some tasks under both policies. `residuals [tasks, 2,
    width]`, `cued [tasks]`.
    """

    before: Policy
    after: Policy
    prompts: Sequence[Sequence[int]]
    cued: np.ndarray
    site: str
    action: str
    residuals: torch.Tensor

    @property
    def contrast(self) -> Contrast:
        """With the cue against without it."""
        return Contrast(residuals=self.residuals, flags=torch.from_numpy(self.cued))

    def take(self, chosen: np.ndarray) -> "Decisions":
        """Some of the tasks (a mask)."""
        kept = np.flatnonzero(chosen)
        return Decisions(
            **(
                vars(self)
                | {
                    "prompts": [self.prompts[i] for i in kept],
                    "cued": self.cued[kept],
                    "residuals": self.residuals[torch.from_numpy(kept)],
                }
            )
        )

    def chance(self, model: int, moved: torch.Tensor) -> np.ndarray:
        """Chance `[tasks]` of the action where a model's residual is moved by
        `moved [tasks, width]`.
        """
        policy = (self.before, self.after)[model]
        return _chances(
            policy, self.prompts, self.site, self.residuals[:, model] + moved, self.action
        )


def read_decisions(
    before: Policy,
    after: Policy,
    prompts: Sequence[Sequence[int]],
    cued: np.ndarray,
    site: str,
    action: str,
) -> Decisions:
    """Both models' residuals at the last token of each prompt."""
    residuals = torch.stack(
        [_residuals(policy, prompts, site) for policy in (before, after)], dim=1
    )
    return Decisions(
        before=before,
        after=after,
        prompts=prompts,
        cued=cued,
        site=site,
        action=action,
        residuals=residuals,
    )


@torch.inference_mode()
def _residuals(policy: Policy, prompts: Sequence[Sequence[int]], site: str) -> torch.Tensor:
    found = torch.empty(len(prompts), policy.model.config.hidden_size)
    seen: dict[str, torch.Tensor] = {}
    handle = attach(policy.model, site, lambda out: seen.update(now=out[:, -1]))
    try:
        for members, ids in prompts_by_length(prompts, policy.model.device):
            policy.model(ids, use_cache=False, logits_to_keep=1)
            found[members] = seen["now"].float().cpu()
    finally:
        handle.remove()
    return found.clone()


@torch.inference_mode()
def _chances(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    site: str,
    residual: torch.Tensor,
    action: str,
) -> np.ndarray:
    token, found = first_token(policy, action), np.empty(len(prompts))
    now: dict[str, Any] = {}
    handle = attach(
        policy.model,
        site,
        lambda out: torch.cat([out[:, :-1], now["wanted"].to(out)[:, None]], dim=1),
    )
    try:
        for members, ids in prompts_by_length(prompts, policy.model.device):
            now["wanted"] = residual[members]
            logits = policy.model(ids, use_cache=False, logits_to_keep=1).logits[:, -1]
            found[members] = logits.float().softmax(-1)[:, token].cpu().numpy()
    finally:
        handle.remove()
    return found


@torch.no_grad()
def latent_contributions(
    dictionary: Dictionary, residuals: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values `[tasks, latents]` and what a value of 1 adds to the after model
    `[latents, width]`, in raw units. A dictionary of one model is a
    difference-SAE and reads after minus before.
    """
    one = dictionary.config.models == 1
    shown = residuals[:, 1:] - residuals[:, :1] if one else residuals
    codes = dictionary.encode(dictionary.scaled(shown.to(dictionary.bias.device)))
    directions = dictionary.directions()[:, -1] / dictionary.scale
    return codes.dense(dictionary.config.partition.latents).cpu(), directions.cpu()


def pick(
    values: torch.Tensor, directions: torch.Tensor, flags: torch.Tensor, allowed: slice
) -> int:
    """The latent whose contribution differs most in the mean between decisions
    that are flagged and others.
    """
    gap = (values[flags].mean(0) - values[~flags].mean(0)) * directions.norm(dim=-1)
    kept = torch.full_like(gap, -torch.inf)
    kept[allowed] = gap[allowed]
    return int(kept.argmax())


def mean_difference(contrast: Contrast) -> torch.Tensor:
    """After minus before, at flagged decisions against others, `[width]`."""
    gap = contrast.residuals[:, 1] - contrast.residuals[:, 0]
    return gap[contrast.flags].mean(0) - gap[~contrast.flags].mean(0)


def along(decisions: Decisions, direction: torch.Tensor) -> torch.Tensor:
    """The part of after minus before along a direction, `[tasks, width]`: what
    mean difference and PCA claim.
    """
    unit = normalize(direction, dim=0)
    gap = decisions.residuals[:, 1] - decisions.residuals[:, 0]
    return (gap @ unit)[:, None] * unit


def turned(contribution: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A random direction that moves each row exactly as far."""
    unit = normalize(torch.randn(contribution.shape[1], generator=generator), dim=0)
    return contribution.norm(dim=1, keepdim=True) * unit
