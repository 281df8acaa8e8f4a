"""Does a direction cause anything? What the after model does on other tasks with it taken
out, beside random directions of equal activation size.

1. Texts of the after model, one a task (`Probe.of`). Read is the chance of the behaviour at
   the first decision where one is known, else the loss of the whole text, in nats a token.
2. What a latent writes in an activation follows from the stored rows of both models, so it is
   taken away while the after model reads; the layers up to the site give what they gave.
   Rows that the stream leaves out (attention sinks) stay as they are.
3. Told is what taking all of it away moves. Tested is a dose, a quarter of it: a large move
   in whatever direction breaks what the model does, so that the whole tells little of which
   direction it was. A chance counts as its log-odds there, since near 0 or 1 all moves are small.
4. Beside the dose 20 times the same with the direction turned at random: every row is moved
   exactly as far (`Change.turned`). They stop at the first that does as much: then it fails.
5. It causes something if its mean effect over tasks, whichever way, is larger than those of all
   random directions (p = 1 / 21; of a test that stopped at the n-th it is 1 / n, Besag and
   Clifford 1991), and larger than the largest by more than the tasks' spread explains
   (interval over tasks above 0); and if all of it moves enough to be worth a word (`WORTH`),
   since of moves of a thousandth of a point one is always the largest.

Seed-stable features of an RL-trained model can fail this test (OpenReview YS8snLhZoC). It is one
test a latent: of latents that do nothing 1 in 21 passes its first half.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.texts import TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.patching.decisions import Behaviour, Tokens
from crosscoders.patching.hybrids import outputs_kept, replayed
from crosscoders.patching.layer_steps import untouched
from crosscoders.patching.results import Change as Patch
from crosscoders.steering.activation_edits import Change, feature_change
from forensics.errors import UserError
from forensics.policies import attach, decoder_layers, kl_divergence, last_logprobs
from forensics.progress import Progress, silent
from forensics.protocols import Policy
from forensics.records import content_hash
from forensics.statistics import Estimate, mean

RANDOM: Final = 20  # directions beside each
TEXTS, FEW_TEXTS = 96, 24  # one a task; of a deep network few
LENGTH: Final = 64  # tokens of a text whose loss is read
VALUES_AT_ONCE: Final = 2**26  # log-probabilities of a batch
LOSS: Final = "loss"
DOSE: Final = 0.25  # of an ablation, which is tested
WORTH: Final = (0.01, 0.001)  # of a chance; of a loss, nats a token
LEAST: Final = 1e-9  # of a chance, and of what it lacks of 1


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What taking a direction out moves, on `tasks` tasks. `effect`: of all of it, on the chance
    or the loss, which is `unchanged` without. `dose`: of the dose that is tested, in nats;
    `random`: those of the random directions that were tried; `beyond`: how much further than the
    furthest of them. `p_value`: see the module.
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


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Texts of one length: `tokens [texts, length]`, activations before and after
    `pairs [texts, length, models, width]` where they are `known [texts, length]`.
    """

    members: list[int]
    tokens: Tensor
    pairs: Tensor
    known: Tensor


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Reads the after model with a change at the stream's site."""

    policy: Policy
    site: str
    behaviour: Behaviour | None
    tasks: tuple[str, ...]
    batches: tuple[_Batch, ...]
    kept: dict[tuple[int, Tokens], list[Any]] = field(default_factory=dict)  # outputs of layers

    @classmethod
    def of(
        cls,
        policy: Policy,
        stream: StoredStream,
        behaviour: Behaviour | None,
        *,
        most: int = TEXTS,
        seed: int = 0,
    ) -> "Probe":
        """One text a task of the stream, of the after model where it wrote any. Raises
        `UserError` where fewer than two tasks have one.
        """
        chosen = _chosen(stream, behaviour is not None, most, seed)
        if len(chosen) < 2:
            raise UserError(
                "what a latent causes needs texts of at least two tasks; give more runs or texts"
            )
        ends = [
            int(text.deciding.argmax()) + 1 if behaviour else min(len(text), LENGTH)
            for text in chosen
        ]
        vocabulary = policy.model.get_input_embeddings().num_embeddings
        return cls(
            policy=policy,
            site=stream.site,
            behaviour=behaviour,
            tasks=tuple(text.note.task for text in chosen),
            batches=tuple(_batches(stream.part(chosen), ends, behaviour is None, vocabulary)),
        )

    @property
    def measure(self) -> str:
        return f"chance of {self.behaviour.name}" if self.behaviour else LOSS

    def nats(self, values: np.ndarray) -> np.ndarray:
        """Log-odds of chances; a loss as it is."""
        if self.behaviour is None:
            return values
        chance = values.clip(LEAST, 1 - LEAST)
        odds: np.ndarray = np.log(chance / (1 - chance))
        return odds

    @torch.inference_mode()
    def values(self, change: Change | None = None) -> Float[np.ndarray, " tasks"]:
        """The chance of the behaviour, or the loss, by task."""
        found = np.zeros(len(self.tasks))
        for number, batch in enumerate(self.batches):
            moved = None if change is None else _moved(batch, change)
            if self.behaviour is None:
                found[batch.members] = self._loss(number, moved)
            else:
                for prefix, last in self.behaviour.by_prefix.items():
                    found[batch.members] += self._chance(number, moved, prefix, last)
        return found

    @torch.inference_mode()
    def divergences(self, change: Change) -> list[np.ndarray]:
        """KL from what the model says next to what it says changed, at every token of each text
        that is read, by task, nats.
        """
        found: list[np.ndarray] = [np.zeros(0)] * len(self.tasks)
        for number, batch in enumerate(self.batches):
            length, moved = batch.tokens.shape[1], _moved(batch, change)
            clean, other = (self._read(number, one, (), length) for one in (None, moved))
            for member, told in zip(batch.members, kl_divergence(clean, other), strict=True):
                found[member] = told.double().cpu().numpy()
        return found

    def _loss(self, number: int, moved: Tensor | None) -> np.ndarray:
        tokens = self.batches[number].tokens
        logs = self._read(number, moved, (), tokens.shape[1])[:, :-1]
        told = logs.gather(-1, tokens[:, 1:, None].to(logs.device))[..., 0]
        loss: np.ndarray = -told.double().mean(1).cpu().numpy()
        return loss

    def _chance(
        self, number: int, moved: Tensor | None, prefix: Tokens, last: Tokens
    ) -> np.ndarray:
        logs = self._read(number, moved, prefix, 1 + len(prefix)).double()
        total = logs[:, -1, list(last)].exp().sum(-1)
        for at, token in enumerate(prefix):
            total = total * logs[:, at, token].exp()
        chance: np.ndarray = total.cpu().numpy()
        return chance

    def _read(self, number: int, moved: Tensor | None, prefix: Tokens, keep: int) -> Tensor:
        """Log-probabilities `[texts, keep, vocabulary]` of a batch's texts and the prefix, with
        `moved` added at the texts' positions of the site.
        """
        tokens, model = self.batches[number].tokens, self.policy.model
        more = torch.tensor(prefix, dtype=tokens.dtype).expand(len(tokens), -1)
        tokens, layers = torch.cat([tokens, more], 1), list(decoder_layers(model))
        same = untouched(
            Patch(place=self.site, positions="all", direction="into-after"), len(layers)
        )
        if (number, prefix) not in self.kept:
            with outputs_kept(layers[:same]) as outputs:
                clean = last_logprobs(self.policy, tokens, keep)
            self.kept[number, prefix] = outputs
            if moved is None:
                return clean

        def add(activation: Tensor) -> Tensor:
            changed = activation.clone()
            if moved is not None:
                changed[:, : moved.shape[1]] += moved.to(activation)
            return changed

        with ExitStack() as stack:
            stack.callback(attach(model, self.site, add).remove)
            stack.enter_context(replayed(layers, self.kept[number, prefix], same))
            return last_logprobs(self.policy, tokens, keep)


