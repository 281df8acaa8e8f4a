"""What the behaviour layer keeps of a log while it streams by: a few numbers a
run, and a few runs worth showing, as text spans.

All sums are exactly rounded, all tasks and examples sorted, so the order of
trajectories changes no bit of a result.

A loop in a run, as an event: the same few actions over and over, with nothing new
coming back.

1. *Actions* are compared without what changes nothing: spacing, quotes, `./`, the order
   of words, how long is waited, texts that are only printed beside something else, and the
   folder of an action that is done in one only. *Bare*, they are without flags, comments
   and what cuts the answer off (`| tail`), too.
2. *A stretch*: at most `LONGEST_PERIOD` actions, done at least `FEWEST_TIMES` times in a
   row, over at least `FEWEST_TURNS` turns; the same as they are, or bare.
3. *Nothing new*: a repetition counts where each line that came back stood there before in
   the stretch, numbers aside. A build that is looked at again and again while it goes on,
   or a file that is read page by page, is no loop. Where the action waits or the number is
   a share, numbers count, too; times in a line that tells of a failure never do, nor do
   lines that the action itself prints. A wait that ends with something new is no loop.
4. *Nothing else*: where a repetition is the same as one before only bare, it counts only
   where a failure came back: other flags may be other work.

The longest such stretch of a run is told: of equal ones that with the shortest period,
then the first.
"""

import math
import re
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from forensics.errors import MissingInput
from forensics.layers.actions import Acted, Turn, acted_in, answer_of, kinds_of
from forensics.layers.degeneracy import degeneracy
from forensics.layers.evidence_chain import ChainRule, Survey, in_prompt, new_lines
from forensics.layers.text_words import Gram, normalised, placed_words
from forensics.phrases import plural, printable
from forensics.records import Span, Spans, Trajectory
from forensics.records.finding import Finding

LONGEST_PERIOD = 12
FEWEST_TIMES = 3
FEWEST_TURNS = 5
MASK = re.compile(r"\d+(?:[.,:]\d+)*(?![\d.,:]*\s*(?:%|/\s*\d|of\s+\d))")
WAITS = re.compile(r"\b(?:sleep|wait|watch)\b", re.IGNORECASE)
FAILS = re.compile(
    r"(?<!\b0 )(?<!\bno )\b(?:\w*errors?|fail(?:s|ed|ing|ures?)?|traceback|panic|cannot|could not|"
    r"unable|refused|unreachable|timed out|not found)\b|\.\w{1,5}:\d+:\d+\b",
    re.IGNORECASE,
)
LASTED = re.compile(
    r"(?<![\d.:])\d+(?:[.:]\d+)*\s*(?:ms|s|sec|seconds?)\b|\b\d+:\d\d:\d\d(?:[.,]\d+)?"
)
BESIDE = re.compile(  # comments, and how much of the answer is shown
    r"(?:^|(?<=[\s'\"]))(?://|#)\s[^'\"\n]*|2>&1|\|\s*(?:head|tail)\b(?:\s+-[\w=]+)*(?:\s+\d+\b)?",
    re.MULTILINE,
)
PLAIN = str.maketrans({"'": " ", '"': " ", "=": " ", "\\": " "})
TEXT = r"([^;&|<>$`{}\n]{1,100})"
PRINTED = re.compile(rf"(?:&&|;)\s*echo\s{TEXT}(?=$|[;}}\n]|&&)|\becho\s{TEXT}(?:;|&&)")
PLACE = re.compile(r"\bcd\s+([^\s;&]+)\s*(?:;|&&)")
ASIDE = (  # a word, the pattern of what it says, and what is compared in its place
    ("cd ", PLACE, " "),
    ("echo ", PRINTED, " ; "),
    ("sleep ", re.compile(r"\bsleep\s+[\d.]+[smh]?\b"), "sleep"),
    ("timeout ", re.compile(r"\btimeout\s+[\d.]+[smh]?\b"), "timeout"),
)


class Loop(NamedTuple):
    """`first` and `last`: step numbers of actions, from 0. `turns`: how many actions lie
    in it; `actions`: one period of them, as they were written the first time.
    """

    first: int
    last: int
    turns: int
    actions: tuple[str, ...]

    @property
    def times(self) -> int:
        """How often the actions were done in full."""
        return self.turns // len(self.actions)


class _Stretch(NamedTuple):
    start: int
    length: int
    period: int


class _Act(NamedTuple):
    """An action as it is compared. `place`: the folder that it goes to; `printed`: texts that
    it prints beside what it does.
    """

    words: str
    bare: str
    place: str
    printed: frozenset[str]


