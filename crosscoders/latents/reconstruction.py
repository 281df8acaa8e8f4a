"""Cross-entropy and KL recovered when a model runs through a dictionary's
reconstruction.

1. Each text is read by all models up to the site; the dictionary encodes them
   together.
2. In each model in turn the activation at the chosen positions is replaced by
   (a) the model's own reconstruction,
   (b) a floor that says nothing: the mean over the chosen positions of all
       texts, or zero.
3. At the same positions: cross-entropy of the text's next token, and `KL(clean
   || changed)` over the vocabulary, nats.
4. Recovered: `(floor - spliced) / (floor - clean)`, with 0 for the clean KL. 1:
   the reconstruction serves as well as the activation; 0: no better than the
   floor; below 0: worse. `None` where the floor does no harm that could be
   recovered. Intervals by bootstrap over tasks.

The mean is the default floor: zero lies far from anything the model ever saw,
so nearly everything "recovers" against it (the share then says little). Logits
are held for some hundred positions of one text at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crosscoders.activations.streams import Rows, TensorStream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoding import encoded_blocks, must_fit
from forensics.errors import UserError
from forensics.policies.sites import attach
from forensics.protocols import Policy, SamplingSettings

FEWEST_TASKS = 8
LANES = ("clean", "spliced", "floor")


@dataclass(frozen=True, kw_only=True)
class SpliceConfig:
    """`site`: where to splice. `floor`: what stands for knowing nothing.
    `draws`, `level`, `seed`: of the bootstrap.
    """

    site: str
    floor: Literal["mean", "zero"] = "mean"
    draws: int = 1000
    level: float = 0.95
    seed: int = 0


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
    texts: Sequence[Sequence[int]],
    config: SpliceConfig,
    *,
    positions: Sequence[Sequence[int]] | None = None,
    tasks: Sequence[str] | None = None,
) -> tuple[Spliced, ...]:
    """One result a model, in the order of `policies` (before first).

    `texts`: token ids. `positions`: where to splice and measure, by text; every
    position that has a next token unless given. `tasks`: of each text; each
    text is its own unless given. Raises `UserError` where nothing is to be
    measured.
    """
    chosen = _masks(texts, positions)
    names = list(tasks) if tasks is not None else [str(i) for i in range(len(texts))]
    floors = _floors(dictionary, policies, texts, chosen, config)
    sums: dict[str, np.ndarray] = {}
    for ids, mask, name in zip(texts, chosen, names, strict=True):
        if mask.any():
            measured = _measure_text(dictionary, policies, ids, mask, floors, config)
            sums[name] = sums.get(name, np.zeros_like(measured)) + measured
    table = np.stack([sums[name] for name in sorted(sums)])
    return tuple(_result(m, table[:, m], config) for m in range(len(policies)))


def _masks(
    texts: Sequence[Sequence[int]], positions: Sequence[Sequence[int]] | None
) -> list[np.ndarray]:
    """The chosen positions `[length]` of each text; the last one predicts nothing."""
    if positions is not None and len(positions) != len(texts):
        raise UserError(
            f"{len(positions)} lists of positions and {len(texts)} texts; give one list for each"
            " text"
        )
    masks = []
    for i, ids in enumerate(texts):
        mask = np.full(len(ids), positions is None)
        if positions is not None:
            mask[[p for p in positions[i] if 0 <= p < len(ids)]] = True
        mask[-1:] = False
        masks.append(mask)
    if not any(mask.any() for mask in masks):
        raise UserError(
            "no text has a chosen position with a token behind it; give longer texts or other"
            " positions"
        )
    return masks


def _floors(
    dictionary: Dictionary,
    policies: Sequence[Policy],
    texts: Sequence[Sequence[int]],
    masks: Sequence[np.ndarray],
    config: SpliceConfig,
) -> np.ndarray:
    """`[models, width]`, in the models' units."""
    total, count = np.zeros((len(policies), dictionary.config.width)), 0
    if config.floor == "zero":
        return total
    for ids, mask in zip(texts, masks, strict=True):
        if mask.any():
            total += (
                _read(dictionary, policies, ids, config.site)
                .activations.numpy()[mask]
                .sum(0, dtype=np.float64)
            )
            count += int(mask.sum())
    return total / count


def _read(
    dictionary: Dictionary, policies: Sequence[Policy], ids: Sequence[int], site: str
) -> TensorStream:
    """One text's activations, float32, as a stream that the dictionary can read."""
    seen = np.stack([policy.activations([ids], [site])[0][site] for policy in policies], axis=1)
    stream = TensorStream(activations=torch.from_numpy(seen), rows=Rows.blank(len(ids)), site=site)
    must_fit(dictionary, stream)
    return stream


