"""Groups of rows by what is known of them (role, step kind, channel, outcome,
source), with tasks as the independent units, and how latents are active in them.

A *deciding* row comes before the action that it decides, so in a group of
deciding rows `kinds` means the kinds of that action: the step that the row
stands in where it is the policy's own and the row was not sampled (the head of
a message), otherwise the next step of the policy. In any other group it means
the kinds of the row's own step.

Tasks come in bounded numbers, the same whatever the order of the texts.

How often and how strongly latents are active: over all rows, by group of
rows, and by task for contrasts.

1. Frequency: share of rows in which a latent is active. Mean activation: over
   *all* rows of a group, zeros included, in the dictionary's units.
2. Contrasts: per task the mean over the first group minus the mean over the
   second, tasks that have both. Sums are kept for at most `MOST_TASKS` tasks,
   drawn by the hash of their names; memory `contrasts x 2 x tasks x latents` float32.
3. The p-value is that of a t test over tasks, but never below `2^(1 - n)` for
   `n` tasks with a difference: what a sign-flip test could give at best. A
   sparse latent differs in few tasks, where t alone claims too much.
4. Benjamini and Hochberg over all latents that could be tested, of all
   contrasts together.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from crosscoders.activations.streams import PLAIN_TEXT, Rows, TextNote
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import EncodedBlock
from forensics.errors import UserError
from forensics.statistics import benjamini_hochberg

WIN = 0.5
ACTING = "assistant"


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """The rows that meet every condition given; of several names in one
    condition, any will do.

    `outcome`: of the row's text (`WIN` is the least score that counts as won).
    `other_kinds`: kinds that the step must not have. `deciding`, `sampled`:
    `None` is both.
    """

    roles: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    other_kinds: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    outcome: Literal["won", "lost"] | None = None
    sampled: bool | None = None
    deciding: bool | None = None

    def mask(self, rows: Rows, texts: Sequence[TextNote]) -> np.ndarray:
        """`[rows]`, bool. A row of which a condition is not known does not meet it."""
        found = np.ones(len(rows), dtype=bool)
        for flag, column in ((self.sampled, rows.sampled), (self.deciding, rows.deciding)):
            if flag is not None:
                found &= column == flag
        if self.outcome or self.sources:
            fits = np.array([self._fits_text(text) for text in texts])
            found &= fits[rows.text]
        if self.roles or self.kinds or self.other_kinds or self.channels:
            found &= self._fits_steps(rows, texts)
        return found

    def _fits_text(self, text: TextNote) -> bool:
        if self.sources and text.source not in self.sources:
            return False
        if self.outcome is None:
            return True
        return text.outcome is not None and (text.outcome >= WIN) == (self.outcome == "won")

    def _fits_steps(self, rows: Rows, texts: Sequence[TextNote]) -> np.ndarray:
        """Each different (text, step, sampled) is judged once."""
        keys = np.stack([rows.text, rows.step, rows.sampled], axis=1).astype(np.int64)
        different, place = np.unique(keys, axis=0, return_inverse=True)
        fits = np.array(
            [
                self._fits_step(texts[text], int(step), bool(sampled))
                for text, step, sampled in different
            ],
            dtype=bool,
        )
        return fits[place.reshape(-1)]

    def _fits_step(self, text: TextNote, step: int, sampled: bool) -> bool:
        if step == PLAIN_TEXT:
            return False
        note = text.steps[step]
        if self.roles and note.role not in self.roles:
            return False
        if self.channels and not set(self.channels) & set(note.channels):
            return False
        if not (self.kinds or self.other_kinds):
            return True
        kinds = decided_kinds(text, step, sampled) if self.deciding else note.kinds
        wanted = not self.kinds or bool(set(self.kinds) & set(kinds))
        return wanted and bool(kinds) and not set(self.other_kinds) & set(kinds)


def decided_kinds(text: TextNote, step: int, sampled: bool) -> tuple[str, ...]:
    """Kinds of the action that a deciding row at this step decides; none where
    no action follows.
    """
    following = text.steps[step + 1 :] if sampled else text.steps[step:]
    return next((note.kinds for note in following if note.role == ACTING), ())


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two groups of rows to be told apart, by task."""

    name: str
    first: RowGroup
    second: RowGroup


def decision_contrast(kinds: Sequence[str], name: str = "attempts") -> Contrast:
    """Decisions for an action of these kinds (a channel's attempts) against
    decisions for any other.
    """
    if not kinds:
        raise UserError(
            "a contrast of decisions needs at least one kind of action; name a channel's attempts"
        )
    return Contrast(
        name=name,
        first=RowGroup(kinds=tuple(kinds), deciding=True),
        second=RowGroup(other_kinds=tuple(kinds), deciding=True),
    )


