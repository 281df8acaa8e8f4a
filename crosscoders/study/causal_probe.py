"""What is read of the after model on stored texts of other tasks, one a task, with something
taken out of its activations at one site.

1. Where a behaviour is known: its chance at a decision of a text of the after model, the first
   unless others are named.
2. Else, where every run is one answer (`are_answers`): the exact chance of the whole answer that
   the after model gave in a run that it won, teacher-forced over the answer's tokens. Nothing is
   chosen by how far a chance rose: answers that training did not make likelier add nothing to the
   rise that a move is told as a share of. Where answers are so long that their chance is not worth
   a word, their loss in nats a token.
3. Else the loss of the whole text, in nats a token.

What a latent writes in an activation follows from the stored rows of both models, so it is
taken away while the after model reads; the layers up to the site give what they gave. Rows that the
stream leaves out (attention sinks) stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.texts import TokenizedText
from crosscoders.latents.row_groups import ACTING, WIN
from crosscoders.patching.decisions import Behaviour, Tokens
from crosscoders.patching.hybrids import outputs_kept, replayed
from crosscoders.patching.layer_steps import untouched
from crosscoders.patching.results import Change as Patch
from crosscoders.steering.activation_edits import Change
from forensics.errors import UserError
from forensics.policies import attach, decoder_layers, kl_divergence, last_logprobs
from forensics.protocols import Policy
from forensics.records import content_hash

TEXTS, FEW_TEXTS = 96, 24  # one a task; of a deep network few
LENGTH, ANSWER = 64, 256  # tokens of a text whose loss is read; of an answer, from its start
VALUES_AT_ONCE: Final = 2**26  # log-probabilities of a batch
LOSS, ANSWERS = "loss", "the won answers"
WORTH: Final = (0.01, 0.001)  # of a chance; of a loss, nats a token
LEAST: Final = 1e-9  # of a chance, and of what it lacks of 1
Told = Literal["decision", "answer", "text"]


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Texts of one length: `tokens [texts, length]`, activations before and after
    `pairs [texts, length, models, width]` where they are `known [texts, length]`, and whose
    chance is `asked [texts, length]`.
    """

    members: list[int]
    tokens: Int[Tensor, "texts length"]
    pairs: Float[Tensor, "texts length models width"]
    known: Bool[Tensor, "texts length"]
    asked: Bool[Tensor, "texts length"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Reads a model with a change at the stream's site. `is_chance`: a chance is read, else a
    loss.
    """

    policy: Policy
    site: str
    behaviour: Behaviour | None
    tasks: tuple[str, ...]
    batches: tuple[_Batch, ...]
    measure: str
    is_chance: bool
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
        places: Mapping[int, int] | None = None,
    ) -> "Probe":
        """One text a task of the stream, of the after model where it wrote any. `places`: of the
        texts (by number) that may be read, the deciding token that is; else of all the first.
        Raises `UserError` where fewer than two tasks have one.
        """
        told: Told = "decision" if behaviour else "answer" if are_answers(stream) else "text"
        chosen = _chosen(stream, told, most, seed, places)
        if told == "answer" and len(chosen) < 2:
            told, chosen = "text", _chosen(stream, "text", most, seed)
        if len(chosen) < 2:
            raise UserError(
                "what a latent causes needs texts of at least two tasks; give more runs or texts"
            )
        vocabulary = policy.model.get_input_embeddings().num_embeddings
        at = {id(stream.tokenized[text]): place for text, place in (places or {}).items()}
        asked = [_asked(text, told, at.get(id(text))) for text in chosen]
        probe = cls(
            policy=policy,
            site=stream.site,
            behaviour=behaviour,
            tasks=tuple(text.note.task for text in chosen),
            batches=tuple(_batches(stream.part(chosen), asked, vocabulary)),
            measure=_measure(behaviour, places),
            is_chance=told != "text",
        )
        return probe._of_answers() if told == "answer" else probe

    def _of_answers(self) -> "Probe":
        """An answer of less chance than is worth a word cannot lose it: then the loss."""
        one = replace(self, measure=f"chance of {ANSWERS}")
        if one.values().mean() >= WORTH[0]:
            return one
        return replace(one, measure=f"loss of {ANSWERS}", is_chance=False)

    @property
    def of_answers(self) -> bool:
        """Whether whole answers are read."""
        return self.measure.endswith(ANSWERS)

    def nats(self, values: np.ndarray) -> np.ndarray:
        """Log-odds of chances; a loss as it is."""
        if not self.is_chance:
            return values
        chance = values.clip(LEAST, 1 - LEAST)
        odds: np.ndarray = np.log(chance / (1 - chance))
        return odds

    def rise(self, before: Policy) -> Float[np.ndarray, " tasks"]:
        """What is read, less what another model has of it."""
        more: np.ndarray = self.values() - replace(self, policy=before, kept={}).values()
        return more

    @torch.inference_mode()
    def values(self, change: Change | None = None) -> Float[np.ndarray, " tasks"]:
        """The chance, or the loss, by task."""
        found = np.zeros(len(self.tasks))
        for number, batch in enumerate(self.batches):
            moved = None if change is None else _moved(batch, change)
            if self.behaviour is None:
                found[batch.members] = self._of_tokens(number, moved)
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

    def _of_tokens(self, number: int, moved: Tensor | None) -> np.ndarray:
        """The chance of all that is asked of each text, or its loss a token."""
        batch = self.batches[number]
        first = int(batch.asked.any(0).byte().argmax())
        logs = self._read(number, moved, (), batch.tokens.shape[1] - first + 1)[:, :-1]
        told = logs.gather(-1, batch.tokens[:, first:, None].to(logs.device))[..., 0]
        asked = batch.asked[:, first:].to(logs.device)
        total, many = (told.double() * asked).sum(1), asked.sum(1)
        found: np.ndarray = (total.exp() if self.is_chance else -total / many).cpu().numpy()
        return found

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


def are_answers(stream: StoredStream) -> bool:
    """Whether every text is a run of one action, and some are won."""
    notes = stream.texts
    return all(sum(step.role == ACTING for step in note.steps) == 1 for note in notes) and any(
        note.outcome is not None and note.outcome >= WIN for note in notes
    )


def _measure(behaviour: Behaviour | None, places: Mapping[int, int] | None) -> str:
    if behaviour is None:
        return LOSS
    return f"chance of {behaviour.name}" + (" where it acts" if places is not None else "")


def _chosen(
    stream: StoredStream,
    told: Told,
    most: int,
    seed: int,
    places: Mapping[int, int] | None = None,
) -> tuple[TokenizedText, ...]:
    by_task: dict[str, TokenizedText] = {}
    after = any(text.note.source == "after" for text in stream.tokenized)
    for number, text in enumerate(stream.tokenized):
        if (after and text.note.source != "after") or (places is not None and number not in places):
            continue
        if told == "answer" and (text.note.outcome is None or text.note.outcome < WIN):
            continue
        if len(text) > 1 and (told == "text" or text.deciding.any()):
            by_task.setdefault(text.note.task, text)
    tasks = sorted(by_task, key=lambda task: content_hash([seed, "causes", task]))
    return tuple(by_task[task] for task in tasks[:most])


def _asked(text: TokenizedText, told: Told, place: int | None = None) -> np.ndarray:
    """Of which tokens the chance is asked, up to the last one that is read."""
    if told == "decision":
        return np.zeros(1 + int(text.deciding.argmax() if place is None else place), dtype=bool)
    if told == "text":
        return np.arange(min(len(text), LENGTH)) > 0
    drawn = np.flatnonzero(text.sampled)[:ANSWER]
    return np.isin(np.arange(drawn[-1] + 1), drawn)


def _batches(
    stream: StoredStream, asked: Sequence[np.ndarray], vocabulary: int
) -> Iterator[_Batch]:
    """Texts of one length together, as many as fit."""
    shape, ends = (stream.models, stream.width), [len(one) for one in asked]
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
        read = 1 + max(
            int(length - one.argmax()) if (one := asked[i]).any() else 0 for i in members
        )
        rows = max(1, VALUES_AT_ONCE // (vocabulary * read))
        for first in range(0, len(members), rows):
            part = members[first : first + rows]
            texts = [stream.tokenized[i].token_ids[:length] for i in part]
            yield _Batch(
                members=part,
                tokens=torch.from_numpy(np.stack(texts)).long(),
                pairs=torch.stack([pairs[i] for i in part]),
                known=torch.stack([known[i] for i in part]),
                asked=torch.from_numpy(np.stack([asked[i] for i in part])),
            )


def _moved(batch: _Batch, change: Change) -> Float[Tensor, "texts length width"]:
    """What the change adds to the after model's activations."""
    rows = batch.pairs[batch.known].to(change.directions.device)
    added = change.coefficients(rows[:, -1], rows[:, 0]) @ change.directions
    moved = torch.zeros((*batch.known.shape, added.shape[-1]), device=added.device)
    moved[batch.known.to(added.device)] = added
    return moved
