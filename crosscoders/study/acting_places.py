"""Where, and on which behaviour, a latent is tested: where it acts.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from crosscoders.activations.activation_store import StoredStream
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks
from crosscoders.patching.decisions import Behaviour
from crosscoders.study.causal_probe import WORTH, Probe
from crosscoders.study.causes import Cause, ablated, caused
from crosscoders.study.material import StudyStreams
from forensics.errors import UserError
from forensics.progress import Progress, silent

FEWEST: Final = 8  # tasks
Places = Mapping[int, int]  # text of a stream -> position of the deciding token


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `causes_where_they_act` works on. `most`: texts that are read."""

    dictionary: Dictionary
    policies: Sequence[Any]
    streams: StudyStreams
    behaviours: Sequence[Behaviour]
    most: int

    def probe(self, stream: StoredStream, places: Places, behaviour: Behaviour) -> Probe:
        """Reads the after model at these places."""
        return Probe.of(self.policies[-1], stream, behaviour, most=self.most, places=places)


def causes_where_they_act(
    asked: Asked, latents: Sequence[int], *, progress: Progress = silent
) -> dict[int, Cause]:
    """The test of each of these latents that can be tested, ablated."""
    streams, found = asked.streams, {}
    several = len(asked.behaviours) > 1
    learnt = acting_places(asked.dictionary, streams.learnt, latents) if several else {}
    other = acting_places(asked.dictionary, streams.reported, latents)
    for number, latent in enumerate(latents):
        progress("what the latents cause", number, len(latents))
        behaviour = _chosen(asked, learnt[latent]) if several else asked.behaviours[0]
        try:
            probe = asked.probe(streams.reported, other[latent], behaviour)
        except UserError:
            continue
        if len(probe.tasks) >= FEWEST:
            change = ablated(asked.dictionary, [latent])
            found[latent] = caused(probe, change, rise=probe.rise(asked.policies[0]))
    progress("what the latents cause", len(latents), len(latents))
    return found


def _chosen(asked: Asked, places: Places) -> Behaviour:
    """That in which the models differ most surely; the first where none can be read."""
    first = asked.behaviours[0]
    try:
        after = asked.probe(asked.streams.learnt, places, first)
    except UserError:
        return first
    before = replace(after, policy=asked.policies[0], kept={})

    def surely(behaviour: Behaviour) -> tuple[bool, float]:
        """Whether by enough to be worth a word, and in how many standard errors, of log-odds."""
        old, new = (replace(one, behaviour=behaviour).values() for one in (before, after))
        gap = after.nats(new) - after.nats(old)
        sure = abs(gap.mean()) / max(gap.std() / len(gap) ** 0.5, 1e-9)
        return abs(float((new - old).mean())) >= WORTH[0], float(sure)

    return max(asked.behaviours, key=surely)


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
