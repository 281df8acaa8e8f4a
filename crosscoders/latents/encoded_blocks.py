"""One pass of a dictionary over a stream, shared by everything that is counted
about its latents.

1. Blocks come from the stream, in order, and are cut so that rows times latents
   stay bounded.
2. Each cut is encoded once; the reconstructions and errors of all models are
   made from the same codes.
3. Every *accumulator* adds what it wants of it. Nothing but their sums is kept,
   so a stream of any length takes the same memory.

A dictionary with one model (an SAE) can read a stream of several: the last
model's activations feed its codes. Its one decoder then speaks for all models,
and each model is reconstructed from its own codes (`codes_by_model`).

How well a dictionary's reconstruction stands for the activations: variance
explained, and cross-entropy and KL recovered when a model runs through it.

`quality`, one pass over a stream:

1. Fraction of variance explained per model: `1 - sum |h - h_hat|^2 / sum |h -
   mean h|^2`, against the mean over the stream, not against zero (a dictionary
   that always says the mean has 0, a perfect one 1); so for the models' difference, last less
   first.
2. L0: active latents a row. Dead share: latents that were silent in all rows of
   the stream; the window is stated, since a longer one finds fewer.

`spliced`, text by text:

1. The dictionary encodes the models' activations together, from the store.
2. Each model then runs three rows of that text at once: *clean*, as it is;
   *spliced*, the activation at the chosen positions replaced by the model's own
   reconstruction; *floor*, replaced by what says nothing: the mean over the
   chosen positions of all texts.
3. At the same positions: cross-entropy of the text's next token, and `KL(clean
   || changed)` over the vocabulary, nats.
4. Recovered: `(floor - spliced) / (floor - clean)`, with 0 for the clean KL. 1:
   the reconstruction serves as well as the activation; 0: no better than the
   floor; below 0: worse. `None` where the floor does no harm that could be
   recovered. Intervals over tasks (`forensics.statistics.ratio`).

The floor is no zero: that lies far from anything the model ever saw, so nearly everything
"recovers" against it. Logits
are held for some hundred positions of one text at a time.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.harvest import StoredStream
from crosscoders.activations.streams import Rows, Stream, TextNote, TokenizedText, difference_view
from crosscoders.dictionaries.dictionary import Codes, Dictionary
from forensics.errors import UserError
from forensics.policies import attach, kl_divergence
from forensics.progress import Progress, silent
from forensics.protocols import Policy, SamplingSettings
from forensics.statistics import mean, ratio

CELLS_AT_ONCE = 2**25  # rows times latents of dense pre-activations: 128 MiB in float32
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class EncodedBlock:
    """Some rows of a stream as a dictionary reads them, in the dictionary's
    units.

    `codes_by_model`: each model's codes where one dictionary reads the models
    one by one, else the same codes for all.
    """

    dictionary: Dictionary
    texts: Sequence[TextNote]
    rows: Rows
    scaled: Float[Tensor, "rows models width"]
    codes_by_model: tuple[Codes, ...]

    @property
    def codes(self) -> Codes:
        """Active latents, sorted by row."""
        return self.codes_by_model[-1]

    @cached_property
    @torch.no_grad()
    def reconstructions(self) -> Float[Tensor, "rows models width"]:
        """Centres included."""
        joint = len(self.dictionary.ranges) > 1
        return torch.stack(
            [
                self.dictionary.decode(codes, m if joint else 0)
                for m, codes in enumerate(self.codes_by_model)
            ],
            dim=1,
        )


class Accumulator(Protocol):
    """What adds up numbers over passages that come in the stream's order."""

    def add(self, encoded: EncodedBlock) -> None: ...


@torch.no_grad()
def accumulate(dictionary: Dictionary, stream: Stream, accumulators: Sequence[Accumulator]) -> None:
    """One pass in the stream's order; every accumulator sees every row once.

    Raises `UserError` where they do not fit each other, and where an activation
    is not a number.
    """
    for encoded in encoded_blocks(dictionary, stream):
        for accumulator in accumulators:
            accumulator.add(encoded)


@torch.no_grad()
def encoded_blocks(dictionary: Dictionary, stream: Stream) -> Iterator[EncodedBlock]:
    """The stream as the dictionary reads it, a bounded number of rows at a time."""
    must_fit(dictionary, stream)
    most = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // dictionary.config.partition.latents))
    some = False
    for block in stream.blocks():
        for first in range(0, len(block.rows), most):
            some = True
            part = block.take(slice(first, first + most))
            scaled = dictionary.scaled(part.activations.to(dictionary.bias.device))
            if not bool(scaled.isfinite().all()):
                bad = int((~scaled.isfinite()).flatten(1).any(1).nonzero()[0, 0])
                raise UserError(
                    f"the activations at {stream.site} hold a value that is not a finite number,"
                    f" in text {stream.texts[int(part.rows.text[bad])].id} at token"
                    f" {int(part.rows.position[bad])}; leave that text out, or run the models in"
                    " float32"
                )
            if dictionary.config.models > 1:
                by_model = (dictionary.encode(scaled),) * scaled.shape[1]
            else:
                models = range(scaled.shape[1])
                by_model = tuple(dictionary.encode(scaled[:, m : m + 1]) for m in models)
            yield EncodedBlock(dictionary, stream.texts, part.rows, scaled, by_model)
    if not some:
        raise UserError(f"the stream at {stream.site} has no rows; give it texts")


