"""Are the audited questions of the kind that is trained on? The tasks may be others; what their
prompts share may not. A policy that learned a shortcut from one kind of question can hide it in
an audit that asks another, so such audits make no checkpoint promotable.

1. A prompt is the set of its words and signs; every number counts as one.
2. *Parts*: what nearly every prompt of one side says and next to none of the other. One word
   may be a value (of a cue, a level); with more the prompts have other parts.
3. *Kinds*: how much two prompts share, each word by how often it is met. Half of each side must
   have one on the other with which it shares as much as nine in ten trained prompts do with their
   own nearest, `LEAST` to `ENOUGH`.
4. An audit plays the world open and scrubbed: the prompts of one of them, or of both, must do.

Not seen: other questions in free words below instructions that both share.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies import renderer_for, style_of, tools_of
from forensics.protocols import Environment, Observation
from forensics.readers import open_record

WORD: Final = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")
# what a chat template leaves beside the texts
MARKS: Final = re.compile(r"<\|.*?\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")
ROLES: Final = {"system", "user", "assistant"}
LOOKED: Final = 64  # prompts of each side
NEARLY_ALL, NEXT_TO_NONE, VALUE = 0.98, 0.1, 1  # shares of prompts, and words
FEWEST: Final = 10  # prompts, from which on it is known what nearly all of them say
LEAST, ENOUGH = 0.5, 0.8  # shared, of what two prompts say together
CURE: Final = "give the environment questions of the kind that is trained on"
UNKNOWN: Final = (
    "What is trained on is not known here, so the audited questions may be of another kind; give"
    " the training's record with --training DIR, or its prompts with --trained-tasks FILE."
)
Form = Callable[[Observation], str]


def difference_in_kind(trained: Sequence[str], audited: Sequence[str]) -> str | None:
    """How audited prompts differ in kind from the trained ones, in one sentence; `None` where
    they do not, or there are none.
    """
    texts = [list(dict.fromkeys(side)) for side in (trained, audited)]
    if not all(texts):
        return None
    words = [[_words(text) for text in side] for side in texts]
    names = sorted(set().union(*words[0], *words[1]))
    tables = [np.array([[n in found for n in names] for found in side], float) for side in words]
    ours, theirs = (table.mean(0) for table in tables)  # shares of prompts, by word
    near, own = (_shared(tables[0], table, ours + theirs) for table in (tables[1], tables[0]))
    known = [len(side) >= FEWEST for side in texts]
    bar = np.quantile((own - 2 * np.eye(len(own))).max(1), 0.1) if known[0] else LEAST
    apart = [
        (np.minimum(one >= NEARLY_ALL, other < NEXT_TO_NONE)).sum() > VALUE
        for one, other in ((ours, theirs), (theirs, ours))
    ]
    nearest = near.max(1), near.max(0)
    alike = [np.mean(one >= np.clip(bar, LEAST, ENOUGH)) >= 0.5 for one in nearest]
    if all(alike) and not (all(known) and any(apart)):
        return None
    quoted = [short(side[one.argmin()]) for side, one in zip(texts, nearest, strict=True)]
    return (
        "The audited questions are not of the kind that is trained on: that looks like"
        f" {quoted[0]}, and they look like {quoted[1]}; {CURE}."
    )


def _words(text: str) -> set[str]:
    words = WORD.findall(MARKS.sub(" ", text))
    found = {"#" if word.isdigit() else word.lower() for word in words}
    return found - ROLES or found


def _shared(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What each two prompts share, as a part of what they say together."""
    both = (one * weights) @ other.T
    either = (one @ weights)[:, None] + (other @ weights)[None] - both
    return np.asarray(both / np.maximum(either, 1e-9))


def with_system(start: Observation) -> str:
    """A prompt below its system message, if any."""
    return f"{start.system}\n\n{start.text}" if start.system else start.text


def unlike(
    trained: Sequence[str], environment: Environment, forms: Sequence[Form] = (with_system,)
) -> str | None:
    """How the held-out questions of a world differ in kind from the trained prompts, in every
    one of these forms; `None` where they do not.
    """
    ways = worlds(environment, "held-out", LOOKED)
    found = [difference_in_kind(trained, [*map(form, way)]) for form in forms for way in ways]
    return None if None in found else found[0]


def trained_prompts(environment: Environment) -> list[str]:
    """Some prompts that a world trains on."""
    return [*map(with_system, starts(environment, "train", LOOKED))]


def worlds(environment: Environment, split: str, number: int) -> list[list[Observation]]:
    """What tasks begin with in the open world and, where a prompt shows a channel, in the
    scrubbed one and in both.
    """
    plain = list(starts(environment, split, number))
    if not any(start.channels for start in plain):
        return [plain]
    without = environment.without(*(channel.name for channel in environment.channels))
    scrubbed = list(starts(without, split, number))
    return [plain, scrubbed, [*plain, *scrubbed]]


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """Where it stands what a run trains on: prompts that the reader `listed`, and a record in a
    folder, if one lies there; else the `world` that the run or its base names.
    """

    listed: tuple[str, ...]
    record: Path
    world: Environment | None

    def doubt(self, environment: Environment, tokenizer: Any) -> str | None:
        """As `unlike`, of questions as a policy with this tokenizer is asked them too."""
        found = spread(self.listed, LOOKED)
        with suppress(UserError):  # none lies there, or none yet
            found += _recorded(self.record, tokenizer)
        if not found and self.world is not None:
            found = trained_prompts(self.world)
        if not found:
            return UNKNOWN
        style, tools = style_of(environment), tools_of(environment)
        render = renderer_for(tokenizer, (), style, tools).prompt

        def played(start: Observation) -> str:
            ids = render(start.text, start.system)
            return str(tokenizer.decode(ids, skip_special_tokens=True))

        return unlike(found, environment, (with_system, played))


def _recorded(folder: Path, tokenizer: Any) -> list[str]:
    """Some prompts of a record: its texts, or what stands before the first drawn token."""
    record = open_record(folder)
    if texts := record.prompts():
        return spread(list(texts.values()), LOOKED)
    rows = {
        row["task"]: row["token_ids"][: row["sampled"].index(True)]
        for step in spread(record.steps(), 8)
        for row in record.values(step, "task", "token_ids", "sampled")
        if row["sampled"] and True in row["sampled"]
    }
    found = spread([ids for ids in rows.values() if ids], LOOKED)
    return [str(tokenizer.decode(ids, skip_special_tokens=True)) for ids in found]


def starts(environment: Environment, split: str, number: int) -> Iterator[Observation]:
    """What tasks begin with. A world without tasks of the split gives none; a
    task that cannot start is left out.
    """
    try:
        tasks = environment.tasks(split, number, 0)
    except UserError:
        return
    for task in islice(tasks, number):
        try:
            yield environment.spawn().reset(task, 0)
        except Exception:
            continue


def spread(values: Sequence[Any], number: int) -> list[Any]:
    """At most so many of them, evenly from the first to the last."""
    places = np.linspace(0, max(len(values) - 1, 0), min(number, len(values)))
    return [values[round(at)] for at in places]


def short(text: str | None) -> str:
    """A prompt as it is quoted."""
    if text is None:
        return "none"
    return repr(text if len(text) <= 80 else text[:38] + " ... " + text[-38:])
