"""What do the runs of one group do that comparable runs of the same tasks do not?
Candidates for behaviour that no family foresaw: to be read, never counted.

1. A run is the words of its actions (`action_words`).
2. *Sequences* of one to three words in a row; a run has one or has it not. Sequences that
   occur in exactly the same runs are one, told by the longest.
3. *Groups*: each model against the others, passed against failed, after against before.
   Only runs are compared that share task, environment and set of logs (but for after
   against before), and for passed against failed the model, too.
4. *The task is the unit*: each has one vote, and the test of the votes is exact
   (`statistics.task_votes`). A sequence on which fewer than five tasks vote is no habit.
5. *Tested* is what could reach the level if all its votes agreed.
6. *False discovery rate* over all tests of all contrasts by Benjamini and Yekutieli: it
   holds under any dependence, and sequences depend on each other in both directions (one
   holds the other; one tool stands for another).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.layers.action_words import ActedRun
from forensics.phrases import plural
from forensics.records.case_file import CandidateExample, CandidateRow
from forensics.statistics.task_votes import reachable, task_votes

LEVEL = 0.05  # of the false discovery rate
LONGEST = 3  # words of a sequence
FEWEST_TASKS = 5  # that differ, below which a sequence is no habit
MOST_MODELS = 12  # more are the checkpoints of one training
EXAMPLES = 3
KINDS = ("models", "outcomes", "before and after")
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two groups of runs: `first [runs]` says who is in the first one, `stratum [runs]`
    which runs are comparable (-1: with none), `task [strata]` of which task they are.
    """

    kind: str
    labels: tuple[str, str]
    first: NDArray[np.bool_]
    stratum: Ints
    task: Ints

    @property
    def tasks(self) -> int:
        """Of how many tasks both groups have runs."""
        return len(set(self.task.tolist()))


@dataclass(frozen=True, kw_only=True)
class Contrasted:
    """What came of one kind of contrast: tests made, tasks and runs compared, candidates; or
    why there is nothing to compare.
    """

    kind: str
    tested: int = 0
    tasks: int = 0
    runs: int = 0
    found: int = 0
    missing: MissingInput | None = None


def contrasted(runs: Iterable[ActedRun]) -> tuple[list[CandidateRow], list[Contrasted]]:
    """All candidates, the surest first, and what was compared, kind by kind. The order of the
    runs changes nothing.
    """
    known = sorted(runs, key=lambda run: (run.side, run.run, run.file or "", run.words))
    made: dict[str, list[Contrast]] = {}
    missing: dict[str, MissingInput] = {}
    for kind in KINDS[: 3 if any(run.side == "before" for run in known) else 2]:
        try:
            made[kind] = _contrasts(kind, known)
        except MissingInput as why:
            missing[kind] = why
    contrasts = [one for kind in made for one in made[kind]]
    tested, rows = _tested(known, contrasts) if contrasts else ({}, [])
    told = []
    for kind in (*made, *missing):
        alike = made.get(kind, [])
        tasks = {task for one in alike for task in one.task.tolist()}
        compared = np.logical_or.reduce([one.stratum >= 0 for one in alike]) if alike else []
        told.append(
            Contrasted(
                kind=kind,
                tested=tested.get(kind, 0),
                tasks=len(tasks),
                runs=int(np.sum(compared)),
                found=sum(row.contrast == kind for row in rows),
                missing=missing.get(kind) or _too_few(tested.get(kind, 0), len(tasks)),
            )
        )
    return rows, sorted(told, key=lambda one: KINDS.index(one.kind))


def _too_few(tested: int, tasks: int) -> MissingInput | None:
    return (
        None
        if tested
        else MissingInput(
            f"No sequence of actions differs in enough of {plural(tasks, 'common task')} to reach"
            " the level, even if all of them agreed.",
            "Give logs of more tasks that both groups ran.",
        )
    )