def outcome_contrast() -> Contrast:
    """Rows of won against rows of lost texts."""
    return Contrast(name="won", first=RowGroup(outcome="won"), second=RowGroup(outcome="lost"))


def known_groups(texts: Sequence[TextNote]) -> dict[str, RowGroup]:
    """A group for every role, kind, channel and source in the texts, and for
    won, lost, deciding and sampled rows.
    """
    steps = [step for text in texts for step in text.steps]
    found = {
        f"role:{role}": RowGroup(roles=(role,)) for role in sorted({step.role for step in steps})
    }
    kinds = {kind for step in steps for kind in step.kinds}
    channels = {channel for step in steps for channel in step.channels}
    found |= {f"kind:{kind}": RowGroup(kinds=(kind,)) for kind in sorted(kinds)}
    found |= {f"channel:{channel}": RowGroup(channels=(channel,)) for channel in sorted(channels)}
    found |= {
        f"source:{source}": RowGroup(sources=(source,))
        for source in sorted({text.source for text in texts})
    }
    if any(text.outcome is not None for text in texts):
        found |= {"won": RowGroup(outcome="won"), "lost": RowGroup(outcome="lost")}
    return found | {"deciding": RowGroup(deciding=True), "sampled": RowGroup(sampled=True)}


def ranked_tasks(texts: Sequence[TextNote]) -> dict[str, int]:
    """A place for every task, by the hash of its name: which tasks come first
    says nothing about them.
    """

    def key(name: str) -> tuple[str, str]:
        return hashlib.blake2b(name.encode(), digest_size=8).hexdigest(), name

    return {
        name: place for place, name in enumerate(sorted({text.task for text in texts}, key=key))
    }


def task_groups(texts: Sequence[TextNote], groups: int) -> np.ndarray:
    """The group `[texts]` of each text's task: one a task up to `groups` of
    them, dealt out evenly beyond.
    """
    places = ranked_tasks(texts)
    return np.array([places[text.task] % groups for text in texts], dtype=np.int64)


def chosen_tasks(texts: Sequence[TextNote], most: int) -> np.ndarray:
    """A number `[texts]` for each text of the first `most` tasks, -1 for the texts of others."""
    places = ranked_tasks(texts)
    return np.array(
        [place if (place := places[text.task]) < most else -1 for text in texts], dtype=np.int64
    )


MOST_TASKS = 512
FEWEST_TASKS = 2
BINS, BINS_AN_OCTAVE = 256, 8  # of the histogram of active values: 2^-16 to 2^16


