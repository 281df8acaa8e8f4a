"""Runs with kinds of action refused, in the world that is scrubbed of every
declared channel.

1. Which runs used which kinds is read off the case's own runs. Where neither
   the environment nor the log names kinds, they are the heads of the commands:
   what acts in an action is its tool calls, its fenced blocks, or its text
   without thoughts; how it is split into commands, and what the head of one is,
   is told by `forensics.actions`. What does not begin with a name is `other`.
2. A kind that serves many objects is split where `KIND OBJECT` is asked for
   (refused, or allowed): the object of a command is the first word behind its
   head that is no option. Where kinds are named, the n-th has the n-th command,
   if there are as many. A tool call in the text (`calls_in_text`) is a command whose
   head is the tool, and whose object the first word of its path or first argument;
   one of a shell is the commands of its line.
3. Refused runs are played on all of the case's tasks, or on a stated number of
   them, evenly spread.
4. Every policy plays all of its constraints before the next is loaded.
5. To which objects of a kind did the policy after training turn (`recurring`)? An
   object that a share of the runs more act on recurs by that; a file that one
   task alone has does not. A kind with one object is not split.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from forensics.actions import (
    argument_object,
    calls_in_text,
    command_head,
    command_line,
    command_spans,
)
from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.layers import (
    COLUMNS,
    ChainRule,
    Gram,
    Runs,
    Use,
    World,
    command_of,
    digest,
    grams,
    keep_donor,
    kinds_of,
    read_runs,
    runs_from,
    use_of,
    words,
)
from forensics.phrases import printable
from forensics.protocols import Constraint
from forensics.records import Step, Trajectory
from forensics.runs import Condition
from forensics.statistics import Estimate, share_by_task

OTHER = "other"
_TOOL = re.compile(r"[\w.:/-]{1,80}")
_OBJECT = re.compile(r"(?!-)[\w./~@:+-]*\w[\w./~@:+-]*")


def action_kinds(text: str, named: Sequence[str], split: Collection[str] = ()) -> tuple[str, ...]:
    """The kinds that an environment or a log names, else the heads of the
    commands in the text; by their object too where that is in `split`.
    """
    kinds = tuple(named)
    if not named:  # the head of every command, in order
        kinds = tuple(kind for acts in _acts(acting_text(text)) for kind, _ in acts)
    if not any(name.startswith(f"{kind} ") for name in split for kind in kinds):
        return kinds
    about = (f"{kind} {one}" for kind, one in kinds_and_objects(acting_text(text), kinds))
    return tuple(name if name in split else kind for kind, name in zip(kinds, about, strict=True))


def acting_text(text: str) -> str:
    """What acts in an action."""
    return command_of(Step(role="assistant", text=text))


def kinds_and_objects(text: str, kinds: Sequence[str]) -> list[tuple[str, str | None]]:
    """Each kind with the object of its command (or tool call) in what acts in a text."""
    acts = _acts(text)
    every = [about for of_call in acts for _, about in of_call]
    single = [of_call[0][1] if len(of_call) == 1 else None for of_call in acts]
    found = next((one for one in (every, single) if len(one) == len(kinds)), [None] * len(kinds))
    return list(zip(kinds, found, strict=True))


def object_of(command: str) -> str | None:
    """What a command is about: the first word behind its head that is no option."""
    head = (command_head(command) or "").rpartition(" ")[2]
    words = [word.strip("'\"") for word in command.split()]
    at = next((i for i, word in enumerate(words) if word.rpartition("/")[2] == head), 0)
    return _first_word(words[at + 1 :])


def _first_word(words: Iterable[str]) -> str | None:
    return next((word for word in words if _OBJECT.fullmatch(word)), None)


Act = tuple[str, str | None]  # a kind and its object


def _acts(text: str) -> list[list[Act]]:
    """Command by command, or tool call by tool call, what acts in a text."""
    if calls := calls_in_text(text):
        return [_acts_of_call(call.name, call.arguments) for call in calls]
    return [[_act(command)] for command in _commands(text)]


def _acts_of_call(name: str, arguments: Mapping[str, Any]) -> list[Act]:
    line = command_line(name, arguments)
    if line is not None:
        return [_act(command) for command in _commands(line)]
    words = (argument_object(arguments) or "").split()
    return [(name if _TOOL.fullmatch(name) else OTHER, _first_word(words))]


def _act(command: str) -> Act:
    return command_head(command) or OTHER, object_of(command)


def _commands(text: str) -> list[str]:
    return [text[start:end] for start, end in command_spans(text, shell=True)]


Kinds = tuple[str, ...]  # refused together, sorted
STEP = "steps.list.element."
READ = (*COLUMNS, f"{STEP}text", f"{STEP}kinds", f"{STEP}tool_calls")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One policy in one world: its scores by task, and of all runs the share
    that used each kind.

    `scored`: task, score and kinds of every run with a score. `missing`: share
    of the runs that ended because every draw was refused, or else without a
    score.
    """

    runs: Runs
    usage: Mapping[str, float]
    scored: tuple[tuple[str, float, frozenset[str]], ...]
    missing: float

    def where_used(self, kinds: Kinds, score: float) -> Runs:
        """The runs as if each that used one of these kinds had had this score."""
        wanted = frozenset(kinds)
        values = sorted((task, score if wanted & used else own) for task, own, used in self.scored)
        table = np.array([(value, 0.0) for _, value in values], dtype=float).reshape(-1, 2)
        return runs_from([task for task, _ in values], table, self.runs.dropped)