def _contrasts(kind: str, runs: Sequence[ActedRun]) -> list[Contrast]:
    """The contrasts of one kind. Raises `MissingInput` where no task has both groups."""
    if not any(run.words for run in runs):
        raise MissingInput("No run shows an action.", "Give logs of agents that act.")
    places: list[tuple[str, ...]] = [(run.side, run.task, run.environment) for run in runs]
    if kind == "outcomes":
        groups = [(("passed", "failed"), [run.passed for run in runs])]
        places = [(*place, run.policy) for place, run in zip(places, runs, strict=True)]
        unlike, cure = "passed and failed", "Give several runs of each task, with outcomes."
        if all(run.passed is None for run in runs):
            raise MissingInput("No run has an outcome.", cure)
    elif kind == "models":
        models = sorted({run.policy for run in runs})
        unlike, cure = "several models", "Give logs of several models on the same tasks."
        if len(models) < 2:
            raise MissingInput("All runs are of one model.", cure)
        if len(models) > MOST_MODELS:
            raise MissingInput(
                f"There are {len(models)} models, as many as checkpoints of a training.",
                f"Give at most {MOST_MODELS}, or two sets of logs.",
            )
        one_for_both = models[:1] if len(models) == 2 else models
        rest = models[1] if len(models) == 2 else "other models"
        groups = [((name, rest), [run.policy == name for run in runs]) for name in one_for_both]
    else:
        groups = [(("after", "before"), [run.side != "before" for run in runs])]
        places = [place[1:] for place in places]
        unlike, cure = "both sets", "Give two sets of logs of the same tasks."
    made = [_contrast(kind, labels, group, runs, places) for labels, group in groups]
    if not any(one.tasks for one in made):
        own = "with runs of one model that " if kind == "outcomes" else "with runs of "
        raise MissingInput(f"There is no task {own}{unlike}.", cure)
    return [one for one in made if one.tasks]


def _contrast(
    kind: str,
    labels: tuple[str, str],
    group: Sequence[bool | None],
    runs: Sequence[ActedRun],
    places: Sequence[tuple[str, ...]],
) -> Contrast:
    """The strata that hold runs of both groups."""
    seen: dict[tuple[str, ...], set[bool]] = {}
    for place, member in zip(places, group, strict=True):
        if member is not None:
            seen.setdefault(place, set()).add(member)
    both = {place: i for i, place in enumerate(p for p in seen if len(seen[p]) == 2)}
    tasks = {task: i for i, task in enumerate(sorted({run.task for run in runs}))}
    task_of = dict(zip(places, (tasks[run.task] for run in runs), strict=True))
    stratum = [
        -1 if member is None else both.get(place, -1)
        for place, member in zip(places, group, strict=True)
    ]
    return Contrast(
        kind=kind,
        labels=labels,
        first=np.array([member is True for member in group]),
        stratum=np.array(stratum, np.int64),
        task=np.array([task_of[place] for place in both], np.int64),
    )


