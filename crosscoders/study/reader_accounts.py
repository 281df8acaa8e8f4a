"""The readers of the difference, each as a dictionary and those of its latents that give its
*account* `r` of what parts the models: taken out of the after model's activations they leave
`h_after - r`. So a reader is tested, saved and steered with as latents are.

- `components`: the mean of `d = h_after - h_before`, and its first `NUMBER` principal components.
  A component is two latents, one for each sense; the mean is one that is always active.
- `mean-after`: the direction `u` from other steps to those with the behaviour, in the after model
  alone: `r = u u'(h_after - m)`, m the mean of the other steps. It says what the behaviour needs.
- `crosscoder`: the latents of the pair's dictionary that are specific to the after model. What
  leads is set against it; it leads no page itself.

All are learnt on the texts of the tasks trained on. A direction comes back where both halves of
these tasks give it (|cosine| at least `SAME`, one to one; not measured where a half has nothing to
learn from), a latent of the crosscoder where every other seed has it. The rule that set them side
by side: `experiments/readers_of_the_difference`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from crosscoders.activations.activation_store import StoredStream
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.row_groups import Contrast
from crosscoders.latents.table import LatentTable
from crosscoders.steering.activation_edits import Change, Encoding, feature_change
from crosscoders.study.difference_baselines import groups_of, moments_of
from crosscoders.study.study_dictionaries import FOLDERS, PAIR
from forensics.phrases import plural
from forensics.records import content_hash

NUMBER: Final = 2  # components
SAME: Final = 0.9  # |cosine| of directions that are one


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`words` name it in full, `short` in passing. Of its `directions` so many come `back` (`None`:
    not measured). `place`: of the dictionary, below the diff's folder. `encoding`: see
    `feature_change`.
    """

    name: str
    words: str
    short: str
    dictionary: Dictionary
    latents: tuple[int, ...]
    directions: int
    back: int | None
    place: str
    encoding: Encoding = "both"

    @property
    def change(self) -> Change:
        """Its account taken out of the after model."""
        return feature_change(
            self.dictionary,
            self.latents,
            mode="ablate",
            acting="after",
            strength=1.0,
            encoding=self.encoding,
        )


def readers_of(
    names: Sequence[str],
    both: Dictionary,
    learnt: StoredStream,
    contrast: Contrast | None,
    table: LatentTable,
    seeds: int,
) -> list[Reader]:
    """Those of these readers that there are, in their order. `learnt`: to learn from. `contrast`:
    steps with the behaviour and others. `both`: the pair's dictionary. `seeds`: how many others
    stand behind the table.
    """
    makers = {
        "mean-after": partial(_mean_after, learnt, contrast),
        "components": partial(_components, learnt),
        "crosscoder": partial(_crosscoder, both, table, seeds),
    }
    found = (makers[name]() for name in names)
    return [one for one in found if one is not None]


def _components(learnt: StoredStream) -> Reader | None:
    """`None` where the models do not differ."""
    whole, *halves = (moments_of(part) for part in (learnt, *_halves(learnt)))
    if whole.rows < 2 or not float(whole.covariance().trace()) > 0:
        return None
    first, *others = (one.components() for one in (whole, *halves))
    told = all(float(one.covariance().trace()) > 0 for one in halves)
    few = first.directions[:NUMBER].float()
    return Reader(
        name="components",
        words=f"the mean and the first {len(few)} principal components of the models' difference",
        short=f"{len(few)} principal components of the difference",
        dictionary=linear_dictionary(few, first.mean.float(), first.mean.float()),
        latents=tuple(range(2 * len(few) + 1)),
        directions=len(few),
        back=_partners(*(one.directions[:NUMBER].float() for one in others)) if told else None,
        place="baselines/components",
    )


def _mean_after(learnt: StoredStream, contrast: Contrast | None) -> Reader | None:
    """`None` without two groups of steps."""
    groups = groups_of(learnt, contrast)
    if groups is None or contrast is None:
        return None
    after, first = groups.pairs[:, -1], torch.from_numpy(groups.first)

    def unit(chosen: Tensor) -> Tensor:
        gap = after[first & chosen].mean(0) - after[~first & chosen].mean(0)
        return normalize(gap.nan_to_num()[None], dim=-1)

    one_half = torch.tensor([_is_first_half(task) for task in groups.task])
    direction, halves = unit(torch.ones_like(first)), (unit(one_half), unit(~one_half))
    told = all(bool(half.any()) for half in halves)
    return Reader(
        name="mean-after",
        words=f"the after model's direction from other steps to those with {contrast.name}",
        short="the direction of the after model",
        dictionary=linear_dictionary(direction, after[~first].mean(0)),
        latents=(0, 1),
        directions=1,
        back=_partners(*halves) if told else None,
        place="baselines/mean-after",
        encoding="own",
    )


def _crosscoder(both: Dictionary, table: LatentTable, seeds: int) -> Reader | None:
    """`None` where no latent is the after model's own."""
    own = table.specific("after").tolist()
    if not own:
        return None
    back = int((table.column("stability")[own] == 1).sum()) if seeds else None
    many = f"the {len(own)} latents" if len(own) > 1 else "the latent"
    are = "are" if len(own) > 1 else "is"
    return Reader(
        name="crosscoder",
        words=f"{many} of the crosscoder that {are} the after model's own",
        short=f"the dictionary's {plural(len(own), 'latent')}",
        dictionary=both,
        latents=tuple(own),
        directions=len(own),
        back=back,
        place=FOLDERS[PAIR],
    )


def linear_dictionary(
    directions: Float[Tensor, "directions width"],
    origin: Float[Tensor, " width"],
    always: Float[Tensor, " width"] | None = None,
) -> Dictionary:
    """Of one model: two latents for each unit direction, one in either sense, that say how far
    along it a row lies from `origin`; last one that writes `always` in every row.
    """
    both = torch.stack([directions, -directions], 1).flatten(0, 1)
    reads, biases = [both], [-(both @ origin)]
    writes = [both]
    if always is not None:
        reads.append(torch.zeros_like(origin)[None])
        biases.append(origin.new_ones(1))
        writes.append(always[None])
    number, width = sum(map(len, writes)), directions.shape[1]
    config = DictionaryConfig(
        width=width, models=1, activation="relu", k=number, partition=Partition(latents=number)
    )
    found = Dictionary(config).requires_grad_(False)
    found.encoders[0].copy_(torch.cat(reads))
    found.decoders[0].copy_(torch.cat(writes))
    found.bias.copy_(torch.cat(biases))
    return found


def _partners(first: Tensor, second: Tensor) -> int:
    """How many unit directions of the one half the other has, one to one. The whole is not held
    against its halves, which it contains.
    """
    cosines = (first @ second.T).abs().numpy()
    row, column = linear_sum_assignment(-cosines)
    return int((cosines[row, column] >= SAME).sum())


def _is_first_half(task: str) -> bool:
    return int(content_hash([0, "halves", task], 15), 16) % 2 == 0


def _halves(learnt: StoredStream) -> tuple[StoredStream, StoredStream]:
    """By task."""
    first = [text for text in learnt.tokenized if _is_first_half(text.note.task)]
    second = [text for text in learnt.tokenized if not _is_first_half(text.note.task)]
    return learnt.part(first), learnt.part(second)