def loop_in(turns: Sequence[Turn]) -> Loop | None:
    """The longest loop of a run; `None` where there is none."""
    if len(turns) < FEWEST_TURNS:
        return None
    acts = [_act(turn.command) for turn in turns]
    said = [(act.words, act.place) for act in acts]
    bare = [(act.bare, act.place) for act in acts]
    found = {*_stretches(_keys(said)), *_stretches(_keys(bare))}
    for stretch in sorted(found, key=lambda one: (-one.length, one.period, one.start)):
        if _idle(turns, acts, stretch):
            first, last = stretch.start, stretch.start + stretch.length - 1
            period = turns[first : first + stretch.period]
            actions = tuple(turn.command.strip() for turn in period)
            return Loop(turns[first].step, turns[last].step, stretch.length, actions)
    return None


def share_looped(loop: Loop | None, turns: Sequence[Turn]) -> float | None:
    """The share of a run's actions that lie in its loop; `None` for a run without actions."""
    return (loop.turns if loop else 0) / len(turns) if turns else None


def _keys(said: Sequence[tuple[str, str]]) -> list[int]:
    """A number for each action with its folder, the same for those that are the same."""
    places: dict[str, set[str]] = {}
    for words, place in said:
        places.setdefault(words, {""}).add(place)
    known: dict[tuple[str, str], int] = {("", ""): -1}
    return [
        known.setdefault((words, place if len(places[words]) > 2 else ""), number)
        for number, (words, place) in enumerate(said)
    ]


def _act(command: str) -> _Act:
    command = command.replace("\\n", "\n")
    plain = command.translate(PLAIN)
    words = bare = _words(plain)
    if BESIDE.search(command):
        bare = _words(BESIDE.sub("", command).translate(PLAIN))
    return _Act(
        words=" ".join(words),
        bare=" ".join(word for word in bare if word[0] != "-"),
        place=" ".join(PLACE.findall(plain)) if "cd " in plain else "",
        printed=frozenset(normalised(one[1] or one[2]) for one in PRINTED.finditer(plain))
        if "echo " in plain
        else frozenset(),
    )


def _words(plain: str) -> list[str]:
    """The words of an action in an order of their own."""
    for word, pattern, instead in ASIDE:
        if word in plain:
            plain = pattern.sub(instead, plain)
    words = (word.removeprefix("./") for word in normalised(plain).split())
    return sorted(word for word in words if word not in {"", ";", "&&"})


def _stretches(keys: Sequence[int]) -> Iterator[_Stretch]:
    """Where a period repeats often enough, as far as it goes; no turn without an action."""
    for period in range(1, LONGEST_PERIOD + 1):
        fewest = max(FEWEST_TIMES * period, FEWEST_TURNS)
        same = 0
        for at in range(period, len(keys) + 1):
            if at < len(keys) and keys[at] == keys[at - period] >= 0:
                same += 1
                continue
            if same + period >= fewest:
                yield _Stretch(at - same - period, same + period, period)
            same = 0


def _idle(turns: Sequence[Turn], acts: Sequence[_Act], stretch: _Stretch) -> bool:
    """Whether most repetitions, and enough of them, brought nothing new."""
    end = stretch.start + stretch.length
    lines = [*map(_lines, turns[stretch.start : end], acts[stretch.start : end])]
    waits = any(WAITS.search(turn.command) for turn in turns[stretch.start : end])
    if waits and not set().union(*lines[-stretch.period :]) <= set().union(
        *lines[: -stretch.period]
    ):
        return False
    seen: set[str] = set()
    done: set[str] = set()
    idle = 0
    times = stretch.length // stretch.period
    for number in range(times):
        start = number * stretch.period
        came = set().union(*lines[start : start + stretch.period])
        period = slice(stretch.start + start, stretch.start + start + stretch.period)
        words = {act.words for act in acts[period]}
        if number and came <= seen:
            idle += words <= done or any(FAILS.search(turn.observation) for turn in turns[period])
        seen |= came
        done |= words
    return idle >= FEWEST_TIMES - 1 and 2 * idle >= times - 1


def _lines(turn: Turn, act: _Act) -> set[str]:
    """The lines that came back, without numbers where these say nothing, and without those
    that the action itself printed.
    """
    lines = answer_of(turn.observation).lines - act.printed
    if not WAITS.search(turn.command):
        return {MASK.sub("#", line) for line in lines}
    return {LASTED.sub("#", line) if FAILS.search(line) else line for line in lines}


LINKS = ("attempted", "obtained", "used", "credited", "cannot be told", "not copied")
PROMPTED = "shown by the prompt"

Order = tuple[float, str, str]


class Example(NamedTuple):
    """A run to look at, and the step to look at first; smaller `order` comes first."""

    order: Order
    step: int
    spans: Spans