def must_fit(dictionary: Dictionary, stream: Stream) -> None:
    """Raise `UserError` where a dictionary cannot read a stream."""
    config = dictionary.config
    if config.width != stream.width:
        raise UserError(
            f"the dictionary is {config.width} wide and the activations at {stream.site} are"
            f" {stream.width}; use the site that it was trained on"
        )
    if config.models not in (1, stream.models):
        raise UserError(
            f"the dictionary speaks of {config.models} models and the stream of {stream.models}; "
            "give as many checkpoints as it was trained on"
        )


FEWEST_TASKS = 8
Sums = dict[str, float]  # of a text's chosen positions, by figure
CLEAN, SPLICED, FLOOR = range(3)  # the rows of a batch


@dataclass(frozen=True, kw_only=True)
class Quality:
    """`variance_explained`: one a model, `None` where the activations do not
    vary; `difference_explained`: of the models' difference, `None` where they do not differ. `l0`:
    a row, and by model the ones that it can see. `dead_share` over `rows` rows.
    """

    rows: int
    variance_explained: tuple[float | None, ...]
    difference_explained: float | None
    l0: float
    l0_by_model: tuple[float, ...]
    dead_share: float


def quality(dictionary: Dictionary, stream: Stream) -> Quality:
    """See the module's text."""
    sums = QualityAccumulator(dictionary, stream)
    accumulate(dictionary, stream, [sums])
    return sums.result()


class _Explained:
    """Sums of `[rows, models, width]` and of what of it is left over, about the first rows' mean,
    so that a large mean does not eat the variance's digits.
    """

    def __init__(self) -> None:
        self.rows, self.origin = 0, torch.zeros(())
        self.total = self.squares = self.errors = torch.zeros(())

    def add(self, there: Tensor, given: Tensor) -> None:
        if not self.rows:
            self.origin = there.mean(0)
        centred, errors = there - self.origin, there - given
        self.rows += len(there)
        self.total = self.total + centred.sum(0, dtype=torch.float64)
        self.squares = self.squares + centred.square().sum((0, 2), dtype=torch.float64)
        self.errors = self.errors + errors.square().sum((0, 2), dtype=torch.float64)

    def shares(self) -> tuple[float | None, ...]:
        """By model; `None` where it does not vary."""
        variance = self.squares - self.total.square().sum(1) / self.rows
        pairs = zip(self.errors.tolist(), variance.tolist(), strict=True)
        return tuple(1 - error / total if total > 0 else None for error, total in pairs)


class QualityAccumulator:
    """Accumulator of quality."""

    def __init__(self, dictionary: Dictionary, stream: Stream) -> None:
        device, models = dictionary.bias.device, stream.models
        self.pairs = 0
        self.ranges = (
            dictionary.ranges if len(dictionary.ranges) == models else dictionary.ranges * models
        )
        self.models, self.difference = _Explained(), _Explained()
        self.active = torch.zeros(models, dtype=torch.int64, device=device)
        self.alive = torch.zeros(len(dictionary.bias), dtype=torch.bool, device=device)

    def add(self, encoded: EncodedBlock) -> None:
        there, given = encoded.scaled, encoded.reconstructions
        self.models.add(there, given)
        self.difference.add(difference_view(there), difference_view(given))
        self.alive[encoded.codes.latent] = True
        self.pairs += len(encoded.codes.latent)
        for m, (seen, codes) in enumerate(zip(self.ranges, encoded.codes_by_model, strict=True)):
            self.active[m] += ((codes.latent >= seen.start) & (codes.latent < seen.stop)).sum()

    def result(self) -> Quality:
        """The figures over all rows so far."""
        rows = self.models.rows
        return Quality(
            rows=rows,
            variance_explained=self.models.shares(),
            difference_explained=self.difference.shares()[0],
            l0=self.pairs / rows,
            l0_by_model=tuple((self.active / rows).tolist()),
            dead_share=1 - float(self.alive.float().mean()),
        )


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """A share with its interval; no ends with fewer than eight tasks."""

    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Spliced:
    """One model run through its reconstruction; nats a token, over `tokens`
    predictions in texts of `tasks` tasks.
    """

    model: int
    tokens: int
    tasks: int
    cross_entropy: float
    cross_entropy_spliced: float
    cross_entropy_floor: float
    kl_spliced: float
    kl_floor: float
    cross_entropy_recovered: Recovered | None
    kl_recovered: Recovered | None


