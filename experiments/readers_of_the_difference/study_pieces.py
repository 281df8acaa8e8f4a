"""The pieces of the study: one world, one seed, one reader; each learns twice and measures.

A piece stands alone (it plays, reads and learns what it needs), takes one core a minute or so,
and gives one row of plain numbers. What a piece could not measure is `None`.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from experiments.readers_of_the_difference import black_box
from experiments.readers_of_the_difference.difference_readers import (
    READERS,
    Learnt,
    Reading,
    rotation,
    told_by,
)
from experiments.readers_of_the_difference.pair_worlds import (
    AGAIN,
    Pair,
    RealPair,
    Runs,
    learnt_of,
    limits_of,
    real_pair,
    small_pair,
)
from experiments.readers_of_the_difference.played_runs import answers, edited_play, grafted_play
from experiments.readers_of_the_difference.reading_measures import comes_back, explained, recall
from experiments.readers_of_the_difference.synthetic_world import (
    AFTER_ONLY,
    OWN,
    SyntheticWorld,
)
from experiments.readers_of_the_difference.teacher_forced import (
    Above,
    Texts,
    chance,
    grafted_copy,
    mean_kl,
    random_graft,
    spot_logprobs,
)
from forensics.policies import decoder_layers

Row = dict[str, Any]
GRAFT, BLACK_BOX = "graft", "black-box"
ANSWERS, ANSWERED, DRAWN = " answers", ("mean-after", "components", "crosscoder"), 3
PLANTED: Final[dict[str, dict[str, float]]] = {
    "as it is": {},
    "half the norm": {"weakness": 0.5},
    "a tenth of the frequency": {"rarity": 0.1},
    "drift of .3": {"drift": 0.3},
}
PAIRS: Final = ("leak", "installed", "honest")
SEEDS, CHOOSING, REAL_SEEDS = (31, 32, 33), (100, 101), (21,)
ROTATIONS, TRAINED_ON, JUDGED, LOADED = 20, 1_000_000, 65_536, 65_536


@dataclass(frozen=True, kw_only=True)
class Piece:
    world: str
    seed: int
    reader: str
    cache: Path
    real: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.world}/{self.seed}/{self.reader}"


def pieces(cache: Path, real: Path | None, seeds: tuple[int, ...] = SEEDS) -> dict[str, Piece]:
    """All of the study: what decides who leads first, and of that the longest first."""
    accounts = tuple(reversed(READERS))
    everyone = (*accounts, GRAFT, BLACK_BOX)
    asked = [] if real is None else [("real", seed, one) for seed in REAL_SEEDS for one in everyone]
    if real is not None:
        asked += [("real", seed, f"{one}{ANSWERS}") for seed in REAL_SEEDS for one in ANSWERED]
    for worlds, readers in (
        (PAIRS[:2], everyone),
        (tuple(PLANTED), accounts),
        (PAIRS[2:], everyone),
    ):
        asked += [(world, seed, one) for one in readers for seed in seeds for world in worlds]
    found = (Piece(world=w, seed=s, reader=r, cache=cache, real=real) for w, s, r in asked)
    return {piece.name: piece for piece in found}


def judge(piece: Piece) -> Row:
    """The row of a piece, on one core."""
    torch.set_num_threads(1)
    start = time.process_time()
    row = planted(piece) if piece.world in PLANTED else paired(piece)
    return row | {"processor_seconds": round(time.process_time() - start, 1)}


# planted features


def planted(piece: Piece) -> Row:
    world = SyntheticWorld(seed=piece.seed, **PLANTED[piece.world])
    told = world.stream(JUDGED, 9)
    first, second = (_planted_reading(piece, world, told, part) for part in (0, 1))
    named = piece.reader in ("mean-after", "mean-difference")
    return {
        "explained": None if named else explained(first, told),
        "comes_back": comes_back(first.reported, second.reported),
        "recall": recall(first.called, world.truth),
    }


def _planted_reading(piece: Piece, world: SyntheticWorld, told: Any, part: int) -> Reading:
    stream = world.stream(TRAINED_ON, part)
    if piece.reader in ("mean-after", "mean-difference"):
        found = normalize(_activity_means(world, part, piece.reader == "mean-after"), dim=-1)
        return Reading(account=lambda b, a: torch.zeros_like(a), reported=found, called=found)
    some = world.stream(LOADED, part)
    learnt = Learnt(
        stream=stream,
        rows=torch.cat([block.activations for block in some.blocks()]),
        steps=_no_steps,
        told=told,
        seed=piece.seed + AGAIN * part,
        latents=384,
        before_only=2 * OWN,
        after_only=2 * OWN,
        tokens=TRAINED_ON,
    )
    return READERS[piece.reader](learnt)


def _no_steps() -> tuple[Tensor, Tensor]:
    raise AssertionError("planted worlds have no steps")


def _activity_means(world: SyntheticWorld, part: int, after: bool) -> Tensor:
    """For each after-only feature the mean of rows with it less that of rows without it."""
    stream = world.stream(LOADED, part)
    sums, number = torch.zeros((2, OWN, stream.width)), torch.zeros((2, OWN, 1))
    for first in range(0, LOADED, 4096):
        block, strengths = stream.block(first)
        rows = block.activations[:, 1]
        rows = rows if after else rows - block.activations[:, 0]
        on = torch.from_numpy(strengths[:, AFTER_ONLY] > 0).float()
        for side, mask in enumerate((on, 1 - on)):
            sums[side] += mask.T @ rows
            number[side] += mask.sum(0)[:, None]
    means = sums / number.clamp(min=1)
    return means[0] - means[1]


# pairs


def paired(piece: Piece) -> Row:
    if piece.world == "real":
        assert piece.real is not None
        pair: Pair = real_pair(piece.real, piece.cache)
    else:
        pair = small_pair(piece.world, piece.seed, piece.cache)
    if piece.reader == BLACK_BOX:
        return black_boxed(pair, piece.seed)
    if piece.reader == GRAFT:
        return graft_row(pair, piece.seed)
    if piece.reader.endswith(ANSWERS):
        return answers_row(pair, piece)
    return read_row(pair, piece)


def black_boxed(pair: Pair, seed: int) -> Row:
    """What is said of 200 transcripts, and how much of it is said again of 200 others."""
    said = []
    for one in (seed, seed + AGAIN):
        runs = _transcripts(pair, one)
        sides = (
            [run for run in runs if run.policy == policy.identity]
            for policy in (pair.before, pair.after)
        )
        said.append(black_box.named(*(side[: black_box.RUNS] for side in sides)))
    names = [{one["feature"] for one in part} for part in said]
    back = len(names[0] & names[1]) / len(names[0]) if names[0] else None
    return {"said": said[0], "comes_back": back}


def _transcripts(pair: Pair, seed: int) -> list[Any]:
    if isinstance(pair, RealPair):
        both = [side[seed // AGAIN] for sides in pair.case.values() for side in sides]
        return [both[i] for i in np.random.default_rng(seed).permutation(len(both))]
    return pair.played("train", black_box.RUNS, 500 + seed)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where a change is told: the two models as they are, on texts of other tasks."""

    pair: Pair
    told: Runs
    texts: Texts | None
    beyond: Texts
    ends: dict[str, float | None]
    plain: Tensor

    @classmethod
    def of(cls, pair: Pair, seed: int, limits: Tensor) -> "Bench":
        told = pair.telling(seed, limits)
        claims = pair.claims(told)
        texts = told.texts(claims) if claims else None
        _, beyond = pair.elsewhere(seed, limits)
        after, before = Above(pair.after.model, pair.layer), Above(pair.before.model, pair.layer)
        plain = spot_logprobs(after, beyond)
        theirs = replace(beyond, pairs=beyond.pairs.flip(2))
        turned = texts and replace(texts, pairs=texts.pairs.flip(2))
        ends = {
            "chance_before": chance(before, turned) if turned else None,
            "chance_after": chance(after, texts) if texts else None,
            "kl_undone": mean_kl(plain, spot_logprobs(before, theirs)),
            "right_before": chance(before, theirs) if beyond.claims else None,
            "right_after": chance(after, beyond) if beyond.claims else None,
        }
        return cls(pair=pair, told=told, texts=texts, beyond=beyond, ends=ends, plain=plain)

    def told_of(self, above: Above, here: Tensor | None, there: Tensor | None) -> Row:
        """Of the after model's rest with these parts taken out: `here` of the texts told on,
        `there` elsewhere.
        """
        found: Row = {"chance": None if self.texts is None else chance(above, self.texts, here)}
        found["kl"] = mean_kl(self.plain, spot_logprobs(above, self.beyond, there))
        found["right"] = chance(above, self.beyond, there) if self.beyond.claims else None
        return found

    def removed(self, told: Row) -> float | None:
        before, after = self.ends["chance_before"], self.ends["chance_after"]
        if before is None or after is None or after == before:
            return None
        return (after - told["chance"]) / (after - before)