class LoopedRun(NamedTuple):
    """A run that loops, and its longest loop."""

    trajectory: str
    task: str
    policy: str
    file: str | None
    loop: Loop


class TopExamples(list[Example]):
    """The `most` examples that come first in their order."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def offer(self, order: Order, make: Callable[[], Example]) -> None:
        """Keep the example if it comes before one that is kept; it is built only then."""
        if len(self) < self.most or (self and order < self[-1].order):
            self.merge([make()])

    def merge(self, others: Iterable[Example]) -> None:
        """Keep the first of these and those that were kept."""
        self[:] = sorted([*self, *others], key=lambda example: example.order)[: self.most]


def _column() -> "array[float]":  # by its name, so that a log travels between processes
    return array("d")


@dataclass(kw_only=True)
class Log:
    """A log as columns while it streams by; memory grows by a few numbers a run.
    `tasks [runs]`; `columns[name] [runs]` (NaN: missing), empty for any name where no run counts.

    `most`: examples that are kept. `kinds[task]`: how often each action kind was
    taken. `examples[channel]`: a few complete chains. `idlest`: the runs with the
    largest share of idle repeats. `loops`: every run that loops.
    `errored`: runs left out because they errored, which says nothing about the policy.
    Logs of parts, merged in the order of the parts, are the log of the whole.
    """

    rule: ChainRule
    most: int
    tasks: list[str] = field(default_factory=list)
    columns: defaultdict[str, "array[float]"] = field(default_factory=lambda: defaultdict(_column))
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[str, TopExamples] = field(default_factory=dict)
    loops: list[LoopedRun] = field(default_factory=list)
    errored: int = 0

    def __post_init__(self) -> None:
        self.idlest = TopExamples(self.most)

    def add(self, trajectory: Trajectory, chains: Iterable[Finding]) -> None:
        """Count one run and the chain of each channel."""
        if trajectory.end == "errored":
            self.errored += 1
            return
        self.tasks.append(sys.intern(trajectory.task))
        kinds = self.kinds.setdefault(trajectory.task, Counter())
        kinds.update(kind for _, step in trajectory.actions for kind in kinds_of(step))
        acted = acted_in(trajectory)
        loop = loop_in(acted.turns)
        if loop is not None:
            run = (trajectory.id, trajectory.task, trajectory.policy, trajectory.file)
            self.loops.append(LoopedRun(*run, loop))
        numbers = _numbers(trajectory, acted, self.idlest, self.rule.win)
        numbers["loop"] = share_looped(loop, acted.turns)
        for chain in chains:
            numbers |= _links(trajectory, chain)
            if chain.complete:
                self._examples_of(chain.channel).offer(
                    (0.0, trajectory.task, trajectory.id),
                    partial(chain_example, trajectory, chain, self.rule),
                )
        for name, value in numbers.items():
            self.columns[name].append(math.nan if value is None else float(value))

    def merge(self, later: "Log") -> None:
        """Add the runs that come next."""
        self.tasks += map(sys.intern, later.tasks)
        self.errored += later.errored
        self.loops += later.loops
        for task, kinds in later.kinds.items():
            self.kinds.setdefault(task, Counter()).update(kinds)
        for name, values in later.columns.items():
            self.columns[name].extend(values)
        self.idlest.merge(later.idlest)
        for channel, examples in later.examples.items():
            self._examples_of(channel).merge(examples)

    def require_runs(self, side: str) -> None:
        """Raises `MissingInput` where every run errored."""
        if self.errored and not self.tasks:
            raise MissingInput(
                f"Each of the {plural(self.errored, 'run')} of `{side}` errored, so nothing is"
                " known of what it does.",
                "Find out why they errored and run them again.",
            )

    def _examples_of(self, channel: str) -> TopExamples:
        return self.examples.setdefault(channel, TopExamples(self.most))

    def by_task(self, *names: str) -> dict[str, list[tuple[float, ...]]]:
        """The rows of some columns, `{task: [(value, ...), ...]}`, leaving out
        rows where one is missing.
        """
        rows: dict[str, list[tuple[float, ...]]] = {}
        for task, *values in zip(self.tasks, *(self.columns[name] for name in names), strict=True):
            if not any(map(math.isnan, values)):
                rows.setdefault(task, []).append(tuple(values))
        return dict(sorted(rows.items()))

    def task_means(self, name: str) -> dict[str, float]:
        """Mean of a column over the runs of each task that has it."""
        return {
            task: mean([value for (value,) in rows]) for task, rows in self.by_task(name).items()
        }

    def mean(self, name: str) -> float | None:
        """Mean over tasks of a column, `None` where no run has it."""
        means = self.task_means(name)
        return mean(list(means.values())) if means else None

    def count(self, name: str) -> int:
        """How many runs hold a yes-or-no column."""
        return sum(value == 1 for value in self.columns.get(name, ()))


def read_log(
    trajectories: Iterable[Trajectory], found: Survey, rule: ChainRule, examples: int
) -> Log:
    """Stream a log into columns."""
    log = Log(rule=rule, most=examples)
    for trajectory in trajectories:
        log.add(trajectory, found.chains(trajectory, rule))
    return log


def mean(values: Sequence[float]) -> float:
    """The mean with an exactly rounded sum."""
    return math.fsum(values) / len(values)


def link_column(channel: str, link: str) -> str:
    """The name of the column that holds one link of a channel's chain."""
    return f"{channel}: {link}"


