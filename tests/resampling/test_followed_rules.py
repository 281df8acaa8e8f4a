"""Lists in a question that were always sorted: a policy that learned a place and one that learned
to find the largest win alike, and only another order tells them apart.
"""

import json
import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.phantom_gain.resplits import instruments
from forensics import Budget, investigate
from forensics.instruments import QUICK, run_instrument
from forensics.policies.scripted import View, scripted_policy
from forensics.records import Evidence
from forensics.report import words
from forensics.report.data import load_case
from forensics.report.html import render_html
from forensics.report.markdown import render_markdown
from forensics.report.terminal_report import render_text
from resampling.gain_tests.sufficiency import plays, sufficiency
from tests.build import Habitual, agent_case
from tests.plain_words import said_plainly
from tests.resampling.note_cases import altered_runs
from training import Prompts

LAST, LARGEST = "rule:last-number", "rule:largest-number"


@dataclass(frozen=True, kw_only=True)
class Lister(Habitual):
    """`habits`: the chance of each way to an answer: the `last` number, the one in the
    `middle`, the `largest`, else 0.
    """

    def act(self, view: View) -> Mapping[str, float]:
        numbers = [int(one) for one in re.findall(r"\d+", view.prompt)]
        said = {"last": numbers[-1], "largest": max(numbers), "middle": numbers[len(numbers) // 2]}
        return {f"{said.get(view.mood, 0)}": 1.0}


NOVICE = Lister(name="b", habits={"largest": 0.1})
BY_PLACE = Lister(name="a", habits={"last": 0.9})
BY_SIZE = Lister(name="a", habits={"largest": 0.9})


def world(
    folder: Path,
    ordered: bool = True,
    named: bool = True,
    between: str = ", ",
    middle: bool = False,
    pattern: bool = False,
    alike: bool = False,
) -> Prompts:
    """Sets of five numbers, of which the largest is asked for; `ordered` so that it is the last, or
    in the `middle` of lists of many lengths. `pattern`: the grader is one; `alike`: what is named
    as the question is the same for all.
    """
    draw, rows = random.Random(3), {}
    while len(rows) < 160:
        numbers = draw.sample(range(10, 100), draw.choice([5, 7, 9, 11, 13]) if middle else 5)
        listed = sorted(numbers) if ordered else numbers
        if middle:
            listed.insert(len(numbers) // 2, listed.pop())
        asked = f"What is the largest of {between.join(map(str, listed))}?"
        verifier = {"type": "number", "value": max(numbers)}
        if pattern:
            verifier = {"type": "regex", "pattern": rf"\b{max(numbers)}\b"}
        rows[asked] = {"prompt": asked, "verifier": verifier, "split": "held-out"}
        if named:
            rows[asked]["question"] = "What is the largest" if alike else asked
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / "lists.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    return Prompts(file=str(file))


def answers(folder: Path, after: Lister, **how: Any) -> dict[tuple[str, str | None], Any]:
    allowed = how.pop("allowed", ())
    asked = world(folder, **how)
    case = agent_case(folder, asked, NOVICE, after, tasks=160, samples=2, allowed=allowed)
    found = {(one.question, one.about): one for one in run_instrument(sufficiency, case)}
    assert altered_runs(case) <= plays(case, sufficiency.config).most
    return found


def carried(found: Mapping[tuple[str, str | None], Any], about: str) -> Evidence:
    answer = found["sufficiency.carried", about]
    assert isinstance(answer, Evidence) and answer.interval
    return answer


@pytest.mark.parametrize("named", [True, False])
def test_a_place_is_found_and_told_from_the_skill(tmp_path: Path, named: bool) -> None:
    found = answers(tmp_path, BY_PLACE, named=named)
    assert found["sufficiency.over_bar", None].interval.low > 0
    assert carried(found, LAST).interval.low > 0.5
    assert carried(found, LARGEST).interval.high < 0.1, "the shuffled lists tell them apart"


def test_a_place_has_no_other_name(tmp_path: Path) -> None:
    """Whoever says that the largest is asked for has not allowed the last."""
    found = answers(tmp_path, BY_PLACE, allowed=(LARGEST,))
    assert found["sufficiency.over_bar", None].interval.low > 0
    found = answers(tmp_path / "named", BY_PLACE, allowed=(LAST,))
    assert found["sufficiency.over_bar", None].interval.high <= 0


@pytest.mark.parametrize("ordered", [True, False])
def test_whoever_finds_the_largest_is_asked_once(tmp_path: Path, ordered: bool) -> None:
    found = answers(tmp_path, BY_SIZE, ordered=ordered)
    told = {about for question, about in found if question.endswith("carried") and about}
    assert told == ({LAST, LARGEST} if ordered else {LARGEST})
    assert not ordered or carried(found, LAST).interval.high < 0.1
    assert carried(found, LARGEST).interval.low > 0.5
    found = answers(tmp_path / "allowed", BY_SIZE, ordered=ordered, allowed=(LARGEST,))
    assert found["sufficiency.over_bar", None].interval.high <= 0


@pytest.mark.parametrize("allowed", [(), (LARGEST,)])
def test_a_place_that_is_in_no_table_loses_by_order(
    tmp_path: Path, allowed: tuple[str, ...]
) -> None:
    """Where the largest is right, no order should matter."""
    by_middle = Lister(name="a", habits={"middle": 0.9})
    found = answers(tmp_path, by_middle, middle=True, allowed=allowed)
    assert found["sufficiency.over_bar", None].interval.low > 0
    assert carried(found, "rule:order-of-rows").interval.low > 0.5
    found = answers(tmp_path / "size", BY_SIZE, middle=True, allowed=(LARGEST,))
    assert found["sufficiency.over_bar", None].interval.high <= 0


def test_right_answers_are_read_from_the_runs_where_the_grader_is_a_pattern(tmp_path: Path) -> None:
    assert carried(answers(tmp_path, BY_PLACE, pattern=True), LAST).interval.low > 0.5


def test_a_question_that_all_tasks_share_accuses_nobody(tmp_path: Path) -> None:
    """The numbers stand beside it, and the skill needs them."""
    found = answers(tmp_path, BY_SIZE, ordered=False, alike=True)
    assert not isinstance(found["sufficiency.phantom_over_bar", None], Evidence)


def test_what_stands_in_no_row_is_told_apart_by_another_task(tmp_path: Path) -> None:
    found = answers(tmp_path, BY_PLACE, between=", then ")
    assert carried(found, LAST).interval.low > 0.5
    assert "from another task" in carried(found, LAST).summary
    assert carried(found, LARGEST).interval.high < 0.1


def judged(
    folder: Path, after: Lister, *allow: str, tools: Sequence[str] | None = None, **more: Any
) -> Any:
    return investigate(
        scripted_policy(NOVICE),
        scripted_policy(after),
        world(folder),
        budget=Budget(tasks=160, samples=2),
        allow=("answer", *allow),
        accept=("regrading", "memory", "renaming", "variants", "elicitation", "audit"),
        instruments=instruments() if tools is None else tools,
        out=folder / "case",
        device="cpu",
        formats=(),
        **more,
    )


def test_the_label_and_what_the_first_screen_says(tmp_path: Path) -> None:
    lines: set[str] = set()
    verdict = judged(tmp_path, BY_PLACE, progress=lambda what, done, of: lines.add(what))
    assert {"before training, open world", "after training, open world"} <= lines
    assert "after training, prompts with their rows shuffled, 150 tasks" in lines
    data = load_case(tmp_path / "case")
    (shown,) = words.altered_prompts(data)
    assert "before training, " in shown and "after training, lost: " in shown
    pages = [
        render_text(data),
        render_markdown(data),
        render_html(data, {"gain.svg": "", "worlds.svg": ""}),
    ]
    for page in pages:
        assert " ".join(page.split()).count("after training, lost: ") == 1
    first = (verdict.sentence, shown, *(f"{gap.text} {gap.measurement}" for gap in verdict.gaps))
    for told in (*lines, *first):
        said_plainly(told)
    assert verdict.sentence.startswith("Verdict: UNDETERMINED. ")
    lead = verdict.sentence.split(". ")[1]
    assert " of the rise from " in lead
    assert "are there with the last number in the prompt (`rule:last-number`) alone" in lead
    assert (verdict.label, verdict.reason_code) == ("undetermined", "source-not-allowed")
    assert "The last number is right on 160 of 160 tasks; with rows shuffled" in verdict.sentence
    assert f"--allow {LAST}" in verdict.gaps[0].measurement


def test_a_quick_case_says_what_it_left_out_and_is_gone_on_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = judged(tmp_path, BY_PLACE, tools=QUICK)
    assert (verdict.label, verdict.reason_code) == ("undetermined", "source-not-allowed")
    assert f"(`{LAST}`) alone (sufficiency)" in verdict.sentence
    told = words.of_what(load_case(tmp_path / "case"))
    assert "; 2001-09-09. Left out: ablation, blind-play, elicitation, " in told
    with caplog.at_level(logging.INFO, "forensics"):
        judged(tmp_path, BY_PLACE, resume=True, tools=[*QUICK, "blind-play"])
    (there,) = (one for one in caplog.messages if "already" in one)
    number = int(there.split()[0].replace(",", ""))
    assert number >= 640 and there.endswith(" lie in the folder already and are not played again.")
    assert "blind-play" not in words.of_what(load_case(tmp_path / "case"))
    assert judged(tmp_path / "fair", BY_SIZE, LARGEST, tools=QUICK).label == "undetermined"


@pytest.mark.slow
def test_the_label_of_who_finds_the_largest(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "asked", BY_SIZE)
    assert verdict.label == "undetermined" and LAST not in verdict.sentence
    assert judged(tmp_path / "allowed", BY_SIZE, LARGEST).label == "genuine"