def _measure_text(
    dictionary: Dictionary,
    policies: Sequence[Policy],
    ids: Sequence[int],
    mask: np.ndarray,
    floors: np.ndarray,
    config: SpliceConfig,
) -> np.ndarray:
    """Sums over a text's chosen positions, `[models, (tokens, 3 cross-entropies, 2 KLs)]`."""
    stream = _read(dictionary, policies, ids, config.site)
    said = torch.cat(
        [
            encoded.reconstructions.detach() / dictionary.scale
            for encoded in encoded_blocks(dictionary, stream)
        ]
    )
    return np.stack(
        [
            _measure(policy, ids, mask, said[:, m], torch.from_numpy(floors[m]), config.site)
            for m, policy in enumerate(policies)
        ]
    )


class _Lane:
    """One way to run a text: as it is, or with the chosen positions replaced by
    `vectors`.

    Windows of positions come in order, so it counts where it is.
    """

    def __init__(self, mask: Tensor, vectors: Tensor | None) -> None:
        self.mask, self.vectors, self.at = mask, vectors, 0

    def edit(self, activation: Tensor) -> Tensor | None:
        here = slice(self.at, self.at + activation.shape[1])
        self.at = here.stop
        if self.vectors is None:
            return None
        return torch.where(
            self.mask[here, None], self.vectors[here].to(activation.dtype), activation
        )


@torch.inference_mode()
def _measure(
    policy: Policy,
    ids: Sequence[int],
    mask: np.ndarray,
    said: Tensor,
    floor: Tensor,
    site: str,
) -> np.ndarray:
    device = policy.model.device
    chosen, targets = torch.from_numpy(mask).to(device), torch.tensor(list(ids), device=device)
    lanes = [
        _Lane(chosen, None),
        _Lane(chosen, said.to(device)),
        _Lane(chosen, floor.to(device).expand(len(ids), -1)),
    ]
    found = np.zeros(6)
    for start, end, spread in _side_by_side(policy, ids, lanes, site):
        here = chosen[start:end]
        clean = spread[0][here]
        wanted = targets[start + 1 : end + 1][here][:, None]
        found[0] += int(here.sum())
        for i, row in enumerate(spread):
            found[1 + i] -= float(row[here].gather(-1, wanted).double().sum())
        for i, row in enumerate(spread[1:]):
            found[4 + i] += float((clean.exp() * (clean - row[here])).double().sum())
    return found


def _side_by_side(
    policy: Policy, ids: Sequence[int], lanes: Sequence[_Lane], site: str
) -> Iterator[tuple[int, int, list[Tensor]]]:
    """Log-probabilities `[window, vocabulary]` of all lanes, window by window,
    from one model with one hook.
    """
    running: list[_Lane] = [lanes[0]]
    handle: Any = attach(policy.model, site, lambda activation: running[0].edit(activation))
    try:
        readers = [policy.distributions([ids], SamplingSettings()) for _ in lanes]
        while True:
            window = []
            for lane, reader in zip(lanes, readers, strict=True):
                running[0] = lane
                window.append(next(reader, None))
            if window[0] is None:
                return
            start, end, _ = window[0]
            yield start, end, [part[2][0] for part in window if part is not None]
    finally:
        handle.remove()


def _result(model: int, table: np.ndarray, config: SpliceConfig) -> Spliced:
    """From sums `[tasks, 6]`."""
    generator = np.random.default_rng(config.seed)
    weights = generator.multinomial(
        len(table), np.full(len(table), 1 / len(table)), size=config.draws
    )
    total, drawn = table.sum(0), weights @ table
    mean = total[1:] / total[0]
    return Spliced(
        model=model,
        tokens=int(total[0]),
        tasks=len(table),
        cross_entropy=mean[0],
        cross_entropy_spliced=mean[1],
        cross_entropy_floor=mean[2],
        kl_spliced=mean[3],
        kl_floor=mean[4],
        cross_entropy_recovered=_recovered(
            total[3] - total[2],
            total[3] - total[1],
            drawn[:, 3] - drawn[:, 2],
            drawn[:, 3] - drawn[:, 1],
            len(table),
            config.level,
        ),
        kl_recovered=_recovered(
            total[5] - total[4],
            total[5],
            drawn[:, 5] - drawn[:, 4],
            drawn[:, 5],
            len(table),
            config.level,
        ),
    )


def _recovered(
    gained: float,
    harm: float,
    gained_drawn: np.ndarray,
    harm_drawn: np.ndarray,
    tasks: int,
    level: float,
) -> Recovered | None:
    """A ratio with its interval, `None` without harm; no ends where the harm is
    not sure to be there.
    """
    if harm <= 0:
        return None
    if tasks < FEWEST_TASKS or (harm_drawn <= 0).any():
        return Recovered(estimate=gained / harm, low=None, high=None)
    low, high = np.quantile(gained_drawn / harm_drawn, [(1 - level) / 2, (1 + level) / 2])
    return Recovered(estimate=gained / harm, low=float(low), high=float(high))