def spliced(
    dictionary: Dictionary,
    policies: Sequence[Policy],
    stream: StoredStream,
    progress: Progress = silent,
) -> tuple[Spliced, ...]:
    """One result a model, in the order of `policies` (before first).

    Every row of the stream whose token has a next one is spliced and measured; what the
    stream leaves out (outliers) stays as it is. Raises `UserError` where there is none.
    """
    chosen = [text for text in stream.tokenized if _mask(stream, text).any()]
    if not chosen:
        raise UserError("no text has a row with a token behind it; give longer texts")
    floors, number = np.zeros((len(policies), stream.width)), 0
    for text in chosen:
        mask = _mask(stream, text)
        for block in stream.part([text]).blocks():
            rows = block.activations.float().numpy()[mask[block.rows.position]]
            floors += rows.sum(0, dtype=np.float64)
            number += len(rows)
    sums: list[dict[str, list[Sums]]] = [defaultdict(list) for _ in policies]  # by model and task
    for done, text in enumerate(chosen):
        progress("running both models through the dictionary", done, len(chosen))
        mask, ids = _mask(stream, text), text.token_ids.tolist()
        written = torch.zeros(len(ids), len(policies), stream.width)
        for encoded in encoded_blocks(dictionary, stream.part([text])):
            given = encoded.reconstructions.detach() / dictionary.scale
            written[torch.from_numpy(encoded.rows.position).long()] = given.cpu()
        for m, policy in enumerate(policies):
            nothing = torch.from_numpy(floors[m] / number).expand(len(ids), -1)
            found = text_sums(policy, ids, mask, (written[:, m], nothing), stream.site)
            sums[m][text.note.task].append(found)
    progress("running both models through the dictionary", len(chosen), len(chosen))
    return tuple(
        _result(m, [by_task[name] for name in sorted(by_task)]) for m, by_task in enumerate(sums)
    )


def _mask(stream: StoredStream, text: TokenizedText) -> np.ndarray:
    """Which tokens of a text are rows `[length]`; the last one predicts nothing."""
    mask = np.zeros(len(text), dtype=bool)
    mask[stream.positions(text)] = True
    mask[-1:] = False
    return mask


@torch.inference_mode()
def text_sums(
    policy: Policy,
    ids: Sequence[int],
    mask: np.ndarray,
    vectors: tuple[Tensor, Tensor],
    site: str,
) -> Sums:
    """Sums over a text's chosen positions. `vectors`: what stands there in the
    spliced row and in the floor's, `[length, width]` each.
    """
    device = policy.model.device
    chosen, targets = torch.from_numpy(mask).to(device), torch.tensor(list(ids), device=device)
    replacements = torch.stack([one.float() for one in vectors]).to(device)
    read = 0  # positions come in order, a window at a time

    def splice(activation: Tensor) -> Tensor:
        nonlocal read
        here = slice(read, read + activation.shape[1])
        read = here.stop
        changed = activation.clone()
        changed[SPLICED:] = torch.where(
            chosen[here, None], replacements[:, here].to(activation), activation[SPLICED:]
        )
        return changed

    sums = {"tokens": float(mask.sum())}
    sums |= dict.fromkeys(("clean", "spliced", "floor", "kl_spliced", "kl_floor"), 0.0)
    windows = policy.distributions([ids] * 3, SamplingSettings())
    handle = attach(policy.model, site, splice)
    try:
        for start, end, logs in windows:
            here = chosen[start:end]
            rows, wanted = logs[:, here], targets[start + 1 : end + 1][here][:, None]
            for row, name in enumerate(("clean", "spliced", "floor")):
                sums[name] -= float(rows[row].gather(-1, wanted).double().sum())
            for row, name in ((SPLICED, "kl_spliced"), (FLOOR, "kl_floor")):
                sums[name] += float(kl_divergence(rows[CLEAN], rows[row]).sum())
    finally:
        handle.remove()
    return sums


def _result(model: int, by_task: Sequence[Sequence[Sums]]) -> Spliced:
    sums = {
        name: np.array([sum(text[name] for text in texts) for texts in by_task])
        for name in by_task[0][0]
    }
    number = len(by_task)

    def recovered(gained: np.ndarray, harm: np.ndarray) -> Recovered | None:
        """A ratio of sums over tasks `[tasks]`, `None` without harm; no ends
        where the harm is not sure to be there.
        """
        if harm.sum() <= 0:
            return None
        estimate = float(gained.sum() / harm.sum())
        if number < FEWEST_TASKS or mean(harm, reach=0.0).low <= 0:
            return Recovered(estimate=estimate, low=None, high=None)
        found = ratio(gained, harm, reach=0.0)
        return Recovered(estimate=estimate, low=found.low, high=found.high)

    means = {name: values.sum() / sums["tokens"].sum() for name, values in sums.items()}
    return Spliced(
        model=model,
        tokens=int(sums["tokens"].sum()),
        tasks=number,
        cross_entropy=means["clean"],
        cross_entropy_spliced=means["spliced"],
        cross_entropy_floor=means["floor"],
        kl_spliced=means["kl_spliced"],
        kl_floor=means["kl_floor"],
        cross_entropy_recovered=recovered(
            sums["floor"] - sums["spliced"], sums["floor"] - sums["clean"]
        ),
        kl_recovered=recovered(sums["kl_floor"] - sums["kl_spliced"], sums["kl_floor"]),
    )