class Activity:
    """Accumulator of activity: overall, and by named groups of rows."""

    def __init__(self, dictionary: Dictionary, groups: Mapping[str, RowGroup]) -> None:
        latents, device = len(dictionary.bias), dictionary.bias.device
        self.groups = dict(groups)
        self.rows = 0
        self.rows_of = dict.fromkeys(groups, 0)
        self.active = torch.zeros(latents, dtype=torch.int64, device=device)
        self.total = torch.zeros(latents, dtype=torch.float64, device=device)
        self.largest = torch.zeros(latents, device=device)
        self.histogram = torch.zeros(latents * BINS, dtype=torch.int32, device=device)
        self.total_of = {
            name: torch.zeros(latents, dtype=torch.float64, device=device) for name in groups
        }

    def add(self, encoded: EncodedBlock) -> None:
        codes, value = encoded.codes, encoded.codes.value.double()
        self.rows += codes.rows
        self.active += torch.bincount(codes.latent, minlength=len(self.active))
        self.total.index_add_(0, codes.latent, value)
        self.largest.scatter_reduce_(0, codes.latent, codes.value.to(self.largest.dtype), "amax")
        size = (
            (codes.value.float().log2() * BINS_AN_OCTAVE)
            .floor()
            .clamp(-BINS // 2, BINS // 2 - 1)
            .long()
        )
        place = codes.latent * BINS + size + BINS // 2
        self.histogram.index_add_(0, place, torch.ones_like(place, dtype=torch.int32))
        for name, group in self.groups.items():
            mask = group.mask(encoded.rows, encoded.texts)
            self.rows_of[name] += int(mask.sum())
            inside = torch.from_numpy(mask).to(codes.row.device)[codes.row]
            self.total_of[name].index_add_(0, codes.latent[inside], value[inside])

    def columns(self) -> dict[str, np.ndarray]:
        """Of the table `[latents]`, NaN where there is nothing to average; the
        median of the active values within 5 %, from a histogram of eight bins an
        octave.
        """
        active, total = self.active.cpu().numpy(), self.total.cpu().numpy()
        counts = self.histogram.view(-1, BINS).cpu().numpy().cumsum(1)
        bins = (counts >= counts[:, -1:] / 2).argmax(1)
        median = 2.0 ** ((bins - BINS // 2 + 0.5) / BINS_AN_OCTAVE)
        with np.errstate(invalid="ignore"):
            return {
                "frequency": active / self.rows,
                "mean": total / self.rows,
                "mean_when_active": total / active,
                "median_when_active": np.where(counts[:, -1] > 0, median, np.nan),
                "largest": self.largest.cpu().numpy().astype(float),
            } | {
                f"mean_{name}": sums.cpu().numpy() / np.float64(self.rows_of[name])
                for name, sums in self.total_of.items()
            }


@dataclass(frozen=True)
class ContrastResult:
    """`difference`, `p_value`, `q_value` `[latents]`, NaN where it could not be
    tested; `tasks` had both groups.

    `effect`: the mean difference over its standard deviation between tasks.
    """

    name: str
    tasks: int
    difference: np.ndarray
    effect: np.ndarray
    p_value: np.ndarray
    q_value: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """Of the table."""
        names = ("difference", "effect", "p_value", "q_value")
        return {f"{name}_{self.name}": getattr(self, name) for name in names}


class ContrastAccumulator:
    """Accumulator of activations by contrast, side and task."""

    def __init__(
        self,
        dictionary: Dictionary,
        texts: Sequence[TextNote],
        contrasts: Sequence[Contrast],
    ) -> None:
        self.contrasts = tuple(contrasts)
        self.task_of_text = chosen_tasks(texts, MOST_TASKS)
        self.tasks = max(0, int(self.task_of_text.max(initial=-1))) + 1
        self.latents = dictionary.config.partition.latents
        device = dictionary.bias.device
        shape = (len(self.contrasts), 2, self.tasks)
        self.sums = torch.zeros(*shape, self.latents, device=device)
        self.rows = np.zeros(shape, dtype=np.int64)

    def add(self, encoded: EncodedBlock) -> None:
        codes, task = encoded.codes, self.task_of_text[encoded.rows.text]
        task_of_row = torch.from_numpy(task).to(codes.row.device)
        for c, contrast in enumerate(self.contrasts):
            for side, group in enumerate((contrast.first, contrast.second)):
                mask = group.mask(encoded.rows, encoded.texts) & (task >= 0)
                self.rows[c, side] += np.bincount(task[mask], minlength=self.tasks)
                inside = torch.from_numpy(mask).to(codes.row.device)[codes.row]
                place = task_of_row[codes.row[inside]] * self.latents + codes.latent[inside]
                sums = self.sums[c, side].view(-1)
                sums.index_add_(0, place, codes.value[inside].to(sums.dtype))

    def results(self) -> tuple[ContrastResult, ...]:
        """One result a contrast; q-values over all of them together."""
        tested = []
        for contrast, sums, rows in zip(self.contrasts, self.sums, self.rows, strict=True):
            both = (rows > 0).all(0)
            means = sums.cpu().numpy()[:, both].astype(float) / rows[:, both, None]
            differences = means[0] - means[1]
            mean, effect, p_value = np.full((3, self.latents), np.nan)
            if len(differences) >= FEWEST_TASKS:
                mean, (effect, p_value) = differences.mean(0), task_test(differences)
            tested.append((contrast.name, len(differences), mean, effect, p_value))
        p_values = np.array([p_value for _, _, _, _, p_value in tested])
        q_values, known = np.full(p_values.shape, np.nan), np.isfinite(p_values)
        q_values[known] = benjamini_hochberg(p_values[known])
        return tuple(
            ContrastResult(*values, q_value)
            for values, q_value in zip(tested, q_values, strict=True)
        )


def task_test(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Effect sizes and two-sided p-values `[latents]` that the mean of
    `differences [tasks, latents]` is zero.

    NaN where no task differs: nothing was seen that could be tested.
    """
    from scipy.special import stdtr

    tasks = len(differences)
    some = (differences != 0).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = differences.mean(0) / differences.std(0, ddof=1)
    p_value = np.maximum(2 * stdtr(tasks - 1, -np.abs(effect) * np.sqrt(tasks)), 2.0 ** (1 - some))
    return np.where(some > 0, effect, np.nan), np.where(some > 0, np.minimum(p_value, 1.0), np.nan)
