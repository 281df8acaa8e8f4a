"""A checkpoint between before and after (base, SFT, RL): how much of the change is there already.

It reads the texts that are reported on; the dictionary stays that of the pair.

1. Of what parts the models, `d = h_after - h_before`, the share that lies along it:
   `sum <h_between - h_before, d> / sum <d, d>`.
2. Of the latents that are the after model's own: least squares of `h_between - h_before` on what
   they write, all together, as a share of the same of d. 0: it came after this checkpoint, 1:
   it is there as it is in the end. From half on it came before (`latents.stages` reads a
   dictionary of all three).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.harvest import HarvestConfig, harvest
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.stages import HALF
from crosscoders.study.material import DEEP, StudyStreams
from crosscoders.study.reported import named
from forensics.phrases import share_of_change
from forensics.progress import Progress


@dataclass(frozen=True, kw_only=True)
class BetweenStage:
    """`share` of the difference, and of each latent, that the checkpoint has."""

    identity: str
    share: float
    latents: dict[int, float]

    def sentence(self, presented: Sequence[int]) -> str:
        """In words, of the latents that the page lists."""
        came = [one for one in presented if self.latents[one] >= HALF]
        later = [one for one in presented if self.latents[one] < HALF]
        parts = [f"came before it: {named(came)}"] if came else []
        parts += [f"came after it: {named(later)}"] if later else []
        share = share_of_change(self.share)
        verb = "goes" if share.startswith("the other way") else "has"
        said = f"The checkpoint between {verb} {share} of what parts the models here"
        return f"{said}; of the latents listed, {', '.join(parts)}." if parts else f"{said}."


@torch.no_grad()
def between_stage(
    policy: Any,
    dictionary: Dictionary,
    own: Sequence[int],
    streams: StudyStreams,
    progress: Progress,
) -> BetweenStage:
    """`own`: latents of the dictionary that are the after model's own."""
    whole, chosen = streams.reported, torch.tensor(list(own), dtype=torch.int64)
    config = HarvestConfig() if streams.small else DEEP
    read: StoredStream = harvest([policy], whole.tokenized, whole.site, config, progress=progress)
    read = replace(read, chosen=whole.chosen)
    sides = dictionary.directions(2)[chosen]
    written = ((sides[:, 1] - sides[:, 0]) / dictionary.scale).double().cpu()
    gram = torch.zeros((len(own), len(own)), dtype=torch.float64)
    along, sums = torch.zeros((len(own), 2), dtype=torch.float64), torch.zeros(2).double()
    for block, between in zip(whole.blocks(), read.blocks(), strict=True):
        rows = block.activations.float()
        moved = torch.stack([between.activations[:, 0].float(), rows[:, -1]]) - rows[:, 0]
        values = dictionary.values(dictionary.scaled(rows.to(dictionary.bias.device)), chosen)
        values, moved = values.double().cpu(), moved.double()
        gram += (values.T @ values) * (written @ written.T)
        along += torch.stack([(values * (one @ written.T)).sum(0) for one in moved], 1)
        sums += torch.stack([(one * moved[1]).sum() for one in moved])
    there, fully = (torch.linalg.pinv(gram, hermitian=True) @ along).unbind(1)
    shares = (there / torch.where(fully == 0, torch.nan, fully)).nan_to_num().tolist()
    return BetweenStage(
        identity=policy.identity,
        share=float(sums[0] / sums[1].clamp(min=1e-30)),
        latents=dict(zip(own, shares, strict=True)),
    )
