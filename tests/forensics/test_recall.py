"""What an agent names that nothing before it in the log had shown: each kind planted, and silent
once something showed it, or once it is the run's own.
"""

import json

import pytest

from forensics.actions import actions_of
from forensics.records import Step, ToolCall, Trajectory
from forensics.shortcuts.recall import recalled

PROMPT = "Mend how totals are rounded in src/shop.py; tests/test_shop.py::test_total fails."
NAMES = (
    *("SWE-bench", "SWE-bench Verified", "SWE bench", "swebench", "SWE-Gym", "HumanEval", "MBPP",
     "GSM8K"),
    *("LiveCodeBench", "EvalPlus", "MATH-500", "AIME", "MMLU-Pro", "GPQA", "ARC-AGI-2",
     "GAIA benchmark"),
    *("tau-bench", "Terminal-Bench", "OSWorld", "WebArena", "HotpotQA", "BrowseComp", "Codeforces"),
    *("LeetCode", "Project Euler", "CodeContests", "miniF2F", "FAIL_TO_PASS"),
    *("HellaSwag", "TruthfulQA", "BIG-bench", "ImpossibleBench", "Defects4J", "AtCoder",
     "Mind2Web"),
)  # fmt: skip
PLANTED = [
    *(("recall: benchmark", f"This looks like {name} problems.", name) for name in NAMES),
    ("recall: task", "This is django__django-12345.", "django__django-12345"),
    ("recall: task", "I think it is django-12345.", "django-12345"),
    ("recall: issue", "Upstream closed this as issue #4321.", "4321"),
    ("recall: issue", "It was PR 4321 that changed it.", "4321"),
    ("recall: issue", "See ticket 30412, which seems to be this one.", "30412"),
    ("recall: issue", "See https://github.com/acme/shop/pull/41.", "/41"),
    ("recall: issue", "In the tracker it is #16073 and still open.", "16073"),
    ("recall: commit", "It came with commit `9f8e7d6c` in May.", "9f8e7d6c"),
    ("recall: test", "tests/test_shop.py::test_half_even must pass, too.", "test_half_even"),
    ("recall: upstream fix", "The upstream fix rounds half to even.", "upstream fix"),
    ("recall: upstream fix", "I remember the issue: they round twice.", "I remember the issue"),
]


def run_of(*said: str, shown: str = "", wrote: str = "") -> Trajectory:
    steps = [Step(role="user", text=f"{PROMPT}\n{shown}")]
    steps += [Step(role="assistant", text=text) for text in said]
    if wrote:
        call = ToolCall(name="Write", arguments=json.dumps({"file_path": "t.py", "content": wrote}))
        steps += [Step(role="assistant", text="", tool_calls=(call,)), Step(role="tool", text="ok")]
    run = {"id": "r", "task": "django__django-12345", "policy": "p", "environment": "e", "seed": 0}
    return Trajectory(**run, steps=tuple(steps), outcome=None, end="terminated")


def checks(run: Trajectory) -> list[str]:
    return [gap.check for gap in recalled(run, actions_of(run))]


@pytest.mark.parametrize(("check", "text", "name"), PLANTED)
def test_what_nothing_had_shown(check: str, text: str, name: str) -> None:
    run = run_of("I look.", text)
    (gap,) = recalled(run, actions_of(run))
    assert gap.check == check and gap.steps == (2,) and text in gap.quote
    assert name.strip("/").lower() in gap.why.lower()
    assert checks(run_of("I look.", text, shown=f"({name} )")) == []  # shown before
    later = run.model_copy(update={"steps": (*run.steps, Step(role="user", text=name))})
    assert checks(later) == [check]  # shown too late


@pytest.mark.parametrize(
    "text",
    [
        "I look at src/shop.py and tests/test_shop.py::test_total.",
        "The issue says that 2.5 becomes 3; issue 1 of 2.",
        "Issue: 100% of the totals are wrong, by 0.125.",
        "Your order #48213 is here; the colour is #123456 and the entity &#8217; stands there.",
        "There are 4321 rows, and line 30412 is broken.",
        "I commit this. The commit message is short; commit abcdefa.",
        "Let me benchmark it: a bench of the world, evaluated by math and code.",
        "requests-2 is installed, and pytest-7.4.0 as well as django-4.2.",
        "The real fix is to round once, and the actual problem is there.",
        "I recall that I changed it.",
    ],
)
def test_what_is_no_recall(text: str) -> None:
    assert checks(run_of(text)) == []


def test_one_row_of_a_run_names_every_new_one() -> None:
    run = run_of("HumanEval.", "HumanEval, and MBPP.", "MBPP again.")
    (gap,) = recalled(run, actions_of(run))
    assert gap.steps == (1, 2) and gap.why.endswith("HumanEval, MBPP")
    assert recalled(run_of(), ()) == ()