@dataclass(frozen=True, kw_only=True)
class Played:
    """Both sides with some kinds refused (none: `()`)."""

    before: Side
    afters: tuple[Side, ...]

    @classmethod
    def of(cls, sides: Iterable[Side]) -> "Played":
        """The first before training, the others after."""
        before, *afters = sides
        return cls(before=before, afters=tuple(afters))

    @property
    def pair(self) -> tuple[Runs, tuple[Runs, ...]]:
        return self.before.runs, tuple(side.runs for side in self.afters)

    def pair_at_worst(self, kinds: Kinds) -> tuple[Runs, tuple[Runs, ...]]:
        """The pair as if each run that used one of these kinds had gone against a gain."""
        return self.before.where_used(kinds, 1.0), tuple(
            side.where_used(kinds, 0.0) for side in self.afters
        )

    @property
    def missing(self) -> float:
        """The largest share of runs without a score among the sides."""
        return max(side.missing for side in (self.before, *self.afters))

    @property
    def missing_in_all(self) -> float:
        """The share before training and the largest after it, together: what
        could count against a gain at worst.
        """
        return self.before.missing + max(side.missing for side in self.afters)

    def after_usage(self, kind: str) -> float:
        """Share of the runs after training that use a kind, the mean over training seeds."""
        return sum(side.usage.get(kind, 0.0) for side in self.afters) / len(self.afters)

    @property
    def kinds(self) -> Kinds:
        """Every kind that a run of either side used."""
        return tuple(sorted({*self.before.usage, *self.after_kinds}))

    @property
    def after_kinds(self) -> Kinds:
        return tuple(sorted({kind for side in self.afters for kind in side.usage}))


