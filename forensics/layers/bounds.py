r"""The gain from logs alone: what a run in a scrubbed world would have shown, as
bounds.

1. Each run is a score with two marks: a shortcut was *attempted* in it, and its
   win is *credited* to one (every link of the chain of evidence holds). Runs
   that errored or have no score are left out and counted; an interval reaches as far as they
   could move it (`decomposition`).
2. Per task and side five means: the score, the score with credited wins counted
   as losses (*inner*), with all attempted wins counted as losses (*outer*),
   with each credited win given the before policy's score on its other runs of
   the same task (*assumed*; where it has none, its score on the other runs of
   all tasks), and with each given its own policy's score on those (*rival*:
   skill that the after policy gained counts for its credited wins too).
3. `G` is the gain. If scrubbing only turns such wins into losses, the genuine
   part lies in `[clean after - before, after - clean before]` and the phantom
   part `P = G - G0` in `[clean before - before, after - clean after]`. An
   interval here reaches from the lower end of the lower bound's interval to the
   upper end of the upper bound's.
4. All are contrasts of one table `[seeds, cells, tasks]`, paired by task and
   crossed with training seeds, so they add up. Control: the same contrasts
   between two halves of the before policy's own runs.

Ours. Trap that this avoids: the credited share is not the phantom share, since
a credited win might have been won anyway; the assumption of step 2 is always
named as one.

The sentences of the score section: the tables of `score_words.toml`.

The shape of one run, as a pair of logs is split by it: a few numbers that are
kept while transcripts stream by (`layers.pair_split`).

1. Whether the run was cut off, and whether its log says how it ended at all.
2. In which of the known forms the last answer gives its result, and which of
   them the prompt asks for. The forms are the usual ones of single answers:
   `\boxed{}`, `<answer>` tags, a last line `####`, a line `Answer:`. What the
   form holds is not looked at.
3. The reward that is named after the format, where the log has one.
4. How many characters the policy wrote, arguments of its calls included, and in
   how many turns.

Only the beginning and the end of a long text are searched for lines, so that a
text costs no more than one pass.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile
from math import fsum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.layers.decomposition import GENUINE_BAR, PHANTOM_BAR, add, reach_of_lost
from forensics.phrases import percent, plural, point_range, points
from forensics.records import Control, Evidence, Interval, Provenance, Trajectory
from forensics.records.evidence import Scalar
from forensics.statistics import Contrast, paired

WORDS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (files(__package__) / "score_words.toml").read_text(encoding="utf-8")
)
ENDS = 20_000  # characters at either end of a text that are looked at line by line
LAST_LINES = 5  # a result stands at the end of an answer
BOXED, TAGS, HASHES, SAID = (1 << bit for bit in range(4))
FORMS = {BOXED: "\\boxed{}", TAGS: "<answer> tags", HASHES: "####", SAID: "Answer:"}
SAID_SO = ("answer:", "final answer:", "the answer is", "the final answer is")
ASKED_HASHES = re.compile(r"#### ?[\d<{\[$-]|[^\s#] ?####(?!#)")  # no heading of a text
ASKED_SAID = re.compile(r"answer:\s{0,2}(?:[$<\[{(]|x\b|your\b|the\b)", re.IGNORECASE)


class RunShape(NamedTuple):
    """What is kept of a run. `forms`, `asked`: bits of `FORMS`. `format`: the
    reward of that name. `end_told`: the log says how the run ended.
    """

    finished: bool = True
    end_told: bool = False
    forms: int = 0
    asked: int = 0
    format: float | None = None
    characters: int = 0
    turns: int = 0


NO_SHAPE = RunShape()
Floats = NDArray[np.float64]
Weights = Mapping[str, float]
MEANS = ("score", "inner", "outer", "assumed", "rival", "cautious", "cautious rival")
CELLS = tuple(f"{side} {what}" for side in ("before", "after") for what in MEANS)


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """One run as the bounds see it: `outcome` in [0, 1]; `attempted`,
    `credited`: to any shortcut; `untold`: whether it is credited cannot be told. `flagged`: the
    channels that were used or credited. `shape`: what `pair_split` asks of it.
    """

    id: str
    task: str
    outcome: float
    attempted: bool = False
    credited: bool = False
    untold: bool = False
    flagged: tuple[str, ...] = ()
    shape: RunShape = NO_SHAPE


@dataclass(frozen=True, kw_only=True)
class ScoredSide:
    """The runs of one side by task, and how many were left out because they
    errored or have no score.
    """

    runs: Mapping[str, Sequence[ScoredRun]]
    dropped: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.runs.values()))

    @property
    def lost(self) -> float:
        """The share of runs that were left out (0 without runs)."""
        return self.dropped / max(self.dropped + self.count, 1)


class Contrasts(NamedTuple):
    """A question's `estimate` and the contrasts that bound it (equal to it
    where nothing is unknown but chance).
    """

    estimate: Weights
    low: Weights
    high: Weights


def scored_side(runs: Iterable[ScoredRun], dropped: int = 0) -> ScoredSide:
    """Group runs by task, in an order that depends on their ids alone. Raises
    `MissingInput` for a foreign scale.
    """
    by_task: dict[str, list[ScoredRun]] = {}
    for run in sorted(runs, key=lambda run: (run.task, run.id)):
        if not 0 <= run.outcome <= 1:
            raise MissingInput(
                f"A score of {run.outcome:g} lies outside 0 to 1, where the decision's margins mean"
                " nothing.",
                "Rescale the outcome to 0 to 1.",
            )
        by_task.setdefault(run.task, []).append(run)
    return ScoredSide(runs=by_task, dropped=dropped)


def questions() -> dict[str, Contrasts]:
    """Every question about the gain with its contrasts over `CELLS`."""
    gain = {"after score": 1.0, "before score": -1.0}
    exact: dict[str, Weights] = {
        "score.before": {"before score": 1.0},
        "score.after": {"after score": 1.0},
        "gain.total": gain,
    }
    asked = {question: Contrasts(*[weights] * 3) for question, weights in exact.items()}
    for kind, careful in (("assumed", "cautious"), ("rival", "cautious rival")):
        least: Weights = {f"after {careful}": 1.0, f"before {kind}": -1.0}
        told: Weights = {f"after {kind}": 1.0, f"before {kind}": -1.0}
        most: Weights = {f"after {kind}": 1.0, f"before {careful}": -1.0}
        asked[f"gain.genuine_{kind}"] = Contrasts(estimate=least, low=least, high=most)
        asked[f"gain.phantom_{kind}"] = Contrasts(
            *(add((1.0, gain), (-1.0, weights)) for weights in (told, most, least))
        )
    genuine, phantom = (asked[f"gain.{part}_assumed"].estimate for part in ("genuine", "phantom"))
    for name, what in (("", "outer"), ("_inner", "inner")):
        asked[f"gain.genuine{name}"] = Contrasts(
            estimate=genuine,
            low={f"after {what}": 1.0, "before score": -1.0},
            high={"after score": 1.0, f"before {what}": -1.0},
        )
        asked[f"gain.phantom{name}"] = Contrasts(
            estimate=phantom,
            low={f"before {what}": 1.0, "before score": -1.0},
            high={"after score": 1.0, f"after {what}": -1.0},
        )
    for name, share in (("over", PHANTOM_BAR), ("under", GENUINE_BAR)):
        for suffix in ("", "_assumed", "_rival"):
            parts = asked[f"gain.phantom{suffix}"]
            asked[f"gain.phantom_{name}_bar{suffix}"] = Contrasts(
                *(add((1.0, weights), (-share, gain)) for weights in parts)
            )
    return asked


def too_few_shared(before: ScoredSide, afters: Sequence[ScoredSide], shared: int) -> MissingInput:
    """Why two sets have no gain that could be computed; `shared`: scored tasks of both."""
    cure = (
        "Give logs of the same benchmark, with scores, for both sides: tasks are matched by their"
        " ids, or by their prompts where they have none."
    )
    empty = [
        when
        for when, sides in (("before", (before,)), ("after", afters))
        if not all(side.runs for side in sides)
    ]
    if empty:
        sets = " or ".join(empty)
        return MissingInput(
            f"No run {sets} training has a score, so there is no gain to compute.", cure
        )
    if not shared:
        scored = "scored " if any(side.dropped for side in (before, *afters)) else ""
        told = f"The two sets share no {scored}task, so there is no gain to compute."
        return MissingInput(told, cure)
    told = f"The two sets have {plural(shared, 'scored task')} in common, which gives no spread."
    return MissingInput(told, cure)


def bound_answers(
    before: ScoredSide, afters: Sequence[ScoredSide], provenance: Provenance, level: float = 0.95
) -> Iterator[Evidence]:
    """Every answer on the gain, bounded. Raises `MissingInput` with fewer than
    two tasks on all sides.
    """
    sides = (before, *afters)
    tasks = sorted(set.intersection(*(set(side.runs) for side in sides))) if afters else []
    if len(tasks) < 2:
        raise too_few_shared(before, afters, len(tasks))
    table = cell_table(before, afters, tasks)
    control = control_table(before)
    lost = before.lost, fsum(after.lost for after in afters) / len(afters)
    details: dict[str, Scalar] = {
        "basis": "logs alone",
        "seeds": len(afters),
        "training_noise_measured": len(afters) > 1,
        "tasks_dropped": len(set().union(*(side.runs for side in sides))) - len(tasks),
        "runs_dropped": sum(side.dropped for side in sides),
        "assumption": WORDS["bounds"]["assumption"],
        "wins_untold": sum(
            run.untold and run.outcome >= 0.5
            for side in afters
            for t in tasks
            for run in side.runs[t]
        ),
    }
    shares = {"lost_before": before.lost, "lost_after": max(after.lost for after in afters)}
    details |= {name: share for name, share in shares.items() if share}
    method = "bounds from logs, paired contrast over tasks"
    make = AnswerMaker(layer="score", method=method, provenance=provenance)
    for question, contrasts in questions().items():
        is_score = question.startswith("score.")
        middle, interval = _bounded(table, contrasts, level, lost)
        null = None
        if control is not None and not is_score:
            halves, ends = _bounded(control, contrasts, level)
            name = "A/A: the same between two halves of the before policy's own runs"
            null = Control(name=name, estimate=halves.estimate, interval=ends)
        yield make.evidence(
            question,
            middle,
            interval=interval,
            n=sum(side.count for side in sides),
            unit="score" if is_score else "score difference",
            control=null,
            diagnostics=details
            | {
                "seed_deviation": middle.seed_deviation,
                "half_width_tasks": middle.half_width_tasks,
            },
            summary=_sentence(question, middle.estimate, interval, len(tasks)),
        )


def cell_table(before: ScoredSide, afters: Sequence[ScoredSide], tasks: Sequence[str]) -> Floats:
    """`[seeds, cells, tasks]`, cells in the order of `CELLS`."""
    rates = clean_rates(before, tasks) or dict.fromkeys(tasks, 0.0)  # never won but by a shortcut
    first = side_cells(before, tasks, rates)
    return np.array([np.concatenate([first, side_cells(after, tasks, rates)]) for after in afters])


def side_cells(side: ScoredSide, tasks: Sequence[str], rates: Mapping[str, float]) -> Floats:
    """`MEANS` over the runs of each task `[cells of a side, tasks]`; `rates`:
    what the assumption gives a credited win.
    """
    own = clean_rates(side, tasks) or rates
    cells = []
    for task in tasks:
        values = (
            (
                run.outcome,
                run.outcome * (not run.credited),
                run.outcome * (not (run.attempted or run.credited)),
                min(run.outcome, rates[task]) if run.credited else run.outcome,
                min(run.outcome, own[task]) if run.credited else run.outcome,
                min(run.outcome, rates[task]) if run.credited or run.untold else run.outcome,
                min(run.outcome, own[task]) if run.credited or run.untold else run.outcome,
            )
            for run in side.runs[task]
        )
        cells.append([fsum(mean) / len(side.runs[task]) for mean in zip(*values, strict=True)])
    return np.array(cells).T


def clean_rates(side: ScoredSide, tasks: Sequence[str]) -> dict[str, float]:
    """A policy's mean score on the runs that no shortcut won, by task; empty
    where a shortcut won every run.
    """
    clean = {task: [run.outcome for run in side.runs[task] if not run.credited] for task in tasks}
    everything = [outcome for outcomes in clean.values() for outcome in outcomes]
    if not everything:
        return {}
    fallback = fsum(everything) / len(everything)
    return {
        task: fsum(outcomes) / len(outcomes) if outcomes else fallback
        for task, outcomes in clean.items()
    }


def control_table(before: ScoredSide) -> Floats | None:
    """The table of two halves of the before policy's runs; `None` where fewer
    than two tasks have two runs.
    """
    own = halves_of(before, before.runs)
    return None if own is None else cell_table(own[0], [own[1]], list(own[0].runs))


def halves_of(side: ScoredSide, tasks: Iterable[str]) -> tuple[ScoredSide, ScoredSide] | None:
    """A policy's runs against themselves, on those of the tasks that have two runs; `None`
    where fewer than two have.
    """
    both = [task for task in tasks if len(side.runs[task]) > 1]
    if len(both) < 2:
        return None
    first, second = (
        ScoredSide(runs={task: side.runs[task][part::2] for task in both}) for part in (0, 1)
    )
    return first, second


def _bounded(
    table: Floats, contrasts: Contrasts, level: float, lost: tuple[float, float] = (0.0, 0.0)
) -> tuple[Contrast, Interval]:
    """`lost`: the share of runs without a score, before and after."""
    vectors = [np.array([weights.get(cell, 0.0) for cell in CELLS]) for weights in contrasts]
    middle, low, high = (paired(table, vector, level=level) for vector in vectors)
    means, shares = table.mean(axis=(0, 2)), np.repeat(lost, len(MEANS))
    below = reach_of_lost(vectors[1], means, shares)[0]
    above = reach_of_lost(vectors[2], means, shares)[1]
    floor, ceiling = vectors[1].clip(max=0).sum(), vectors[2].clip(min=0).sum()
    ends = min(low.low, middle.estimate), max(high.high, middle.estimate)
    return middle, Interval(
        low=max(ends[0] - below, min(ends[0], float(floor))),
        high=min(ends[1] + above, max(ends[1], float(ceiling))),
        level=level,
    )


def _sentence(question: str, estimate: float, interval: Interval, tasks: int) -> str:
    words, level = WORDS["bounds"][question], f"{100 * interval.level:g} %"
    over = f"over {plural(tasks, 'task')}"
    if question.startswith("score."):
        ends = f"{percent(interval.low)} to {percent(interval.high)}"
        return f"{words} {percent(estimate)} ({level} interval {ends}) {over}."
    ends = point_range(interval.low, interval.high, 1)
    if question.endswith(("_assumed", "_rival")) or question == "gain.total":
        return f"{words} {points(estimate, 1)} points ({level} interval {ends}) {over}."
    return f"{words} from {ends} points (bounds with their {level} intervals) {over}."


def shape_of(trajectory: Trajectory) -> RunShape:
    """The shape of a run."""
    acted = [step for step in trajectory.steps if step.role == "assistant"]
    asked = takewhile(lambda step: step.role != "assistant", trajectory.steps)
    return RunShape(
        finished=trajectory.end != "truncated",
        end_told=trajectory.end_reason is not None,
        forms=forms_in(acted[-1].text) if acted else 0,
        asked=_asked(step.text for step in asked),
        format=_format_reward(trajectory),
        characters=sum(
            len(step.text) + sum(len(call.arguments) for call in step.tool_calls) for step in acted
        ),
        turns=len(acted),
    )


def forms_in(answer: str) -> int:
    """In which forms an answer gives its result."""
    lines = [line.strip() for line in answer[-ENDS:].splitlines() if line.strip()][-LAST_LINES:]
    found = BOXED if _closed(answer, "\\boxed{", "}") else 0
    found |= TAGS if _closed(answer, "<answer>", "</answer>") else 0
    found |= HASHES if lines and lines[-1].startswith("####") and lines[-1].strip("# ") else 0
    return found | (SAID if any(map(_says, lines)) else 0)


def _closed(text: str, opened: str, closed: str) -> bool:
    at = text.rfind(opened)
    return at >= 0 and text.find(closed, at + len(opened)) >= 0


def _says(line: str) -> bool:
    words = line.replace("*", "").replace("_", " ").strip("#>- ").lower()
    return any(words.startswith(so) and words[len(so) :].strip(": .") for so in SAID_SO)


def _asked(prompts: Iterable[str]) -> int:
    """The forms that a prompt asks for. A prompt that ends in `Answer:` asks for none."""
    found = 0
    for text in prompts:
        near = text if len(text) <= 2 * ENDS else f"{text[:ENDS]}\n{text[-ENDS:]}"
        found |= BOXED if "\\boxed" in near else 0
        found |= TAGS if "<answer>" in near else 0
        found |= HASHES if "####" in near and ASKED_HASHES.search(near) else 0
        found |= SAID if "answer:" in near.lower() and ASKED_SAID.search(near) else 0
    return found


def _format_reward(trajectory: Trajectory) -> float | None:
    """The reward called `format`, else the first one by name that has the word in it."""
    named = sorted(name for name in trajectory.rewards if "format" in name.lower())
    if not named:
        return None
    return trajectory.rewards["format" if "format" in named else named[0]]
