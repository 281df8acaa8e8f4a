"""Does the gain follow a line of code, and does it hang on a place in a row?

Table and rows are those of `forensics.layers.one_line_rules`. In the world that is scrubbed of
every declared channel, on the question where it is named (what stands beside it is for
`sufficiency`), else on the prompt:

1. *Right answers* are the world's own (`reference`), else, task by task, what was handed in by
   most wins. A rule that wins more of the set than chance is asked for.
2. *Usage*, no play: the gain on the tasks where the rule is right is the most that it carries.
3. *Where it is wrong*, no play: the share of runs that hand in what it says there, after minus
   before, by the share of tasks where it is right. No skill errs so.
4. *Altered*: what is not cleared yet, on prompts whose rows are permuted (`SHUFFLED`), then on
   such in which the field that the rule hands in is another task's, for both policies: the same
   share, on tasks where the rule parts from every other one that wins, and from the content that
   was right. `the largest` is right on any order, `the last` on the old one.
5. A rule carries the smallest of these. What nothing tells from the skill stands, and asks the
   reader: is this what the task asks for? It accuses nobody.

`FollowedRules.order` says of the same shuffled runs what *after* goes by: content, the place where
the right answer stood, or neither, as where the truth moves with the order; then nothing is
answered. One thing of a row is answered where the gain stays by content.

Ours. It cannot see rules that are not in the table, but for places where an extreme wins
(`ORDER`). Where nothing stands in a row and prompts do not align it cannot tell a place from a
skill, and asks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from forensics.layers import (
    EXTREME,
    GENUINE_BAR,
    PLACE,
    RULE,
    Examined,
    Rule,
    examine,
    plain,
    rows_of,
    shuffled,
    units_of,
    words,
)
from forensics.phrases import capital, percent, plural
from forensics.protocols import Alteration, Observation, Referenced
from forensics.records import Table, content_hash
from forensics.statistics import Contrast, Estimate
from resampling.ablation.refused_runs import chosen_tasks
from resampling.gain_tests.altered_worlds import AlteredWorld, Kept, Plan, alteration, shadow
from resampling.gain_tests.fields import NEARLY_ALL, QUESTION, PromptFields, parted
from resampling.gain_tests.gain_study import (
    Carries,
    Comparison,
    EndByEnd,
    GainStudy,
    Values,
    pair_of,
)
from resampling.gain_tests.hand_ins import (
    PlayedRun,
    Recorded,
    by_task,
    example_table,
    means_of,
    played_runs,
)

MOST_EXCHANGED: Final = 3  # sources that come from other tasks
FEWEST: Final = 10  # tasks on which a rule parts, for its following to be measured
ORDER: Final = Rule("the order of rows", PLACE, lambda of: None)
Said = Callable[[PlayedRun], str | None]  # what a rule hands in where this run was asked
Sides = Sequence[Sequence[PlayedRun]]
Parts = Mapping[str, Mapping[str, str]]  # by task, what stands in its fields


class ShuffledRows(AlteredWorld):
    """The prompts with the things of each row in another order, by the task."""

    def reset(self, task: str, seed: int) -> Observation:
        start = super().reset(task, seed)
        stream = np.random.default_rng(int(content_hash(["rows", task], 8), 16))
        return replace(start, text=shuffled(start.text, stream))


SHUFFLED: Final[Alteration] = alteration(
    "rows shuffled", ShuffledRows, "prompts with their rows shuffled"
)


@dataclass(frozen=True, kw_only=True)
class Following(Carries):
    """What a rule carries by how many runs follow it where it parts from what is right:
    `share`, after minus before, of the tasks where it is right (`wins`).
    """

    share: Estimate
    wins: float
    gain: Contrast
    read: int

    @property
    def whole(self) -> Contrast:
        return self.gain

    @property
    def runs(self) -> int:
        return self.read

    @property
    def carried(self) -> Estimate:
        return self.share.scaled(self.wins)

    @property
    def over_bar(self) -> Estimate:
        """By the outer ends of both."""
        carried, whole = self.carried, self.whole
        return Estimate(
            estimate=carried.estimate - GENUINE_BAR * whole.estimate,
            low=carried.low - GENUINE_BAR * whole.high,
            high=carried.high - GENUINE_BAR * whole.low,
            level=carried.level,
        )

    @property
    def clusters(self) -> int:
        return self.share.clusters


@dataclass(frozen=True, kw_only=True)
class FollowedRule:
    """A rule that wins more than chance, and what it carries; `told`: how that is known;
    `most`: it wins more than half of the tasks.
    """

    rule: Rule
    carries: Carries
    told: str
    most: bool

    @property
    def name(self) -> str:
        return RULE + self.rule.name


@dataclass(frozen=True, kw_only=True, eq=False)
class FollowedRules:
    """The rules that win on the tasks of a study. `fields`: of its prompts, the question cut as
    the rest; `named`: with the question; `most`: tasks whose prompts are altered.
    """

    study: GainStudy
    fields: PromptFields
    named: PromptFields
    most: int
    _exchanged: dict[frozenset[str], Sides] = field(default_factory=dict)

    # -- the set ---------------------------------------------------------------------------

    @cached_property
    def prompts(self) -> dict[str, str]:
        pieces = self.fields.pieces.items()
        return {task: parted("".join(one.text for one in of))[0] for task, of in pieces}

    def asked(self, task: str, prompt: str) -> str:
        """The question in a prompt of this task, be it altered within, if it is named."""
        question = self.named.values[task].get(QUESTION, "") if self.named.named else ""
        if not question or question not in self.prompts[task]:
            return prompt
        before, _, behind = self.prompts[task].partition(question)
        return prompt[len(before) : len(prompt) - len(behind)]

    @cached_property
    def recorded(self) -> Recorded:
        return Recorded(study=self.study)

    @cached_property
    def right(self) -> dict[str, str]:
        """The right answers, as far as they are known."""
        world = self.study.case.world(self.study.world)
        said: dict[str, str | None] = {}
        if isinstance(world, Referenced):
            said = {task: world.reference(task) for task in self.prompts}
        won: dict[str, Counter[str]] = defaultdict(Counter)
        for side in self.recorded.sides:
            for run in side:
                if run.won and run.submission:
                    won[run.task][run.submission] += 1
        usual = {task: min(of, key=lambda one: (-of[one], one)) for task, of in won.items()}
        return usual | {task: answer for task, answer in said.items() if answer is not None}

    @cached_property
    def examined(self) -> Examined:
        asked = {task: self.asked(task, prompt) for task, prompt in self.prompts.items()}
        values = {
            task: {
                n: text for n, text in of.items() if n not in self.in_rows and text in asked[task]
            }
            for task, of in self.fields.values.items()
        }
        return examine(asked, self.right, values)

    @cached_property
    def in_rows(self) -> frozenset[str]:
        """The fields that stand in a row of nearly every prompt that has them."""
        inside, there = Counter[str](), Counter[str]()
        for task, pieces in self.fields.pieces.items():
            spans = [span for row in rows_of(self.prompts[task]) for span in row.spans]
            at = len(self.prompts[task]) - sum(len(one.text) for one in pieces)  # system text
            for piece in pieces:
                end = at + len(piece.text)
                if piece.field:
                    there[piece.field] += 1
                    inside[piece.field] += any(a <= at and end <= b for a, b in spans)
                at = end
        return frozenset(name for name in there if inside[name] >= NEARLY_ALL * there[name])

    @cached_property
    def _winning(self) -> tuple[int, ...]:
        return self.examined.winning

    # -- who follows -------------------------------------------------------------------------

    @cached_property
    def found(self) -> list[FollowedRule]:
        """Every rule that wins and that the reader does not allow, with what it carries."""
        rules = ((number, self.examined.rules[number]) for number in self._winning)
        found = [
            self._followed(number, rule)
            for number, rule in rules
            if RULE + rule.name not in self.study.case.allowed
        ]
        found = [one for one in found if not one.carries.cleared or one.most]
        return found if any(not one.carries.cleared for one in found) else [*found, *self._by_order]

    @cached_property
    def _by_order(self) -> list[FollowedRule]:
        """Where the largest wins most tasks no order should matter: what the gain loses with
        rows shuffled goes by a place, be it none of the table.
        """
        examined, names = self.examined, self.study.case.allowed
        rules = {n: examined.rules[n] for n in self._winning}
        sorts = {one.sort for one in rules.values() if RULE + one.name in names}
        most = any(
            rule.sort == EXTREME and 2 * examined.wins[n] > examined.known
            for n, rule in rules.items()
        )
        if not most or PLACE in sorts or RULE + ORDER.name in names:
            return []
        if self.order is None or self.order.cleared:
            return []
        return [FollowedRule(rule=ORDER, carries=self.order, told=self.order_told, most=False)]

    def _followed(self, number: int, rule: Rule) -> FollowedRule:
        wins, known = int(self.examined.wins[number]), self.examined.known
        said = f"{capital(rule.words)} is right on {wins:,} of {plural(known, 'task')}"
        parts: list[Carries] = [self._usage(number)]
        if parts[0].cleared:
            return FollowedRule(rule=rule, carries=parts[0], told=said, most=2 * wins > known)
        for how, share in self._shares(number, wins / known):
            parts.append(share)
            said += f"; {how}, {percent(share.share.estimate)} more runs after training than before"
            said += " hand in what it says"
            if share.found or EndByEnd(parts=parts, pick=min).cleared:
                break
        if len(parts) == 1 and not parts[0].cleared:
            said += "; nothing here tells it from the skill"
        carries = EndByEnd(parts=parts, pick=min)
        return FollowedRule(rule=rule, carries=carries, told=said, most=2 * wins > known)

    def _usage(self, number: int) -> Comparison:
        tasks = self.recorded.common
        is_right = self.examined.said[number] == self.examined.right
        right = dict(zip(self.examined.tasks, is_right.tolist(), strict=True))
        return self.study.amount_by_task(
            tasks, *self._means(self.recorded.sides, tasks, lambda run: run.score * right[run.task])
        )

    def _shares(self, number: int, wins: float) -> Iterator[tuple[str, Following]]:
        """How many follow it, by the case's own runs, and in altered worlds until one tells."""
        examined, said = self.examined, self._said(number)
        wrong = (examined.said[number] >= 0) & (examined.right >= 0)
        wrong &= examined.said[number] != examined.right
        there = {task for task, one in zip(examined.tasks, wrong, strict=True) if one}
        if found := self._share(self.recorded.sides, there, said, wins):
            yield "where it is wrong", found
        worlds: list[tuple[str, Sides, Parts]] = []
        worlds.append(("with rows shuffled", self.shuffled, self.fields.values))
        if names := self._source(number):
            how = "with what it hands in from another task"
            worlds.append((how, *self._with_others(names)))
        for how, sides, values in worlds:
            said = self._said(number, values)
            if found := self._share(sides, self._parting(number, sides, values), said, wins):
                yield how, found

    def _parting(self, number: int, sides: Sides, values: Parts) -> set[str]:
        """The tasks of altered runs on which it parts from what was right and from all other
        rules that win; from what was right alone where these are few.
        """
        first = {run.task: run for side in sides for run in side}.values()
        said = {n: self._said(n, values) for n in self._winning}
        handed = {n: {run.task: plain(one(run) or "") for run in first} for n, one in said.items()}
        own = handed.pop(number)
        right = {run.task: plain(self._moved(run)) for run in first}
        there = {task for task, text in own.items() if text}
        apart = {task for task in there if own[task] != right[task]}
        rivals = [one for one in handed.values() if one != own]
        alone = apart if apart or not rivals else there
        alone = {task for task in alone if all(own[task] != one[task] for one in rivals)}
        return alone if len(alone) >= FEWEST else apart

    def _source(self, number: int) -> frozenset[str]:
        """The fields that it hands in on nearly every task where it is right."""
        same, there = Counter[str](), Counter[str]()
        right = self.examined.said[number] == self.examined.right
        for task in (one for one, won in zip(self.examined.tasks, right, strict=True) if won):
            for name, text in self.fields.values[task].items():
                there[name] += 1
                same[name] += plain(text) == plain(self.right[task])
        return frozenset(name for name in there if same[name] >= NEARLY_ALL * there[name])

    def _with_others(self, names: frozenset[str]) -> tuple[Sides, Parts]:
        """Both sides with these fields from another task, and what then stands there; nobody
        after the first few sources.
        """
        tasks, values = chosen_tasks(self.fields.aligned, self.most), self.fields.values
        plan = Plan.of(self.fields, self.study.case.seed, Kept(names=names, own=True))
        if names not in self._exchanged:
            if len(self._exchanged) >= MOST_EXCHANGED or len(tasks) < FEWEST:
                return [[] for _ in self.study.sides], values
            world = shadow(plan)
            self._exchanged[names] = [
                played_runs(self.study.runs(side, world, tasks), tasks) for side in self.study.sides
            ]
        there = {
            task: {**values[task], **{n: values[plan.donors[task]].get(n, "") for n in names}}
            for task in tasks
        }
        return self._exchanged[names], there

    def _share(self, sides: Sides, there: set[str], said: Said, wins: float) -> Following | None:
        """How many more runs after training hand in what a rule says, on these tasks."""
        tasks = sorted(there.intersection(*({run.task for run in side} for side in sides)))
        if len(tasks) < FEWEST:
            return None
        means = self._means(sides, tasks, lambda run: float(_says(run, said(run))))
        share = self.study.amount_by_task(tasks, *means).carried
        runs = sum(run.task in there for side in sides for run in side)
        return Following(share=share, wins=wins, gain=self.study.gain, read=runs)

    def _said(self, number: int, values: Parts | None = None) -> Said:
        """What a rule hands in on the prompt that a run was shown."""
        rule, there = self.examined.rules[number], values or self.fields.values
        return lambda run: rule.said(
            units_of(self.asked(run.task, run.prompt), there.get(run.task, {}))
        )

    def _means(
        self,
        sides: Sides,
        tasks: Sequence[str],
        value: Callable[[PlayedRun], float],
    ) -> tuple[Values, list[Values]]:
        """Of each side the mean over its runs of each task."""
        before, *afters = (means_of(by_task(side), tasks, value) for side in sides)
        return before, afters

    # -- order -----------------------------------------------------------------------------

    @cached_property
    def rowed(self) -> tuple[str, ...]:
        """The tasks whose prompts are shuffled."""
        having = [task for task, text in sorted(self.prompts.items()) if rows_of(text)]
        return chosen_tasks(having, self.most) if len(having) >= FEWEST else ()

    @cached_property
    def shuffled(self) -> list[list[PlayedRun]]:
        """Both sides with the rows of the prompts shuffled."""
        study, tasks = self.study, self.rowed
        return [
            played_runs(study.runs(side, SHUFFLED, tasks), tasks) if tasks else []
            for side in study.sides
        ]

    @property
    def example(self) -> tuple[Table, ...]:
        """One prompt with its rows shuffled, if any was played, and the answers there."""
        return example_table(self.shuffled, won=False) if "shuffled" in vars(self) else ()

    def _moved(self, run: PlayedRun) -> str:
        """What is right once the rows are shuffled: the same content, behind its new letter."""
        right, old = self.right.get(run.task, ""), self.prompts[run.task]
        for was, row in zip(rows_of(old), rows_of(run.prompt), strict=False):
            if plain(right) in (leads := list(map(plain, was.leads))):
                content = old[slice(*was.spans[leads.index(plain(right))])]
                now = [run.prompt[slice(*span)] for span in row.spans]
                return row.leads[now.index(content)] if content in now else right
        return right

    def _in_its_place(self, run: PlayedRun) -> str | None:
        """What stands where the right answer stood, if that is something else."""
        right, old = plain(self.right.get(run.task, "")), self.prompts[run.task]
        for was, row in zip(rows_of(old), rows_of(run.prompt), strict=False):
            then = [plain(old[slice(*span)]) for span in was.spans]
            if right in then and len(row.spans) == len(was.spans):
                now = run.prompt[slice(*row.spans[then.index(right)])]
                return None if plain(now) == right else now
        return None

    @cached_property
    def order(self) -> Comparison | None:
        """What the gain loses by content when rows are shuffled; `None` where nothing is."""
        sides = self.shuffled
        tasks = sorted(set.intersection(*({run.task for run in side} for side in sides)))
        if len(tasks) < FEWEST:
            return None

        def by_content(run: PlayedRun) -> float:
            moved = self._moved(run)
            unmoved = moved == self.right.get(run.task, "")
            return run.score if unmoved else float(_says(run, moved))

        return self.study.compare(pair_of(tasks, *self._means(sides, tasks, by_content)))

    @cached_property
    def order_told(self) -> str:
        """What the policy after training goes by on shuffled prompts."""
        runs = [run for side in self.shuffled[1:] for run in side]
        content = [_says(run, self._moved(run)) for run in runs if run.task in self.right]
        places = [(run, said) for run in runs if (said := self._in_its_place(run)) is not None]
        if not content or not places:
            return "With rows shuffled, whether it goes by content or by place could not be seen"
        place = np.mean([_says(run, said) for run, said in places])
        return (
            "With rows shuffled, the policy after training hands in what was right on"
            f" {percent(float(np.mean(content)))} of the runs, and what then stands in its place"
            f" on {percent(float(place))}"
        )


def _says(run: PlayedRun, text: str | None) -> bool:
    """Whether a run hands in this text, alone or among other words."""
    handed = run.actions[-1] if run.submission is None and run.actions else run.submission or ""
    if not text or plain(handed) == plain(text):
        return bool(text)
    wanted = " ".join(words(text))
    return bool(wanted) and f" {wanted} " in f" {' '.join(words(handed))} "