def read_row(pair: Pair, piece: Piece) -> Row:
    """A reader with an account: everything but the planted measures."""
    learnt_runs = pair.learning(piece.seed)
    limits = limits_of(learnt_runs)
    bench = Bench.of(pair, piece.seed, limits)
    learnt = [
        learnt_of(pair, piece.seed, learnt_runs, bench.told.stream),
        learnt_of(pair, piece.seed + AGAIN, pair.learning(piece.seed + AGAIN), bench.told.stream),
    ]
    first, second = (READERS[piece.reader](one) for one in learnt)
    above = Above(pair.after.model, pair.layer)
    taken = [None if one is None else _taken(first, one) for one in (bench.texts, bench.beyond)]
    row = {
        "explained": explained(first, bench.told.stream),
        "reported": len(first.reported),
        "comes_back": comes_back(first.reported, second.reported),
        **bench.ends,
        "moved": _mean_length(taken[1]),
        **told_beside(bench, above, taken),
    }
    if not isinstance(pair, RealPair):
        turns = _turns(learnt[0].stream.width)
        row["played"] = edited_play(pair, piece.seed, first, limits, turns)
    return row


def answers_row(pair: Pair, piece: Piece) -> Row:
    """Answers that are drawn; not in the rule, and decides nothing."""
    learnt_runs = pair.learning(piece.seed)
    told = pair.telling(piece.seed, limits_of(learnt_runs)).stream
    reading = READERS[piece.reader.removesuffix(ANSWERS)](
        learnt_of(pair, piece.seed, learnt_runs, told)
    )
    turns = itertools.islice(_turns(told.width), DRAWN)
    return answers(pair, piece.seed, reading, limits_of(learnt_runs), turns)


