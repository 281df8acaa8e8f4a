"""What the readers of the difference cause, and which one opens the page of a diff.

1. Each reader's account (`readers_of`) is taken out of the after model and tested as a single
   latent is (`causes`): beside 20 rotations of it that move every row exactly as far. At a dose
   of a quarter where a decision is read, where rotations of all of it do as much and more; all of
   it too, alone where whole answers are read, as sets of latents are (`latent_sets`).
2. Told beside it, on texts of other tasks: the share of the variance of the models' difference
   that it holds, how large it is, how many of its directions come back.
3. Its cost elsewhere: the KL from the after model to the changed one on the before model's runs
   without the behaviour, at tokens where no action is decided, nats a token; and that as a share
   of what undoing all that parts the models at the site costs there.
4. The reader that was asked for leads. The crosscoder is set against it: a simpler reader that
   does as well is said to.

The readers of the difference, each as a dictionary and those of its latents that give its
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

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from crosscoders.activations.harvest import StoredStream
from crosscoders.activations.streams import Stream, TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.saved import CONFIG, save_dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.row_groups import Contrast
from crosscoders.latents.table import LatentTable
from crosscoders.steering.activation_edits import Change, Encoding, feature_change, subspace_change
from crosscoders.study.causes import DOSE, FEW_TEXTS, TEXTS, WORTH, Cause, Probe, caused
from crosscoders.study.diff_files import READERS_FILE, lacks, shown
from crosscoders.study.difference_baselines import groups_of, moments_of
from crosscoders.study.material import FOLDERS, PAIR, Inquiry
from forensics.errors import UserError
from forensics.phrases import capital, percent, plural, share_of_change
from forensics.progress import Progress
from forensics.records import content_hash, write_json
from forensics.report import plain
from forensics.statistics import Estimate, mean

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


ALWAYS: Final = ("components", "crosscoder")  # what is read whatever leads
Cost = tuple[Estimate | None, float | None]
ALIKE: Final = "on the texts that they learn from the models do not differ there"
TOO_FEW: Final = (
    "fewer than two of the tasks reported on have a text {}, so this says nothing for or against"
    " a change; more runs or texts would"
)
TIE: Final = 5.0  # times what is worth a word: effects that are told as equal


@dataclass(frozen=True, kw_only=True)
class Read:
    """A reader with what is told of it. `cause`: at the dose that counts; `whole`: of all of it.
    `explained`: of the variance of the difference; `size`: of
    its account, as a share of that of the difference. `cost` elsewhere in nats a token,
    `cost_share` of that of undoing all; `None` where they were not measured.
    """

    reader: Reader
    cause: Cause
    whole: Cause
    explained: float
    size: float
    cost: Estimate | None
    cost_share: float | None

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        reader = self.reader
        about = ("name", "words", "directions", "back", "place", "latents", "encoding")
        return {
            **{name: getattr(reader, name) for name in about},
            "cause": self.cause.plain(),
            "whole": self.whole.plain(),
            "explained": self.explained,
            "size": self.size,
            "cost": self.cost and asdict(self.cost),
            "cost_share": self.cost_share,
        }


def read_difference(
    inquiry: Inquiry, dictionaries: Mapping[str, Dictionary], table: LatentTable, seeds: int
) -> tuple[list[Read], str]:
    """The reader that was asked for first, where it is there; and where nothing can be tested,
    why. `seeds`: how many others stand behind the table.
    """
    names = list(dict.fromkeys([inquiry.request.reader, *ALWAYS]))
    policies, streams, folder = inquiry.policies, inquiry.streams, inquiry.folder
    told = inquiry.contrasts[0] if inquiry.behaviour else None
    readers = readers_of(names, dictionaries[PAIR], streams.chosen, told, table, seeds)
    if not readers:
        return [], ALIKE
    most = TEXTS if streams.small else FEW_TEXTS
    try:
        probe = Probe.of(policies[-1], streams.reported, inquiry.behaviour, most=most)
    except UserError:
        return [], TOO_FEW.format("in which an action is decided" if told else "to read")
    changes = [one.change for one in readers]
    tests = _tests(probe, policies[0], changes, inquiry.progress)
    costs = _costs(policies[-1], streams.reported, told, changes, most)
    found = [
        Read(
            reader=reader,
            cause=cause,
            whole=whole,
            explained=share,
            size=size,
            cost=cost,
            cost_share=part,
        )
        for reader, (cause, whole), (share, size), (cost, part) in zip(
            readers, tests, accounted(streams.reported, changes), costs, strict=True
        )
    ]
    for one in readers:
        if not (folder / one.place / CONFIG).is_file():
            save_dictionary(one.dictionary, folder / one.place, **inquiry.about, reader=one.name)
    write_json(folder / READERS_FILE, [one.plain() for one in found])
    return found, ""


def _tests(
    probe: Probe, before: Any, changes: Sequence[Change], progress: Progress
) -> list[tuple[Cause, Cause]]:
    clean, rise, found = probe.values(), probe.rise(before), []
    what = "what the readers of the difference cause"
    for number, change in enumerate(changes):
        progress(what, number, len(changes))
        whole = caused(probe, change, unchanged=clean, rise=rise, dose=1.0)
        part = whole if probe.of_answers else caused(probe, change, unchanged=clean, rise=rise)
        found.append((part, whole))
    progress(what, len(changes), len(changes))
    return found


@torch.no_grad()
def accounted(stream: Stream, changes: Sequence[Change]) -> list[tuple[float, float]]:
    """Of what each change takes out of the after model: the share of the variance of the models'
    difference that goes with it, and its size as a share of that of the difference.
    """
    sums = torch.zeros((1 + len(changes), 2, stream.width), dtype=torch.float64)
    sizes, number = torch.zeros(1 + len(changes), dtype=torch.float64), 0
    for block in stream.blocks():
        rows = block.activations.float()
        before, after = rows[:, 0], rows[:, -1]
        gap = after - before
        taken = [gap]
        for one in changes:
            own, other = (side.to(one.directions.device) for side in (after, before))
            taken.append(-(one.coefficients(own, other) @ one.directions).to(after))
        left = torch.stack([gap, *(gap - one for one in taken[1:])]).double()
        sums += torch.stack([left.sum(1), left.square().sum(1)], 1)
        sizes += torch.stack([one.norm(dim=1).sum() for one in taken]).double()
        number += len(gap)
    total, squares = sums.unbind(1)
    variance, *rest = (squares - total.square() / max(number, 1)).sum(1).tolist()
    return [
        (1 - one / max(variance, 1e-30), float(size / sizes[0].clamp(min=1e-30)))
        for one, size in zip(rest, sizes[1:], strict=True)
    ]


def _costs(
    policy: Any,
    stream: StoredStream,
    contrast: Contrast | None,
    changes: Sequence[Change],
    most: int,
) -> list[Cost]:
    """What each change costs on the before model's texts without the behaviour; nothing where two
    tasks have none.
    """
    nothing: list[Cost] = [(None, None) for _ in changes]
    if contrast is None:
        return nothing
    texts: dict[str, TokenizedText] = {}
    for number, text in enumerate(stream.tokenized):
        used = contrast.first.mask(text.rows(number), stream.texts).any()
        if text.note.source == "before" and not used:
            texts.setdefault(text.note.task, text)
    try:
        probe = Probe.of(policy, stream.part([*texts.values()]), None, most=most)
    except UserError:
        return nothing
    undecided = [~texts[task].deciding for task in probe.tasks]
    everything = torch.eye(stream.width, device=changes[0].directions.device)
    whole = subspace_change(everything, mode="ablate", acting="after", strength=1.0)
    found = [
        np.array(
            [
                one[: len(mask)][mask[: len(one)]].mean()
                for one, mask in zip(told, undecided, strict=True)
            ]
        )
        for told in map(probe.divergences, [whole, *changes])
    ]
    all_undone = float(found[0].mean())
    return [
        (mean(one, reach=0.0), float(one.mean()) / all_undone if all_undone > 0 else None)
        for one in found[1:]
    ]


def sentences(found: Sequence[Read], site: str, asked: str, untested: str = "") -> list[str]:
    """The reader that leads, and how the crosscoder and a simpler one stand to each other; or why
    that is `untested`.
    """
    if not found:
        return [f"What readers of the difference at {site} cause was not tested: {untested}."]
    missing = f"The reader {asked} that was asked for has nothing to read here."
    said = [_leads(found[0], site), *_beside(found)]
    return said if found[0].reader.name == asked else [missing, *said]


def _leads(one: Read, site: str) -> str:
    cause, reader = one.cause, one.reader
    effect, several = cause.effect, reader.directions > 1
    undone = ""
    if cause.undone:
        undone = f", {share_of_change(*cause.undone.ends)} of what training changed there"
    return (
        f"{capital(reader.words)}, taken out of the after model at {site} while it reads stored"
        f" texts, move{'' if several else 's'} the {cause.measure} by {plain(effect.estimate, 3)}"
        f" [{plain(effect.low, 3)}, {plain(effect.high, 3)}], from {plain(cause.unchanged, 3)}, on"
        f" {plural(cause.tasks, 'task')}{undone}: {_beyond(one)}."
    )


def _beyond(one: Read) -> str:

    def told(cause: Cause) -> str:
        return shown(cause.plain(), "rotation", "size")

    dose, p_value = f"at a dose of {percent(DOSE)}", f"(p = {one.cause.p_value:.3f})"
    if one.whole is one.cause:
        return f"{told(one.cause)} {p_value}"
    if all(lacks(cause.plain()) == "random" for cause in (one.cause, one.whole)):
        less = "shown to be more than rotations of equal size, of which some do as much"
        return f"neither {dose} {p_value} nor as a whole {less}"
    return f"{dose} {told(one.cause)} {p_value}, as a whole {told(one.whole)}"


def account(one: Read) -> str:
    """How much of the difference it holds, whether it comes back, and what it costs elsewhere."""
    return (
        f"What leads ({one.reader.short}) holds {percent(max(one.explained, 0.0))} of the variance"
        f" of the models' difference and is {percent(one.size)} as large as it;"
        f" {_comes_back(one.reader)}; {_cost(one)}."
    )


def _comes_back(reader: Reader) -> str:
    if reader.back is None:
        return "whether its directions come back was not measured"
    many = f"{reader.back} of {plural(reader.directions, 'direction')}"
    come = "comes" if reader.back == 1 else "come"
    if reader.name == "crosscoder":
        return f"{many} {come} back from every other seed"
    return f"{many} learnt on one half of the tasks {come} back from the other half"


def _cost(one: Read) -> str:
    if one.cost is None:
        return "what that costs elsewhere was not measured"
    share = f", {percent(one.cost_share)} of what undoing all costs" if one.cost_share else ""
    return (
        "where no action is decided, on texts without the behaviour, that costs"
        f" {plain(one.cost.estimate)} nats a token{share}"
    )


def _beside(found: Sequence[Read]) -> list[str]:
    simple = found[0]
    dictionary = next((one for one in found[1:] if one.reader.name == "crosscoder"), None)
    if dictionary is None:
        return []
    ours, theirs = simple.cause, dictionary.cause
    tie = TIE * WORTH[theirs.measure.startswith("loss")]
    gap = abs(ours.effect.estimate) - abs(theirs.effect.estimate)
    pair = [simple, dictionary]
    if theirs.holds and not ours.holds:
        pair = pair[::-1]
    one, other = (each.reader for each in pair)
    if ours.holds and theirs.holds:
        verdict = f"does {'more' if gap > 0 else 'less'} than"
        verdict = "does as well as" if abs(gap) <= tie else verdict
        if ours.effect.estimate * theirs.effect.estimate < 0:
            verdict = "moves it the other way than"
    elif ours.holds or theirs.holds:
        verdict = "moves it more than rotations do, which is not shown of"
    else:
        verdict = "is not shown to do more than rotations, nor is that of"
    amounts = " against ".join(plain(each.cause.effect.estimate, 3) for each in pair)
    said = f"Taking out {one.short} {verdict} {other.short} here ({amounts})"
    back = one.back == one.directions
    return [f"{said}, and {_comes_back(one)}." if back else f"{said}; {_comes_back(one)}."]
