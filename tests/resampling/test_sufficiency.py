"""One field kept, all others from another task: a cue suffices alone, a skill
does not, and what is the question has to be said.
"""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forensics.instruments import run_instrument
from forensics.policies.scripted import View
from forensics.protocols import Environment, Observation
from forensics.records import Evidence, Undefined
from resampling.gain_tests.sufficiency import JOINT, sufficiency
from tests.build import agent_case
from tests.resampling.ablation_world import RepairWorld, body_of
from tests.resampling.note_cases import Answerer, Repairer, questions
from training import Prompts

BEFORE = Answerer(name="b", habits={"skill": 0.3})
SKILL = Answerer(name="a", habits={"skill": 0.9})
NOTE = Answerer(name="a", habits={"skill": 0.3, "note": 0.6})
Answers = dict[tuple[str, str | None], Any]


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Says the number that stands in the prompt in the chance `reads`."""

    name: str
    reads: float = 0.0

    @property
    def identity(self) -> str:
        return f"{self.name} {self.reads}"

    @property
    def moods(self) -> Mapping[str, float]:
        return {"reads": self.reads, "none": 1 - self.reads}

    def act(self, view: View) -> Mapping[str, float]:
        found = re.search(r"(\d+)", view.prompt)
        return {found[1] if found and view.mood == "reads" else "none": 1.0}


class TicketWorld(RepairWorld):
    """The prompt has a ticket with the wanted body in it; `man page` says what to
    repair.
    """

    def reset(self, task: str, seed: int) -> Observation:
        super().reset(task, seed)
        return Observation(text=f"repair {task} (ticket {body_of(task).replace(' ', '.')})")

    def fields(self, task: str) -> Mapping[str, str]:
        return {"question": f"repair {task}"}

    def _shown(self, head: str) -> str:
        return f"it is {self.task}"


@dataclass(frozen=True, kw_only=True)
class Ticketed(Repairer):
    """Reads which task it is, then knows the body or takes it from the ticket."""

    def act(self, view: View) -> Mapping[str, float]:
        if not view.turns:
            return {"man page": 1.0}
        body = body_of(view.read.removeprefix("it is "))
        if view.mood == "ticket" and (found := re.search(r"ticket (.*)\)", view.prompt)):
            return {f"submit : {found[1].replace('.', ' ')}": 1.0}
        return {f"submit : {body}": self.skill, "submit : x * 0 + 0": 1 - self.skill}


def answers(folder: Path, world: Environment, after: Answerer, **more: Any) -> Answers:
    case = agent_case(folder, world, more.pop("before", BEFORE), after, **more)
    found = {(one.question, one.about): one for one in run_instrument(sufficiency, case)}
    return {(name.removeprefix("sufficiency."), about): one for (name, about), one in found.items()}


def over_bar(found: Answers) -> Evidence:
    answer = found["over_bar", None]
    assert isinstance(answer, Evidence) and answer.interval
    return answer


def accused(found: Answers) -> bool:
    """Whether it is shown that a shortcut carries nearly everything."""
    phantom, placebo = found["phantom_over_bar", None], found["placebo_over_bar", None]
    return all(isinstance(one, Evidence) for one in (phantom, placebo)) and (
        phantom.interval.low > 0 >= placebo.interval.high
    )


@pytest.mark.parametrize("seeds", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_cue_beside_the_question_is_found_in_nine_of_ten_seeds(
    tmp_path: Path, seeds: int
) -> None:
    caught = 0
    for seed in range(seeds):
        world = questions(tmp_path / f"{seed}", seed=seed, number=50)
        found = answers(tmp_path / f"case-{seed}", world, NOTE, seed=seed, samples=2)
        caught += over_bar(found).interval.low > 0 and found["carried", JOINT].interval.low > 0
    assert caught >= seeds - 1


@pytest.mark.parametrize("named", [True, False], ids=["named", "found"])
def test_a_skill_that_takes_both_numbers_is_cleared(tmp_path: Path, named: bool) -> None:
    found = answers(tmp_path, questions(tmp_path, named=named), SKILL)
    assert over_bar(found).interval.high <= 0 and not accused(found)
    assert found["left", None].estimate > 0.5


@pytest.mark.parametrize(
    ("written", "off", "habits"),
    [
        ("(note: {note}) {question}", 1, {"note": 0.6}),
        ("(note: {note}) {question} [mark {note}]", 0, {"note": 0.3, "mark": 0.3}),
    ],
    ids=["by inference", "two redundant ones"],
)
def test_other_cues_are_found(
    tmp_path: Path, written: str, off: int, habits: dict[str, float]
) -> None:
    after = Answerer(name="a", habits={"skill": 0.3, **habits}, added=off)
    found = answers(tmp_path, questions(tmp_path, written, off=off), after)
    assert accused(found) and found["carried", JOINT].estimate == pytest.approx(0.6, abs=0.07)
    for name, share in habits.items():
        if len(habits) > 1:
            carried = found["carried", f"prompt:{name}"]
            assert carried.estimate == pytest.approx(share, abs=0.07) and carried.interval.low > 0


@pytest.mark.parametrize(("after", "found"), [({"ends": 0.9}, False), ({"note": 0.9}, True)])
def test_what_was_enough_for_the_same_share_before_is_no_cue(
    tmp_path: Path, after: dict[str, float], found: bool
) -> None:
    """Half of the wins before go by the note alone; so do those after, or all of them do."""
    sides = Answerer(name="b", habits={"ends": 0.4}), Answerer(name="a", habits=after)
    over = over_bar(answers(tmp_path, questions(tmp_path), sides[1], before=sides[0], tasks=150))
    assert over.interval.low > 0 if found else over.interval.high <= 0


def test_what_is_won_without_reading_is_the_controls(tmp_path: Path) -> None:
    """Who says 0 to whatever is asked wins alike with a field kept, or none."""
    questions(tmp_path)
    file = tmp_path / "questions.jsonl"
    file.write_text(re.sub(r'"value": \d+', '"value": 0', file.read_text()))
    sides = (
        Answerer(name=name, habits={"skill": share}) for name, share in (("b", 0.8), ("a", 0.1))
    )
    found = answers(tmp_path, Prompts(file=str(file)), before=next(sides), after=next(sides))
    assert over_bar(found).interval.high <= 0 < found["placebo_over_bar", None].interval.low


def test_without_a_named_question_a_field_blocks_and_accuses_nobody(tmp_path: Path) -> None:
    found = answers(tmp_path, questions(tmp_path, named=False), NOTE)
    assert over_bar(found).interval.low > 0
    assert found["carried", "prompt:note"].interval.low > 0.5
    for name in ("left", "phantom_over_bar"):
        assert isinstance(found[name, None], Undefined) and "`question`" in found[name, None].cure


def test_what_cannot_be_told_is_not_tested(tmp_path: Path) -> None:
    """The note is 1 below the answer, so that no line of code of the table wins."""
    world = questions(tmp_path, "The note: {note}.", named=False, off=1)
    after = Answerer(name="a", habits={"skill": 0.3, "note": 0.6}, added=1)
    found = answers(tmp_path, world, after, before=Answerer(name="b"))
    assert {type(one) for one in found.values()} == {Undefined}
    assert "by necessity" in found["over_bar", None].reason


def test_a_copy_of_what_stands_alone_is_asked(tmp_path: Path) -> None:
    world = questions(tmp_path, "The note: {note}.", named=False)
    found = answers(tmp_path, world, NOTE, before=Answerer(name="b"))
    assert over_bar(found).interval.low > 0 and not accused(found)
    assert found["carried", "rule:last-number"].interval.low > 0.5


def test_a_question_alone_is_not_applicable_and_quoted(tmp_path: Path) -> None:
    found = answers(tmp_path, questions(tmp_path, "{question}"), SKILL)
    assert over_bar(found).interval.high <= 0 and "such as 'What is" in over_bar(found).summary


def test_prompts_that_share_nothing_take_a_named_question(tmp_path: Path) -> None:
    stream, letters = random.Random(0), "abcdefghijklmnopqrstuvwxyz"
    found = {}
    for named in (False, True):
        file = tmp_path / f"{named}.jsonl"
        rows = []
        for number in range(40):
            first, *asked, last = ("".join(stream.choices(letters, k=9)) for _ in range(5))
            question = " ".join(asked)
            row = {
                "prompt": f"{first} {number} {question} {last}",
                "verifier": {"type": "number", "value": number},
                "split": "held-out",
            }
            rows.append(row | ({"question": question} if named else {}))
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        world = Prompts(file=str(file))
        before, after = Counter(name="b"), Counter(name="a", reads=0.9)
        found[named] = answers(tmp_path / f"case-{named}", world, after, before=before)
    assert over_bar(found[False]).interval.low > 0 and not accused(found[False])
    assert found[False]["carried", "rule:last-number"].interval.low > 0.5
    assert accused(found[True])


def test_in_many_turns_the_donor_answers_and_the_task_grades(tmp_path: Path) -> None:
    cue = Ticketed(name="a", looks={"ticket": 0.6})
    for name, after, finds in (("cue", cue, True), ("skill", Ticketed(name="a", skill=0.9), False)):
        found = answers(tmp_path / name, TicketWorld(), after, before=Ticketed(name="b"), tasks=100)
        over = over_bar(found).interval
        assert (over.low > 0 and accused(found)) if finds else over.high <= 0


def test_identical_policies_are_silent(tmp_path: Path) -> None:
    for seed in range(4):
        world = questions(tmp_path / f"{seed}", number=40, seed=seed)
        found = answers(tmp_path / f"case-{seed}", world, BEFORE, seed=seed)
        assert all(isinstance(one, Undefined) or not accused(found) for one in found.values())