def told_beside(bench: Bench, above: Above, taken: Sequence[Tensor | None]) -> Row:
    """The change, and its rotations beside it. `taken`: of the texts told on, and elsewhere."""

    def told(turn: Tensor | None) -> Row:
        here, there = (_turned(one, turn) for one in taken)
        found = bench.told_of(above, here, there)
        return found | {"removed": bench.removed(found)}

    own = told(None)
    others = [told(turn) for turn in _turns(bench.beyond.pairs.shape[-1])]
    return {"removed": own["removed"], "told": own, "rotations": others}


def _turns(width: int) -> Iterator[Tensor]:
    return (rotation(width, draw) for draw in range(ROTATIONS))


def _turned(taken: Tensor | None, turn: Tensor | None) -> Tensor | None:
    return taken if taken is None or turn is None else taken @ turn


def _taken(reading: Reading, texts: Texts) -> Tensor:
    pairs = texts.pairs[texts.kept]
    return told_by(reading, pairs[:, 0], pairs[:, 1])


def _mean_length(taken: Tensor | None) -> float | None:
    return None if taken is None else float(taken.norm(dim=-1).mean())


def graft_row(pair: Pair, seed: int) -> Row:
    """Before's output side in the after model, beside random changes of the weights as large."""
    lower = replace(pair, layer=len(decoder_layers(pair.after.model)) - 2)
    limits = torch.full((2,), torch.inf)
    bench = Bench.of(lower, seed, limits)
    grafted = grafted_copy(pair.before.model, pair.after.model)
    own = bench.told_of(Above(grafted, lower.layer), None, None)
    others = []
    for draw in range(ROTATIONS):
        model = random_graft(grafted, pair.after.model, draw)
        others.append(bench.told_of(Above(model, lower.layer), None, None))
    row: Row = {
        "comes_back": 1.0,
        **bench.ends,
        "removed": bench.removed(own),
        "told": own,
        "rotations": [one | {"removed": bench.removed(one)} for one in others],
    }
    if not isinstance(pair, RealPair):
        row["played"] = grafted_play(pair, seed, grafted, ROTATIONS)
    return row
