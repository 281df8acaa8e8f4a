"""What the two models' activations are where an intervention will act, and what
follows from them for the controls.

1. The after policy's unsteered runs on the *choosing* tasks are read by both
   models at the site.
2. From the rows at the chosen position: the median active value of a latent
   (what `add` takes), how often each is active (for random features of equal
   activity), and the mean difference.
3. From the rows at decisions the *contrast* of a latent: by how much it is more
   active just before the measured behaviour, times what it writes: `|d_after -
   d_before|`, so that what both models write alike is never chosen, or
   `|d_after|`. Choosing by mean activity instead misses a planted feature.
   In a world of one turn every decision leads to an answer: there decisions behind
   prompts with the cue are set against those without it (`with_and_without`).
4. Which latents are tested: named ones, or the first N by a rule that is fixed
   beforehand and looks at other tasks. `12,17`: these. `top:N`: of the latents that a table
   calls specific to the after model, the N of largest contrast in the models' difference; of
   all latents where there is no table. `contrast:N`: the N of largest contrast among all
   latents, by all that they write in the after model, for a behaviour that no specific latent
   carries.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crosscoders.activations.outlier_positions import Limits, beyond, limits_of, norms_of
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.steering.activation_edits import Encoding, stacked
from crosscoders.steering.evaluation import Bench
from crosscoders.steering.interventions import Position, Steps, chosen_positions
from forensics.errors import OutsideFailure, UserError
from forensics.progress import Progress, counted, silent
from forensics.protocols import Channel, Environment, Policy
from forensics.records import Trajectory, action_starts, content_hash, read_rows

Rule = Literal["listed", "top", "contrast"]
TABLE: Final = "latents.parquet"
MOST_ROWS: Final = 20_000
ROWS_AT_ONCE: Final = 2048
NEAREST: Final = 10
READING: Final = "reading both models"
Uses = Callable[
    [tuple[str, ...]], bool
]  # whether an action with these kinds is the measured behaviour


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Activations, before first: at the position, and at decisions with what
    followed.

    `used`: whether the next action was the measured behaviour, or the prompt had the
    cue. `limits`: of the norm, by model, where rows beyond them (attention sinks) were
    left out.
    """

    here: Float[Tensor, "rows models width"]
    decisions: Float[Tensor, "decisions models width"]
    used: Bool[Tensor, " decisions"]
    limits: Limits | None = None


def read_pairs(
    before: Policy,
    after: Policy,
    runs: Iterable[Trajectory],
    *,
    site: str,
    position: Position,
    steps: Steps | None,
    uses: Uses,
    keep_outliers: bool = False,
) -> Readings:
    """Read runs until there are `MOST_ROWS` rows. Raises `UserError` where no run has
    the position.
    """
    here: list[Tensor] = []
    norms: list[Tensor] = []
    decisions: list[Tensor] = []
    used: list[bool] = []
    for run in runs:
        ids = [token for step in run.steps for token in step.token_ids or ()]
        starts = action_starts(run)
        pair = torch.from_numpy(
            np.stack([policy.activations([ids], [site])[0][site] for policy in (before, after)], 1)
        )
        norms.append(norms_of(pair))
        decided = torch.zeros((1, len(ids)), dtype=torch.bool)
        decided[0, [start - 1 for start in starts]] = True
        mask = chosen_positions(position, steps, torch.tensor([ids]), decided, len(ids))
        here.append(pair[mask[0]])
        decisions.append(pair[[start - 1 for start in starts]])
        used += [uses(step.kinds) for _, step in run.actions if any(step.sampled or ())]
        if max(sum(map(len, here)), len(used)) >= MOST_ROWS:
            break
    if not sum(map(len, here)):
        raise UserError(
            f"no run of the after policy has the position {position.name}; choose another with --at"
        )
    found = Readings(here=torch.cat(here), decisions=torch.cat(decisions), used=torch.tensor(used))
    limits = limits_of(torch.cat(norms))
    if keep_outliers or not bool((torch.cat(norms) > torch.tensor(limits)).any()):
        return found
    return without_outliers(found, limits)


def without_outliers(readings: Readings, limits: Limits) -> Readings:
    """The rows within the limits; all, where none is."""
    here, decided = (~beyond(rows, limits) for rows in (readings.here, readings.decisions))
    return Readings(
        here=readings.here[here] if bool(here.any()) else readings.here,
        decisions=readings.decisions[decided],
        used=readings.used[decided],
        limits=limits,
    )


def with_and_without(cued: Readings, scrubbed: Readings) -> Readings:
    """Decisions behind prompts with the cue against those without it, where no action
    is the measured behaviour; `here` is that of the cued ones.
    """
    flags = torch.cat([torch.ones(len(cued.used)), torch.zeros(len(scrubbed.used))]) > 0
    decisions = torch.cat([cued.decisions, scrubbed.decisions])
    return replace(cued, decisions=decisions, used=flags)


