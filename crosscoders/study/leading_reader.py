"""What the readers of the difference cause, and which one opens the page of a diff.

1. Each reader's account (`reader_accounts`) is taken out of the after model and tested as a single
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
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch

from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.streams import Stream
from crosscoders.activations.texts import TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import CONFIG, save_dictionary
from crosscoders.latents.row_groups import Contrast
from crosscoders.latents.table import LatentTable
from crosscoders.steering.activation_edits import Change, subspace_change
from crosscoders.study.causal_probe import FEW_TEXTS, TEXTS, WORTH, Probe
from crosscoders.study.cause_words import lacks, shown
from crosscoders.study.causes import DOSE, Cause, caused
from crosscoders.study.diff_files import READERS_FILE
from crosscoders.study.material import Inquiry
from crosscoders.study.reader_accounts import Reader, readers_of
from crosscoders.study.study_dictionaries import PAIR
from forensics.errors import UserError
from forensics.phrases import capital, percent, plural, share_of_change
from forensics.progress import Progress
from forensics.records import write_json
from forensics.report import plain
from forensics.statistics import Estimate, mean

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
    """Of each change at the dose that counts, and of all of it."""
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
        taken = [gap, *(_taken(one, after, before) for one in changes)]
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


def _taken(change: Change, after: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    place = change.directions.device
    coefficients = change.coefficients(after.to(place), before.to(place))
    return -(coefficients @ change.directions).to(after)


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
    """What the test found, at its dose and whole."""

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
    """The crosscoder against the leader."""
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