def caused(
    probe: Probe, change: Change, *, seed: int = 0, unchanged: np.ndarray | None = None
) -> Cause:
    """The test of one change, an ablation (strength 1). `unchanged`: `probe.values()`, where it
    is known.
    """
    clean = probe.values() if unchanged is None else unchanged
    dose = replace(change, strength=DOSE * change.strength)

    def moved(one: Change) -> np.ndarray:
        nats: np.ndarray = probe.nats(probe.values(one)) - probe.nats(clean)
        return nats

    own, generator = moved(dose), torch.Generator().manual_seed(seed)
    tried: list[np.ndarray] = []
    while len(tried) < RANDOM and all(_size(one) < _size(own) for one in tried):
        tried.append(moved(dose.turned(generator)))
    furthest = max(tried, key=_size, default=np.zeros_like(own))
    largest = _size(furthest) < _size(own)
    beyond = mean(np.sign(own.mean()) * own - np.sign(furthest.mean()) * furthest)
    effect = mean(probe.values(change) - clean)
    worth = abs(effect.estimate) >= WORTH[probe.behaviour is None]
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
    )


def _size(effects: np.ndarray) -> float:
    return abs(float(effects.mean()))


def causes(
    probe: Probe,
    dictionary: Dictionary,
    latents: Sequence[int],
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[int, Cause]:
    """The test of each of these latents, ablated."""
    clean, found = probe.values(), {}
    for number, latent in enumerate(latents):
        progress("what the latents cause", number, len(latents))
        change = feature_change(dictionary, [latent], mode="ablate", acting="after", strength=1.0)
        found[latent] = caused(probe, change, seed=seed, unchanged=clean)
    progress("what the latents cause", len(latents), len(latents))
    return found


def _chosen(
    stream: StoredStream, deciding: bool, most: int, seed: int
) -> tuple[TokenizedText, ...]:
    by_task: dict[str, TokenizedText] = {}
    after = any(text.note.source == "after" for text in stream.tokenized)
    for text in stream.tokenized:
        if after and text.note.source != "after":
            continue
        if len(text) > 1 and (not deciding or text.deciding.any()):
            by_task.setdefault(text.note.task, text)
    tasks = sorted(by_task, key=lambda task: content_hash([seed, "causes", task]))
    return tuple(by_task[task] for task in tasks[:most])


def _batches(
    stream: StoredStream, ends: Sequence[int], whole: bool, vocabulary: int
) -> Iterator[_Batch]:
    """Texts of one length together, as many as fit. `whole`: all positions are read."""
    shape = stream.models, stream.width
    pairs = [torch.zeros((end, *shape)) for end in ends]
    known = [torch.zeros(end, dtype=torch.bool) for end in ends]
    for block in stream.blocks():
        places = zip(block.rows.text.tolist(), block.rows.position.tolist(), strict=True)
        for row, (text, position) in enumerate(places):
            if position < ends[text]:
                pairs[text][position] = block.activations[row].float()
                known[text][position] = True
    by_length: dict[int, list[int]] = {}
    for index, end in enumerate(ends):
        by_length.setdefault(end, []).append(index)
    for length, members in sorted(by_length.items()):
        rows = max(1, VALUES_AT_ONCE // (vocabulary * (length if whole else 1)))
        for first in range(0, len(members), rows):
            part = members[first : first + rows]
            texts = [stream.tokenized[i].token_ids[:length] for i in part]
            yield _Batch(
                members=part,
                tokens=torch.from_numpy(np.stack(texts)).long(),
                pairs=torch.stack([pairs[i] for i in part]),
                known=torch.stack([known[i] for i in part]),
            )


def _moved(batch: _Batch, change: Change) -> Float[Tensor, "texts length width"]:
    """What the change adds to the after model's activations."""
    rows = batch.pairs[batch.known].to(change.directions.device)
    added = change.coefficients(rows[:, -1], rows[:, 0]) @ change.directions
    moved = torch.zeros((*batch.known.shape, added.shape[-1]), device=added.device)
    moved[batch.known.to(added.device)] = added
    return moved
