"""Does a direction cause anything? What the after model does on other tasks with it taken
out, beside random directions of equal activation size.

1. What is read: the chance of an action at a decision, in a world of one turn that of a
   whole won answer, else a loss.
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

What is read of the after model on stored texts of other tasks, one a task, with something
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

Where, and on which behaviour, a latent is tested: where it acts.

A latent that is silent up to the first decision of a run cannot move it, so that a test there says
nothing of what it causes.

1. *The place* in a run of the after model is the deciding token at which the latent is strongest;
   where it is active at none, the one that follows the row in which it is strongest. A run without
   one is left out, of the others one a task is read.
2. *The behaviour* is one of those whose use training surely changed (`changed_themes`): the one
   whose exact chance at these places differs most surely between the models (log-odds in standard
   errors, of those that differ by a point of chance), on the tasks that the dictionary was trained
   on. That which differs most may vary so much between tasks that no test on it shows anything.
3. The test (`causes.caused`) is on the other tasks. A latent that acts before decisions of fewer
   than `FEWEST` of them is not tested.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from crosscoders.activations.harvest import StoredStream
from crosscoders.activations.streams import TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks
from crosscoders.latents.row_groups import ACTING, WIN
from crosscoders.patching.decisions import Behaviour, Tokens
from crosscoders.patching.hybrids import outputs_kept, replayed
from crosscoders.patching.maps import chance_of
from crosscoders.patching.results import Change as Patch, untouched
from crosscoders.steering.activation_edits import Change, feature_change
from crosscoders.study.material import Inquiry
from forensics.errors import UserError
from forensics.policies import attach, decoder_layers, kl_divergence, last_logprobs
from forensics.progress import Progress, silent
from forensics.protocols import Policy
from forensics.records import content_hash
from forensics.statistics import Estimate, mean, ratio

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
            measure=LOSS
            if behaviour is None
            else f"chance of {behaviour.name}" + (" where it acts" if places is not None else ""),
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
                    logs = self._read(number, moved, prefix, 1 + len(prefix))
                    found[batch.members] += chance_of(logs, prefix, last)
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
    better = rise is not None and mean(rise if probe.is_chance else -rise).low > 0
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
        undone=ratio(-whole, rise) if rise is not None and better else None,
        turned=tuple(turned) if dose == 1 else None,
    )


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


FEWEST: Final = 8  # tasks
Places = Mapping[int, int]  # text of a stream -> position of the deciding token


def causes_where_they_act(
    inquiry: Inquiry, dictionary: Dictionary, latents: Sequence[int], most: int
) -> dict[int, Cause]:
    """The test of each of these latents that can be tested, ablated, on at most so many texts."""
    streams, policies, progress, found = inquiry.streams, inquiry.policies, inquiry.progress, {}
    several = len(inquiry.behaviours) > 1
    learnt = acting_places(dictionary, streams.learnt, latents) if several else {}
    other = acting_places(dictionary, streams.reported, latents)
    for number, latent in enumerate(latents):
        progress("what the latents cause", number, len(latents))
        behaviour = inquiry.behaviours[0]
        if several:
            behaviour = _chosen_behaviour(inquiry, learnt[latent], most)
        places = other[latent]
        try:
            probe = Probe.of(policies[-1], streams.reported, behaviour, most=most, places=places)
        except UserError:
            continue
        if len(probe.tasks) >= FEWEST:
            change = ablated(dictionary, [latent])
            found[latent] = caused(probe, change, rise=probe.rise(policies[0]))
    progress("what the latents cause", len(latents), len(latents))
    return found


def _chosen_behaviour(inquiry: Inquiry, places: Places, most: int) -> Behaviour:
    """That in which the models differ most surely; the first where none can be read."""
    first, (start, end) = inquiry.behaviours[0], inquiry.policies
    try:
        after = Probe.of(end, inquiry.streams.learnt, first, most=most, places=places)
    except UserError:
        return first
    before = replace(after, policy=start, kept={})

    def surely(behaviour: Behaviour) -> tuple[bool, float]:
        """Whether by enough to be worth a word, and in how many standard errors, of log-odds."""
        old, new = (replace(one, behaviour=behaviour).values() for one in (before, after))
        gap = after.nats(new) - after.nats(old)
        sure = abs(gap.mean()) / max(gap.std() / len(gap) ** 0.5, 1e-9)
        return abs(float((new - old).mean())) >= WORTH[0], float(sure)

    return max(inquiry.behaviours, key=surely)


@torch.no_grad()
def acting_places(
    dictionary: Dictionary, stream: StoredStream, latents: Sequence[int]
) -> dict[int, dict[int, int]]:
    """Of each latent the places in the texts in which it acts before a decision."""
    decisions = [text.deciding.nonzero()[0] for text in stream.tokenized]
    strongest: dict[tuple[int, int], tuple[bool, float, int]] = {}
    wanted = torch.tensor(latents)
    for block in encoded_blocks(dictionary, stream):
        codes = block.codes
        ours = torch.isin(codes.latent, wanted.to(codes.latent))
        active = (one[ours].tolist() for one in (codes.latent, codes.row, codes.value))
        for latent, row, value in zip(*active, strict=True):
            text, position = int(block.rows.text[row]), int(block.rows.position[row])
            if len(decisions[text]) and position <= decisions[text][-1]:
                one = (bool(block.rows.deciding[row]), value, position)
                best = strongest.get((latent, text), one)
                strongest[latent, text] = max(best, one, key=lambda it: it[:2])
    found: dict[int, dict[int, int]] = {latent: {} for latent in latents}
    for (latent, text), (*_, position) in strongest.items():
        after = decisions[text]
        found[latent][text] = int(after[after.searchsorted(position)])
    return found