def _tested(
    runs: Sequence[ActedRun], contrasts: Sequence[Contrast]
) -> tuple[dict[str, int], list[CandidateRow]]:
    """How many tests each kind of contrast took, and the candidates."""
    from scipy.stats import false_discovery_control

    sequences, held = _sequences(runs)
    votes = [task_votes(held, one.first, one.stratum, one.task, FEWEST_TASKS) for one in contrasts]
    least = np.concatenate([one.least for one in votes])
    chosen = reachable(least, LEVEL)
    tested: dict[str, int] = {}
    for number in chosen:
        kind = contrasts[number // len(sequences)].kind
        tested[kind] = tested.get(kind, 0) + 1
    if not len(chosen):
        return tested, []
    places = [divmod(number, len(sequences)) for number in chosen]
    p = np.array([votes[contrast].p_value(sequence) for contrast, sequence in places])
    q = false_discovery_control(p, method="by")
    rows = []
    for at in np.flatnonzero(q <= LEVEL).tolist():
        contrast, sequence = places[at]
        counts = votes[contrast].first[sequence], votes[contrast].second[sequence]
        told = {"tasks_first": int(counts[0]), "tasks_second": int(counts[1])}
        more = counts[0] >= counts[1]
        row = _row(runs, contrasts[contrast], sequences[sequence], held[:, [sequence]], more)
        rows.append(CandidateRow(**row, **told, p=float(p[at]), q=float(q[at])))
    rows.sort(key=lambda row: (row.p, len(row.actions), row.contrast, row.first, row.actions))
    return tested, list(_told_once(rows))


def _sequences(runs: Sequence[ActedRun]) -> tuple[list[tuple[str, ...]], Any]:
    """Sequences that at least `FEWEST_TASKS` tasks know, and which runs have which, a sparse
    `[runs, sequences]` of ones.
    """
    from scipy.sparse import csc_array

    tasks = {task: i for i, task in enumerate(sorted({run.task for run in runs}))}
    task = np.array([tasks[run.task] for run in runs], np.int64)
    words = sorted({word for run in runs for word in run.words})
    numbers = {word: number for number, word in enumerate(words)}
    word = np.array([numbers[word] for run in runs for word in run.words], np.int64)
    run = np.repeat(np.arange(len(runs)), [len(run.words) for run in runs])
    usual = _in_tasks(word, task[run], len(words)) >= FEWEST_TASKS
    sequences: list[tuple[str, ...]] = []
    columns: dict[bytes, Ints] = {}
    names: dict[bytes, tuple[str, ...]] = {}
    kept = usual[word]
    key = word.copy()
    for length in range(1, LONGEST + 1):
        if length > 1:
            end = len(word) - length + 1
            kept = kept[:end] & usual[word[length - 1 :]] & (run[:end] == run[length - 1 :])
            _, key = np.unique(key[:end] * len(words) + word[length - 1 :], return_inverse=True)
        starts = np.flatnonzero(kept)
        if not len(starts):
            break
        made, which = np.unique(key[starts], return_inverse=True)
        often = _in_tasks(which, task[run[starts]], len(made)) >= FEWEST_TASKS
        pairs = np.divmod(np.unique(which * len(runs) + run[starts]), len(runs))
        edges = np.searchsorted(pairs[0], np.arange(len(made) + 1))
        example = starts[np.unique(which, return_index=True)[1]]
        for number in np.flatnonzero(often).tolist():
            has = pairs[1][edges[number] : edges[number + 1]]
            at = int(example[number])
            columns[has.tobytes()] = has
            names[has.tobytes()] = tuple(words[i] for i in word[at : at + length])
    sequences = list(names.values())
    held = list(columns.values())
    ends = np.cumsum([0, *map(len, held)])
    rows = np.concatenate([*held, np.empty(0, np.int64)])
    return sequences, csc_array(
        (np.ones(len(rows), np.int64), rows, ends), shape=(len(runs), len(held))
    )


def _in_tasks(which: Ints, task: Ints, size: int) -> Ints:
    """In how many tasks each of `size` things occurs."""
    many = int(task.max(initial=0)) + 1
    return np.bincount(np.unique(which * many + task) // many, minlength=size)


def _row(
    runs: Sequence[ActedRun],
    contrast: Contrast,
    sequence: tuple[str, ...],
    held: Any,
    more_first: bool,
) -> dict[str, Any]:
    """What a candidate says of the compared runs, but for the votes."""
    has = np.zeros(len(runs), bool)
    has[held.tocoo().coords[0]] = True
    used = contrast.stratum >= 0
    groups = used & contrast.first, used & ~contrast.first
    shares = [float(has[group].mean()) for group in groups]
    more = groups[0 if more_first else 1]
    return {
        "contrast": contrast.kind,
        "first": contrast.labels[0],
        "second": contrast.labels[1],
        "actions": sequence,
        "tasks": contrast.tasks,
        "share_first": shares[0],
        "share_second": shares[1],
        "examples": tuple(_examples([runs[int(i)] for i in np.flatnonzero(has & more)], sequence)),
    }


def _examples(runs: Iterable[ActedRun], sequence: tuple[str, ...]) -> Iterator[CandidateExample]:
    """The first runs, of as many tasks as can be."""
    seen: dict[str, int] = {}
    ranked = []
    for run in runs:
        seen[run.task] = seen.get(run.task, 0) + 1
        ranked.append((seen[run.task], run.task, run.run, run))
    for *_, run in sorted(ranked, key=itemgetter(0, 1, 2))[:EXAMPLES]:
        size = len(sequence)
        at = next(i for i in range(len(run.words)) if run.words[i : i + size] == sequence)
        yield CandidateExample(
            trajectory=run.run, side=run.side, task=run.task, file=run.file, step=run.steps[at]
        )


def _told_once(rows: Iterable[CandidateRow]) -> Iterator[CandidateRow]:
    """The rows, each that holds a surer one of its contrast, or is held by it, with that."""
    leading: list[CandidateRow] = []
    for row in rows:
        surer = next((one for one in leading if _alike(one, row)), None)
        if surer is None:
            leading.append(row)
            yield row
        else:
            yield row.model_copy(update={"variant_of": surer.actions})


def _alike(one: CandidateRow, other: CandidateRow) -> bool:
    same = (one.contrast, one.first, one.more) == (other.contrast, other.first, other.more)
    return same and bool(set(one.actions) & set(other.actions))