def uses_of(measure: str, channels: Sequence[Channel]) -> Uses:
    """Whether an action is the measured behaviour; nothing is where the measure
    is no action (success, turns).
    """
    kind, _, name = measure.partition(":")
    if kind == "kind":
        return lambda kinds: name in kinds
    attempts = {
        attempt for channel in channels if channel.name == name for attempt in channel.attempts
    }
    return lambda kinds: kind == "channel" and not attempts.isdisjoint(kinds)


def decision_activations(
    before: Policy,
    after: Policy,
    runs: Iterable[Trajectory],
    *,
    site: str,
    measure: str,
    channels: Sequence[Channel],
) -> tuple[Tensor, Tensor]:
    """Activations of both models `[decisions, models, width]` at the decisions of
    runs, and whether the next action was the measured behaviour (`channel:NAME`,
    `kind:NAME`) `[decisions]`.
    """
    readings = read_pairs(
        before,
        after,
        runs,
        site=site,
        position=Position(where="deciding"),
        steps=None,
        uses=uses_of(measure, channels),
    )
    return readings.decisions, readings.used


@dataclass(frozen=True, kw_only=True)
class FedDictionary:
    """A dictionary, and from whose activations it is fed (see `activation_edits`). `progress` hears
    of every pass over rows.
    """

    dictionary: Dictionary
    encoding: Encoding = "both"
    progress: Progress = silent

    def blocks(self, pairs: Tensor) -> Iterator[Tensor]:
        """Rows `[rows, models, width]` as the dictionary reads them, some at a
        time; the after model's codes.
        """
        place = self.dictionary.bias.device
        starts = range(0, len(pairs), ROWS_AT_ONCE)
        for first in counted(starts, self.progress, "reading latents", len(starts)):
            part = pairs[first : first + ROWS_AT_ONCE].to(place)
            yield stacked(self.dictionary, part[:, 1], part[:, 0], "after", self.encoding)

    @torch.no_grad()
    def values(self, features: Sequence[int], pairs: Tensor) -> Tensor:
        """Values `[rows, features]` of a few latents."""
        chosen = torch.tensor(list(features), device=self.dictionary.bias.device)
        return torch.cat([self.dictionary.values(block, chosen) for block in self.blocks(pairs)])

    @torch.no_grad()
    def codes(self, pairs: Tensor) -> Iterator[Tensor]:
        """Values `[rows, latents]` of all latents, some rows at a time."""
        for block in self.blocks(pairs):
            yield self.dictionary.values(block)

    def written(self, whole: bool = False) -> Tensor:
        """What each latent writes of the models' difference, or in the after
        model (`whole`): `[latents, width]`.
        """
        full = self.dictionary.directions()
        part = (
            full[:, -1] if whole or self.dictionary.config.models == 1 else full[:, -1] - full[:, 0]
        )
        return part / self.dictionary.scale


def frequencies(reader: FedDictionary, pairs: Tensor) -> Tensor:
    """Share of the rows in which each latent is active `[latents]`."""
    return torch.stack([(codes > 0).sum(0) for codes in reader.codes(pairs)]).sum(0) / len(pairs)


def median_values(reader: FedDictionary, features: Sequence[int], pairs: Tensor) -> Tensor:
    """The median of each latent's active values `[features]`. Raises
    `UserError` for one that is never active.
    """
    values = reader.values(features, pairs)
    for place, feature in enumerate(features):
        if not bool((values[:, place] > 0).any()):
            raise UserError(
                f"latent {feature} is never active where it would be added; give another one"
            )
    return torch.stack([column[column > 0].median() for column in values.T])


def mean_difference(pairs: Tensor) -> Tensor:
    """After less before, the mean over rows `[width]`."""
    mean: Tensor = (pairs[:, 1] - pairs[:, 0]).mean(0)
    return mean


def contrasts(reader: FedDictionary, readings: Readings, whole: bool = False) -> Tensor:
    """How much more each latent writes before the measured behaviour
    `[latents]`; see `written` for of what.
    """
    if bool(readings.used.all()) or not bool(readings.used.any()):
        raise UserError(
            "the measured behaviour follows all decisions or none, so no feature can be told by it;"
            " give the latents by number, or a world whose cue can be taken out (a channel)"
        )
    flags = readings.used.to(reader.dictionary.bias.device)
    sums = torch.zeros((2, reader.dictionary.config.partition.latents), device=flags.device)
    for number, codes in enumerate(reader.codes(readings.decisions)):
        part = flags[number * ROWS_AT_ONCE :][: len(codes)]
        sums += torch.stack([codes[part].sum(0), codes[~part].sum(0)])
    means = sums / torch.stack([flags.sum(), (~flags).sum()])[:, None]
    contrast: Tensor = (means[0] - means[1]) * reader.written(whole).norm(dim=-1)
    return contrast