def chosen_tasks(tasks: Sequence[str], most: int) -> tuple[str, ...]:
    """At most so many tasks, evenly spread."""
    if len(tasks) <= most:
        return tuple(tasks)
    return tuple(tasks[number * len(tasks) // most] for number in range(most))


def refusal(kinds: Kinds, max_redraws: int, spared: Kinds = ()) -> Constraint:
    """The constraint that refuses every action with one of these kinds in it,
    but for `spared` objects of them.
    """
    refused, split = frozenset(kinds), frozenset((*kinds, *spared))
    but = [name for name in spared if any(name.startswith(f"{kind} ") for kind in kinds)]
    names = [
        "+".join(kind.replace("+", "++") for kind in sorted(names))
        for names in (kinds, but)
        if names
    ]
    return Constraint(
        name=f"refuse:{' but:'.join(names)} redraws:{max_redraws}",
        max_redraws=max_redraws,
        said=f"no {' or '.join(map(printable, kinds))}",
        allows=lambda text, named: refused.isdisjoint(action_kinds(text, named, split)),
    )


def read_side(
    log: Rollouts, tasks: Iterable[str] | None = None, split: Collection[str] = ()
) -> Side:
    """One side's runs, or those of some tasks. `split`: `KIND OBJECT` that are
    told by themselves.
    """
    wanted = None if tasks is None else frozenset(tasks)
    rows = [row for row in log.rows(*READ) if wanted is None or row["task"] in wanted]
    return side_of(rows, split)


def side_of(rows: Sequence[Mapping[str, Any]], split: Collection[str] = ()) -> Side:
    """One side's runs from plain rows (`READ`)."""
    kinds = [
        frozenset(
            kind
            for step in row["steps"]
            if step["role"] == "assistant"
            for kind in action_kinds(
                step["text"],
                step["kinds"] or [call["name"] for call in step["tool_calls"] or ()],
                split,
            )
        )
        for row in rows
    ]
    used = Counter(kind for of_run in kinds for kind in of_run)
    missing = sum(row["outcome"] is None or row["end"] == "errored" for row in rows)
    total = max(len(rows), 1)
    return Side(
        runs=read_runs(rows),
        usage={kind: count / total for kind, count in sorted(used.items())},
        scored=tuple(
            (row["task"], row["outcome"], of_run)
            for row, of_run in zip(rows, kinds, strict=True)
            if row["outcome"] is not None and row["end"] != "errored"
        ),
        missing=missing / total,
    )


def played_plainly(
    case: Case, world: World, tasks: Sequence[str] | None = None, split: Collection[str] = ()
) -> Played:
    """The case's own runs in a world, on these tasks or on all."""
    sides = ("before", *case.afters)
    return Played.of(plain_side(case, side, world, tasks, split) for side in sides)


def plain_side(
    case: Case,
    side: str,
    world: World,
    tasks: Sequence[str] | None = None,
    split: Collection[str] = (),
) -> Side:
    """One of them."""
    log = case.rollouts(side, Condition(scrubbed=world))
    key = ("side", log.key, None if tasks is None else tuple(tasks), frozenset(split))
    return case.kept(key, lambda: read_side(log, tasks, split))


def side_without(
    case: Case,
    side: str,
    world: World,
    kinds: Kinds,
    tasks: Sequence[str],
    max_redraws: int,
    spared: Kinds = (),
) -> Side:
    """One policy in a world with these kinds refused, but for `spared` objects of them."""
    constraint = refusal(kinds, max_redraws, spared)
    log = case.rollouts(side, Condition(scrubbed=world, refused=constraint), tasks=tasks)
    return read_side(log, split=frozenset((*kinds, *spared)))


def played_without(
    case: Case,
    world: World,
    refused: Sequence[Kinds],
    tasks: Sequence[str],
    max_redraws: int,
    spared: Kinds = (),
) -> dict[Kinds, Played]:
    """Both policies in a world with each set of kinds refused, policy by policy."""
    sides = [
        [side_without(case, side, world, kinds, tasks, max_redraws, spared) for kinds in refused]
        for side in ("before", *case.afters)
    ]
    return dict(zip(refused, map(Played.of, zip(*sides, strict=True)), strict=True))


def substitutes(
    played: Mapping[Kinds, Played], plain: Played, least: float, most: int, excluded: Iterable[str]
) -> list[Kinds]:
    """Pairs of a refused kind and one that *after* then turned to, the
    strongest turn first.

    A pair can carry half of the gain only if the second kind is used in more
    than `least` of the runs in which the first is refused; without a turn
    towards it, refusing the first alone says as much.
    """
    barred = frozenset(excluded)
    turns: dict[Kinds, float] = {}
    for kinds, without in played.items():
        for other in without.after_kinds:
            turn = without.after_usage(other) - plain.after_usage(other)
            if (
                len(kinds) == 1
                and other not in barred
                and without.after_usage(other) > least
                and turn > least / 2
            ):
                pair = tuple(sorted((*kinds, other)))
                turns[pair] = max(turn, turns.get(pair, 0.0))
    return sorted(turns, key=lambda pair: (-turns[pair], pair))[:most]


WHAT_ACTED = (f"{STEP}role", f"{STEP}text", f"{STEP}kinds")


class ObjectUse(NamedTuple):
    """Shares of the runs that act on an object of a kind, before and after training."""

    kind: str
    before: float
    after: float


def object_use(case: Case, world: World, kinds: Collection[str]) -> dict[str, ObjectUse]:
    """By `KIND OBJECT`, for those of these kinds that serve several objects."""
    if not kinds:
        return {}
    before, *afters = (
        _shares(case.rollouts(side, Condition(scrubbed=world)), kinds)
        for side in ("before", *case.afters)
    )
    seen = sorted(set(before).union(*afters))
    several = Counter(kind for kind, _ in seen)
    return {
        " ".join(one): ObjectUse(
            one[0],
            before.get(one, 0.0),
            sum(side.get(one, 0.0) for side in afters) / len(afters),
        )
        for one in seen
        if several[one[0]] > 1
    }


def recurring(use: Mapping[str, ObjectUse], more: float, most: int = 8) -> list[str]:
    """At most so many objects on which so many more of the runs after training
    act, those first whose use rose most.
    """
    rise = {name: one.after - one.before for name, one in use.items()}
    found = [name for name in use if rise[name] >= more]
    return sorted(found, key=lambda name: (-rise[name], name))[:most]


def _shares(log: Rollouts, kinds: Collection[str]) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    runs = 0
    for row in log.rows(*WHAT_ACTED):
        runs += 1
        found: set[tuple[str, str]] = set()
        for step in row["steps"]:
            if step["role"] == "assistant":
                named = action_kinds(step["text"], step["kinds"] or ())
                found |= {
                    (kind, about)
                    for kind, about in kinds_and_objects(acting_text(step["text"]), named)
                    if about is not None and kind in kinds
                }
        for one in found:
            counts[one] += 1
    return {one: count / runs for one, count in counts.items()}


# -- did the answer come out of what an action returned? ---------------------------------

Withheld = Callable[[str], Sequence[str]]
RULE = ChainRule()


class AnswerShare(NamedTuple):
    """(c) for one kind.

    `holds`: `None` where it cannot be told, for the `reason`. `share` of the
    wins, `control` by other tasks' output, and the first example (trajectory,
    step).
    """

    holds: bool | None
    share: Estimate | None = None
    control: float | None = None
    example: tuple[str, int] | None = None
    reason: str = ""


def returned_steps(run: Trajectory, kinds: Iterable[str]) -> tuple[int, ...]:
    """The steps that answered an action of one of these kinds."""
    wanted, starts = frozenset(kinds), [i for i, _ in run.actions]
    return tuple(
        step
        for start, end in pairwise([*starts, len(run.steps)])
        for step in range(start + 1, end)
        if wanted.intersection(step_kinds(run, start, wanted))
    )


def step_kinds(run: Trajectory, number: int, split: Collection[str] = ()) -> tuple[str, ...]:
    """The kinds of an action, by the log or by the heads of its commands."""
    step = run.steps[number]
    return action_kinds(step.text, kinds_of(step), split)


def holds_answer(
    wins: Sequence[Trajectory],
    kinds: Kinds,
    withheld: Withheld | None,
    control_tasks: int,
    level: float,
) -> AnswerShare:
    """(c): did the answer come out of what an action returned?

    1. Of the wins after training that used a kind, count those whose submission's
       changed part first appeared in what that kind returned, more than in what it
       returned on other tasks (`forensics.layers.evidence_chain`).
    2. An answer that is worked out rather than copied leaves no trace in the text.
       Where the environment tells which texts it withholds (`Withholding`: the
       reference answer, outputs that only the grader knows), a win counts too if
       the kind was the first to show one, with other tasks' output as control
       again. Ours.

    (c) over the wins after training, in any order of theirs.
    """
    used = [(run, steps) for run in wins if (steps := returned_steps(run, kinds))]
    if not used:
        return AnswerShare(None, reason="no win after training used it")
    shown: dict[str, str] = {}  # what the kind returned on a few tasks
    for run, steps in used:
        keep_donor(shown, run.task, "\n".join(run.steps[i].text for i in steps), control_tasks)
    donors = {task: shown[task] for task in sorted(shown, key=digest)}
    answers = [_answer(run, steps, donors, withheld) for run, steps in used]
    control = sum(answer.control or 0.0 for answer in answers) / len(used)
    told = list(zip(used, answers, strict=True))
    example = next(((run.id, steps[0]) for (run, steps), one in told if one.used), None)
    try:
        sure, possible = (
            share_by_task(((run.task, one.used in hits, 1) for (run, _), one in told), level=level)
            for hits in ((True,), (True, None))
        )
    except MissingInput as missing:
        return AnswerShare(None, reason=missing.reason)
    if sure.low <= 0.5 < possible.estimate and sure.estimate <= 0.5:
        return AnswerShare(None, sure, control, example, "for many wins it cannot be told")
    return AnswerShare(sure.low > 0.5, sure, control, example)


def _answer(
    run: Trajectory, steps: tuple[int, ...], donors: Mapping[str, str], withheld: Withheld | None
) -> Use:
    """Whether one win has its answer from these steps: copied, or else the
    first to show what the environment withholds.
    """
    use = use_of(run, steps, donors, RULE)
    if use.used or withheld is None:
        return use
    before = [
        step.text
        for i, step in enumerate(run.steps[: steps[-1]])
        if i not in steps and step.role != "assistant"
    ]
    news = [secret for secret in withheld(run.task) if not _shows(before, secret)]
    if not news:
        return Use(False, "")

    def share(texts: Sequence[str]) -> float:
        return sum(_shows(texts, secret) for secret in news) / len(news)

    own = share([run.steps[i].text for i in steps])
    others = [share([text]) for task, text in donors.items() if task != run.task]
    control = sum(others) / len(others) if others else 0.0
    return Use(own > 0 and control <= RULE.control_ratio * own, "", own, control)


def _shows(texts: Iterable[str], secret: str) -> bool:
    wanted = words(secret)
    return bool(wanted) and any(wanted in grams_in(text, len(wanted)) for text in texts)


@lru_cache(maxsize=4096)
def grams_in(text: str, size: int) -> frozenset[Gram]:
    """Every run of `size` words of a text."""
    return frozenset(grams(words(text), size))