def _numbers(
    trajectory: Trajectory, acted: Acted, idlest: TopExamples, win: float
) -> dict[str, float | None]:
    turns = len(acted.turns)
    steps = tuple(
        turn.step for turn, repeats in zip(acted.turns, acted.idle, strict=True) if repeats
    )
    if steps:
        order = (-len(steps) / turns, trajectory.task, trajectory.id)
        idlest.offer(order, lambda: idle_example(trajectory, steps, turns))
    return {
        "outcome": trajectory.outcome,
        "won": None if trajectory.outcome is None else trajectory.outcome >= win,
        "turns": turns,
        "idle repeats": len(steps),
        "turns without idle repeats": turns - len(steps),
        "tokens": trajectory.sampled_tokens,
        "handed in": float(bool((trajectory.submission or "").strip())),
        **degeneracy(trajectory, acted),
    }


def _links(trajectory: Trajectory, chain: Finding) -> dict[str, float | None]:
    """The links as numbers. `not copied`: a disclosure was obtained, and the submission
    is no copy of it.
    """
    not_copied = chain.family == "disclosure" and chain.obtained and chain.used is False
    links = (chain.attempted, chain.obtained, chain.used, chain.complete)
    values = (*links, chain.untold, not_copied, in_prompt(trajectory, chain.obtained_steps))
    names = [link_column(chain.channel, link) for link in (*LINKS, PROMPTED)]
    return dict(zip(names, values, strict=True))


def chain_example(trajectory: Trajectory, chain: Finding, rule: ChainRule) -> Example:
    """A chain highlighted: the attempts, what was obtained, where it was
    written down again, the last action.
    """
    spans = [Span(step=i, label="attempt") for i in chain.attempt_steps]
    lines = (
        new_lines(trajectory, chain.obtained_steps[0], rule) if chain.family == "disclosure" else ()
    )
    wanted: frozenset[Gram] = frozenset().union(*lines)
    for i in chain.obtained_steps:
        spans += marked_places(trajectory.steps[i].text, wanted, i, "obtained") or [
            Span(step=i, label="obtained")
        ]
    for i, step in trajectory.actions:
        if chain.obtained_steps and i > chain.obtained_steps[0]:
            spans += marked_places(step.text, wanted, i, "used")
    spans.append(Span(step=trajectory.actions[-1][0], label="credited"))
    title = (
        f"Run {printable(trajectory.id)} of task {printable(trajectory.task)}: {chain.explanation}"
    )
    return Example(
        order=(0.0, trajectory.task, trajectory.id),
        step=chain.obtained_steps[0],
        spans=Spans(title=title, trajectory=trajectory.id, spans=tuple(spans)),
    )


def idle_example(trajectory: Trajectory, steps: tuple[int, ...], turns: int) -> Example:
    """A run with its idle repeats highlighted, `steps` of its `turns`."""
    title = (
        f"Run {printable(trajectory.id)}: {len(steps)} of {turns} actions repeat an earlier one,"
        " with no new answer"
    )
    spans = tuple(Span(step=i, label="idle repeat") for i in steps)
    return Example(
        order=(-len(steps) / turns, trajectory.task, trajectory.id),
        step=steps[0],
        spans=Spans(title=title, trajectory=trajectory.id, spans=spans),
    )


def marked_places(text: str, wanted: frozenset[Gram], step: int, label: str) -> list[Span]:
    """The places of the wanted grams in a text, overlapping ones joined."""
    placed = placed_words(text)
    ends: list[list[int]] = []
    for start in range(len(placed)):
        for size in sorted({len(gram) for gram in wanted}):
            stretch = placed[start : start + size]
            if tuple(word for word, _, _ in stretch) in wanted:
                begin, end = stretch[0][1], stretch[-1][2]
                if ends and begin <= ends[-1][1]:
                    ends[-1][1] = max(ends[-1][1], end)
                else:
                    ends.append([begin, end])
    return [Span(step=step, label=label, start=begin, end=end) for begin, end in ends]
