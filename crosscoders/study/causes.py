"""Does a direction cause anything? What the after model does on other tasks with it taken
out, beside random directions of equal activation size.

1. What is read: the chance of an action at a decision, in a world of one turn that of a
   whole won answer, else a loss (`causal_probe`).
2. Told is what taking all of it away moves, of answers also as a share of what training changed
   there. Tested is a dose, a quarter of it: a large move
   in whatever direction breaks what the model does, so that the whole tells little of which
   direction it was. A chance counts as its log-odds there, since near 0 or 1 all moves are small.
3. Beside the dose 20 times the same with the direction turned at random: every row is moved
   exactly as far (`Change.turned`). They stop at the first that does as much: then it fails.
4. It causes something if its mean effect over tasks, whichever way, is larger than those of all
   random directions (p = 1 / 21; of a test that stopped at the n-th it is 1 / n, Besag and
   Clifford 1991), and larger than the largest by more than the tasks' spread explains
   (interval over tasks above 0); and if all of it moves enough to be worth a word (`WORTH`),
   since of moves of a thousandth of a point one is always the largest.
5. What many latents do bit by bit none shows alone: sets of them are tested as one (`latent_sets`).

Seed-stable features of an RL-trained model can fail this test (OpenReview YS8snLhZoC). It is one
test a latent: of latents that do nothing 1 in 21 passes its first half.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float

from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.steering.activation_edits import Change, feature_change
from crosscoders.study.causal_probe import WORTH, Probe
from forensics.progress import Progress, silent
from forensics.statistics import Estimate, mean, ratio

RANDOM: Final = 20  # directions beside each
DOSE: Final = 0.25  # of an ablation, which is tested


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What taking a direction out moves, on `tasks` tasks. `effect`: of all of it, on the chance
    or the loss, which is `unchanged` without. `dose`: of the dose that is tested, in nats;
    `random`: those of the random directions that were tried; `beyond`: how much further than the
    furthest of them. `p_value`: see the module. `undone`: the share of what training changed that
    goes with it, `None` where that was not asked, or nothing surely changed for the better.
    `turned`: what all of it moves turned at random, `None` where a smaller dose was tested.
    """

    measure: str
    tasks: int
    unchanged: float
    effect: Estimate
    dose: float
    random: tuple[float, ...]
    beyond: Estimate
    p_value: float
    holds: bool
    undone: Estimate | None = None
    turned: tuple[float, ...] | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON; what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def caused(
    probe: Probe,
    change: Change,
    *,
    seed: int = 0,
    unchanged: Float[np.ndarray, " tasks"] | None = None,
    rise: Float[np.ndarray, " tasks"] | None = None,
    dose: float = DOSE,
) -> Cause:
    """The test of one change, an ablation (strength 1). `unchanged`: `probe.values()`, where it
    is known. `rise`: these less the before model's, to tell shares of. `dose` that is tested.
    """
    clean = probe.values() if unchanged is None else unchanged
    part = replace(change, strength=dose * change.strength)

    def nats(values: np.ndarray) -> np.ndarray:
        moved: np.ndarray = probe.nats(values) - probe.nats(clean)
        return moved

    own, generator = nats(probe.values(part)), torch.Generator().manual_seed(seed)
    tried: list[np.ndarray] = []
    turned: list[float] = []
    while len(tried) < RANDOM and all(_size(one) < _size(own) for one in tried):
        values = probe.values(part.turned(generator))
        tried.append(nats(values))
        turned.append(float((values - clean).mean()))
    furthest = max(tried, key=_size, default=np.zeros_like(own))
    largest = _size(furthest) < _size(own)
    beyond = mean(np.sign(own.mean()) * own - np.sign(furthest.mean()) * furthest)
    whole = probe.values(change) - clean
    effect = mean(whole)
    worth = abs(effect.estimate) >= WORTH[not probe.is_chance]
    return Cause(
        measure=probe.measure,
        tasks=len(clean),
        unchanged=float(clean.mean()),
        effect=effect,
        dose=float(own.mean()),
        random=tuple(float(one.mean()) for one in tried),
        beyond=beyond,
        p_value=1 / (len(tried) + largest),
        holds=largest and beyond.low > 0 and worth,
        undone=None if rise is None else _undone(probe, whole, rise),
        turned=tuple(turned) if dose == 1 else None,
    )


def _undone(probe: Probe, moved: np.ndarray, rise: np.ndarray) -> Estimate | None:
    better = mean(rise if probe.is_chance else -rise).low > 0
    return ratio(-moved, rise) if better else None


def _size(effects: np.ndarray) -> float:
    return abs(float(effects.mean()))


def causes(
    probe: Probe,
    dictionary: Dictionary,
    latents: Sequence[int],
    *,
    seed: int = 0,
    rise: Float[np.ndarray, " tasks"] | None = None,
    progress: Progress = silent,
) -> dict[int, Cause]:
    """The test of each of these latents, ablated. `rise`: see `caused`."""
    clean, found = probe.values(), {}
    for number, latent in enumerate(latents):
        progress("what the latents cause", number, len(latents))
        change = ablated(dictionary, [latent])
        found[latent] = caused(probe, change, seed=seed, unchanged=clean, rise=rise)
    progress("what the latents cause", len(latents), len(latents))
    return found


def ablated(dictionary: Dictionary, latents: Sequence[int]) -> Change:
    """These latents taken out of the after model."""
    return feature_change(dictionary, latents, mode="ablate", acting="after", strength=1.0)
