"""Which source of the gain a latent belongs to.

1. The sources are those that the evidence of the case has measured to carry some of the gain (the
   whole interval above 0) and that a run's steps name: kinds of action, and channels. A part of the
   prompt that every run shows parts no decisions, so nothing can belong to it.
2. Read are the decisions of won runs, of the after model where it won any. A decision is for a
   source if the action is of that kind, or what it shows, or what the prompt shows, is the
   channel's.
3. A latent's share is how much of its activity at these decisions falls on those for a source, with
   an interval by task. Its source is that of the largest share, if the whole interval, at a level
   divided by the number of sources, lies above the share of the decisions themselves; else none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from crosscoders.activations.streams import Rows, Stream, TextNote
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks
from crosscoders.latents.row_groups import ACTING, RowGroup
from forensics.records import Evidence, read_findings
from forensics.statistics import ratio

CARRIED: Final = ("refusal.carried", "exchange.carried", "gain.channel")
JOINED: Final = " + "  # between kinds that were refused at once
FEWEST, LEVEL = 2, 0.95  # tasks; of an interval


def sources_of_case(runs: Path | None) -> tuple[str, ...]:
    """What carries some of the gain, the most first; none where there is no evidence."""
    file = None if runs is None else runs.expanduser() / "evidence.jsonl"
    if file is None or not file.is_file():
        return ()
    found: dict[str, float] = {}
    for one in read_findings(file):
        if not isinstance(one, Evidence) or one.question not in CARRIED or not one.about:
            continue
        if one.interval and one.interval.low > 0 and JOINED not in one.about:
            found[one.about] = max(one.estimate, found.get(one.about, 0.0))
    return tuple(sorted(found, key=lambda name: -found[name]))


def latent_sources(
    dictionary: Dictionary, stream: Stream, latents: Sequence[int], sources: Sequence[str]
) -> dict[int, dict[str, Any] | None]:
    """Of each latent its source, `share` of its activity there and the decisions' own
    (`of_decisions`); `None` where none stands out.
    """
    if not sources or not latents:
        return dict.fromkeys(latents)
    activity, rows = _sums(dictionary, stream, latents, sources)
    return {
        latent: _standing_out(activity[:, number], rows, sources)
        for number, latent in enumerate(latents)
    }


def _standing_out(
    activity: np.ndarray, rows: np.ndarray, sources: Sequence[str]
) -> dict[str, Any] | None:
    """`activity`, `rows` `[tasks, sources + 1]`, the last column of all decisions."""
    active = activity[:, -1] > 0
    if active.sum() < FEWEST or not rows[:, :-1].any():
        return None
    shares = activity[:, :-1].sum(0) / activity[:, -1].sum()
    best = int(shares.argmax())
    level = 1 - (1 - LEVEL) / np.count_nonzero(rows[:, :-1].sum(0))  # of what names a decision
    share = ratio(activity[:, best], activity[:, -1], level=level)
    own = float(rows[:, best].sum() / rows[:, -1].sum())
    if share.low <= own:
        return None
    return {"name": sources[best], "share": asdict(share), "of_decisions": own}


@torch.no_grad()
def _sums(
    dictionary: Dictionary, stream: Stream, latents: Sequence[int], sources: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Activity `[tasks, latents, sources + 1]` and decisions `[tasks, sources + 1]`."""
    group, texts = _won(stream.texts), stream.texts
    tasks = {name: place for place, name in enumerate(sorted({one.task for one in texts}))}
    rows = np.zeros((len(tasks), len(sources) + 1))
    activity = np.zeros((len(tasks), len(latents), len(sources) + 1))
    column = torch.full((len(dictionary.bias),), -1)
    column[list(latents)] = torch.arange(len(latents))
    for encoded in encoded_blocks(dictionary, stream):
        decided = np.flatnonzero(group.mask(encoded.rows, texts))
        named = np.zeros((len(encoded.rows), len(sources) + 1))
        flags = list(_named(encoded.rows.take(decided), texts, sources))
        named[decided] = flags or 0
        task = np.array([tasks[texts[text].task] for text in encoded.rows.text])
        np.add.at(rows, task[decided], named[decided])
        codes = encoded.codes
        row, place = codes.row.cpu().numpy(), column[codes.latent.cpu()].numpy()
        some = (place >= 0) & (named[row, -1] > 0)
        value = codes.value.double().cpu().numpy()[some, None] * named[row[some]]
        np.add.at(activity, (task[row[some]], place[some]), value)
    return activity, rows


def _won(texts: Sequence[TextNote]) -> RowGroup:
    after = any(text.source == "after" for text in texts)
    return RowGroup(deciding=True, outcome="won", sources=("after",) if after else ())


def _named(rows: Rows, texts: Sequence[TextNote], sources: Sequence[str]) -> Iterator[list[bool]]:
    """For each deciding row which sources the decision is for, and `True`."""
    for text, step, sampled in zip(rows.text, rows.step, rows.sampled, strict=True):
        found = decided_sources(texts[text], int(step), bool(sampled))
        yield [*(name in found for name in sources), True]


def decided_sources(text: TextNote, step: int, sampled: bool) -> set[str]:
    """Kinds of the action that a deciding row at this step decides, the channels that it shows,
    and those of the prompt.
    """
    acting = [number for number, note in enumerate(text.steps) if note.role == ACTING]
    after = [number for number in acting if number >= step + sampled]
    if not after:
        return set()
    end = after[1] if len(after) > 1 else len(text.steps)
    shown = [*text.steps[: acting[0]], *text.steps[after[0] + 1 : end]]
    return {*text.steps[after[0]].kinds, *(name for note in shown for name in note.channels)}