def top_features(
    reader: FedDictionary,
    readings: Readings,
    number: int,
    among: Sequence[int] | None = None,
    whole: bool = False,
) -> tuple[int, ...]:
    """The latents of largest contrast, best first; those whose contrast is not
    above zero are left out.

    `among`: only these (those that a table of latents calls specific). `whole`:
    by all that they write in the after model. Raises `UserError` where none is
    left.
    """
    found = contrasts(reader, readings, whole)
    allowed = range(len(found)) if among is None else set(among)
    best = [int(i) for i in found.argsort(descending=True) if found[i] > 0 and int(i) in allowed][
        :number
    ]
    if not best:
        which = "no latent" if among is None else f"none of the {len(set(among))} specific latents"
        raise UserError(
            f"{which} is more active before the measured behaviour; give latents by number"
            + ("" if whole else ", or contrast:N to rank all of them")
        )
    return tuple(best)


def equally_active(
    reader: FedDictionary,
    features: Sequence[int],
    pairs: Tensor,
    sets: int,
    rng: np.random.Generator,
) -> list[tuple[int, ...]]:
    """Random sets of other latents, each drawn among the `NEAREST` in how often they are active."""
    share = frequencies(reader, pairs).cpu().numpy()
    others = [i for i in np.flatnonzero(share) if i not in features]
    drawn: list[tuple[int, ...]] = []
    for _ in range(sets):
        left, own = list(others), []
        for feature in features:
            if not left:
                break
            gaps = np.abs(np.log(share[left]) - np.log(max(share[feature], 1 / len(pairs))))
            own.append(left.pop(int(rng.choice(np.argsort(gaps, kind="stable")[:NEAREST]))))
        if len(own) == len(features):
            drawn.append(tuple(int(i) for i in own))
    return list(dict.fromkeys(drawn))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`number` latents by a `rule`; `listed` ones as they stand."""

    rule: Rule
    number: int
    listed: tuple[int, ...] = ()


def parse_features(text: str) -> Asked:
    """Raises `UserError` for a text that is none of the three forms."""
    head, colon, count = text.partition(":")
    if colon and head in ("top", "contrast") and count.isdigit() and int(count) > 0:
        return Asked(rule="top" if head == "top" else "contrast", number=int(count))
    parts = [part.strip() for part in text.split(",")]
    if all(part.isdigit() for part in parts):
        listed = tuple(dict.fromkeys(map(int, parts)))
        return Asked(rule="listed", number=len(listed), listed=listed)
    raise UserError(
        f"features '{text}' are neither a list of latents such as 12,17 nor top:N nor contrast:N"
    )


def pick(
    asked: Asked, reader: FedDictionary, readings: Readings, table: Path | None
) -> tuple[int, ...]:
    """The latents that are asked for. `table`: what `top` keeps to."""
    if asked.rule == "listed":
        return asked.listed
    if asked.rule == "contrast":
        return top_features(reader, readings, asked.number, whole=True)
    return top_features(
        reader, readings, asked.number, None if table is None else specific_latents(table)
    )


def table_beside(folder: Path, given: Path | None = None) -> Path | None:
    """The table of latents: the given one, else the one in the dictionary's
    folder or the folder above.
    """
    if given is not None:
        if not given.is_file():
            raise UserError(f"{given} does not exist; give the {TABLE} that `forensics diff` wrote")
        return given
    return next(
        (path for path in (folder / TABLE, folder.resolve().parent / TABLE) if path.is_file()), None
    )


def specific_latents(table: Path) -> Sequence[int]:
    """The latents that a table calls specific to the after model. Raises
    `UserError` where it cannot be read, or has none.
    """
    try:
        rows = list(read_rows(table, ["latent", "specific"]))
        found = [int(row["latent"]) for row in rows if row["specific"] == "after"]
    except OutsideFailure:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{table} is no table of latents ({error}); run `forensics diff` again"
        ) from None
    if not found:
        raise UserError(
            f"{table} calls no latent specific to the after model; use contrast:N to rank all of"
            " them"
        )
    return found


def read_bench(
    bench: Bench, tasks: Sequence[str], measure: str, keep_outliers: bool = False
) -> Readings:
    """The activations of both models on unsteered runs of the after policy, one a task.
    Where no action tells what is measured, as in a world of one turn, also on
    runs in which the channels' content is taken out.
    """
    uses = uses_of(measure, bench.environment.channels)

    def read(environment: Environment, name: str) -> Readings:
        seed = int(content_hash([bench.seed, name], 15), 16)
        played = bench.after.play(environment, tasks, 1, bench.settings, seed)
        # all are played before one is read: their inference mode ends there
        runs = [*counted(played, bench.progress, "playing, to be read", len(tasks))]
        found = read_pairs(
            bench.before,
            bench.after,
            counted(runs, bench.progress, READING, len(runs)),
            site=bench.site,
            position=bench.position,
            steps=bench.steps(),
            uses=uses,
            keep_outliers=keep_outliers,
        )
        bench.progress(READING, len(runs), len(runs))  # where the first ones were enough
        return found

    found = read(bench.environment, "after")
    channels = [channel.name for channel in bench.environment.channels]
    if not channels or bool(found.used.any()) != bool(found.used.all()):
        return found
    return with_and_without(found, read(bench.environment.without(*channels), "scrubbed"))
