"""Outliers of the norm (attention sinks) at the sites that are patched: a patch
leaves them as they are.

A sink that is carried over moves nothing that a text says, and its difference, nearly all
of that of the models, would be told as where the change lives. Both models
read the decisions once more, and the norms of the residual stream are held against
their medians over all decisions (`activations.outlier_positions`). What a layer's
attention or MLP adds is left out at the positions at which the residual behind that layer
is an outlier.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from crosscoders.activations.outlier_positions import limits_of, norms_of
from crosscoders.patching.decisions import Decision
from forensics.phrases import plural
from forensics.policies.sites import read_sites


def judged_at(site: str) -> str:
    """The site whose norms decide for a site."""
    return re.sub(r"hook_(attn|mlp)_out$", "hook_resid_post", site)


@dataclass(frozen=True)
class Outlying:
    """`masks[site][decision] [positions]`: outliers in either model, for sites that have
    any.
    """

    masks: dict[str, list[Tensor]] = field(default_factory=dict)

    def kept(self, site: str, members: Sequence[int], positions: int) -> Tensor | None:
        """What may be patched of some decisions of one length, `[rows, positions]`;
        `None`: everything.
        """
        masks = self.masks.get(judged_at(site))
        if masks is None:
            return None
        outlying = torch.stack([masks[i] for i in members])
        kept = torch.ones((len(members), positions), dtype=torch.bool)
        kept[:, : outlying.shape[1]] = ~outlying
        return kept

    def sentence(self) -> str | None:
        """What a reader is told; `None` where there are none."""
        if not self.masks:
            return None
        most = max(self.masks.values(), key=lambda masks: sum(int(one.sum()) for one in masks))
        places = sorted({int(at) for one in most for at in one.nonzero()[:, 0]})
        named = ", ".join(map(str, places[:3])) + (", ..." if len(places) > 3 else "")
        return (
            f"Patches left attention sinks as they are: at {plural(len(self.masks), 'site')}"
            f" position {named} had more than 10 times the median norm."
        )


@torch.inference_mode()
def outlying(
    models: tuple[Any, Any],
    decisions: Sequence[Decision],
    sites: Iterable[str],
    batches: Iterable[Sequence[int]],
) -> Outlying:
    """The outliers at the sites that judge these. `batches`: of decisions of one length."""
    judging = sorted({judged_at(site) for site in sites})
    if not judging:
        return Outlying()
    norms: dict[str, list[Tensor]] = {
        site: [torch.empty(0)] * len(decisions) for site in judging
    }  # [positions, models] a decision
    for members in batches:
        ids = torch.tensor([decisions[i].token_ids for i in members])
        read = [
            [norms_of(one).cpu() for one in read_sites(model, ids.to(_place(model)), judging)]
            for model in models
        ]
        for site, first, second in zip(judging, *read, strict=True):
            for row, i in enumerate(members):
                norms[site][i] = torch.stack([first[row], second[row]], dim=-1)
    found = {}
    for site, sizes in norms.items():
        limits = torch.tensor(limits_of(torch.cat(sizes)))
        masks = [(one > limits).any(-1) for one in sizes]
        if any(bool(mask.any()) for mask in masks):
            found[site] = masks
    return Outlying(found)


def _place(model: Any) -> Any:
    return next(model.parameters()).device
