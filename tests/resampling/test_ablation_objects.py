"""A kind of action that serves several objects is split, so that `cat notes` is
named rather than `cat`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from forensics import conformance
from forensics.protocols import Constraint
from forensics.records import Trajectory
from resampling.ablation.instrument import ablation
from resampling.ablation.refused_runs import (
    ObjectUse,
    action_kinds,
    object_of,
    object_use,
    recurring,
)
from tests.resampling.ablation_world import GradingWorld, Script, ScriptedPolicy, ablation_case
from tests.subjects import loaded

LEAK = {"cat notes": 0.7, "cat outputs": 0.1, "ls": 0.1}
BEFORE = Script(looks={"cat notes": 0.05, "cat outputs": 0.3, "ls": 0.3}, uses_outputs=0.3)
AFTER = Script(looks=LEAK, uses_outputs=0.3)
REFUSED, CARRIED = "refusal.over_bar", "refusal.carried"


def unnamed(**how: Any) -> GradingWorld:
    return GradingWorld(named=False, **how)


def told(folder: Path, before: Script, after: Script, **how: Any) -> Any:
    case = ablation_case(folder, before, after, world=how.pop("world", unnamed()), **how)
    return conformance.answers(ablation, case)


@pytest.mark.parametrize(
    "text,kinds,split,told",
    [
        ("cat notes ; ls", (), ("cat notes",), ("cat notes", "ls")),
        ("cat outputs ; ls", (), ("cat notes",), ("cat", "ls")),
        ("open notes", ("open-file",), ("open-file notes",), ("open-file notes",)),
        ("open -v 'notes'", ("open-file",), ("open-file notes",), ("open-file notes",)),
        ("open notes ; ls", ("open-file",), ("open-file notes",), ("open-file",)),
        ("git log notes", (), ("git log notes",), ("git log notes",)),
        ("<think>open notes</think>ls", ("open",), ("open notes",), ("open",)),
        ("cat notes", (), (), ("cat",)),
    ],
)
def test_an_action_is_told_by_its_object_where_that_is_asked_for(
    text: str, kinds: tuple[str, ...], split: tuple[str, ...], told: tuple[str, ...]
) -> None:
    assert action_kinds(text, kinds, split) == told


def test_what_is_an_object() -> None:
    commands = ("cat -n a/b.txt", "cat", "cd ../x", "/bin/cat y", "X=1 sudo cat z", "submit : 7")
    assert [object_of(one) for one in commands] == ["a/b.txt", None, "../x", "y", "z", "7"]


@pytest.mark.parametrize("more,names", [(0.2, ["a x", "a y"]), (0.21, ["a y"]), (0.5, [])])
def test_an_object_recurs_by_the_runs_that_turned_to_it(more: float, names: list[str]) -> None:
    use = {
        "a x": ObjectUse("a", 0.5, 0.7),
        "a y": ObjectUse("a", 0.0, 0.25),
        "b z": ObjectUse("b", 0.9, 0.5),
    }
    assert sorted(recurring(use, more - 1e-9)) == names and recurring(use, 0.1, 1) == ["a y"]


def test_the_object_is_named_and_not_its_kind(tmp_path: Path) -> None:
    answers = told(tmp_path, BEFORE, AFTER)
    about = {about for name, about in answers if name == CARRIED}
    assert answers[CARRIED, "cat notes"].diagnostics["carries"] is True
    assert answers["ablation.shortcut", "cat notes"].estimate == 1
    assert not answers[CARRIED, "cat"].diagnostics["carries"], "that is the other objects"
    assert answers["ablation.runs_through", "cat"].estimate == 0
    assert answers[REFUSED, None].interval.low > 0 and "cat outputs" not in about
    assert answers[REFUSED, "cat notes"].interval.high <= 0, "once the reader allows it"


def test_honest_use_of_many_objects_is_not_split(tmp_path: Path) -> None:
    looks = {"cat outputs": 0.4, "cat notes": 0.05, "ls": 0.3}
    answers = told(
        tmp_path,
        Script(looks=looks, uses_outputs=0.3),
        Script(looks={**looks, "cat outputs": 0.6}, skill=0.9, uses_outputs=0.9),
    )
    assert answers[REFUSED, None].interval.high <= 0
    assert not any(about and "notes" in about for _, about in answers)


def called(name: str, arguments: dict[str, Any], shape: str = "plain") -> str:
    """A tool call as models write it."""
    plain = {"name": name, "arguments": arguments}
    given = arguments.items()
    shapes = {
        "plain": json.dumps(plain),
        "hermes": f"<think>hm</think>Let me see.\n<tool_call>\n{json.dumps(plain)}\n</tool_call>",
        "fenced": f"I look:\n```json\n{json.dumps(plain, indent=2)}\n```",
        "list": f"[TOOL_CALLS] {json.dumps([plain])}",
        "openai": json.dumps(
            {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]}
        ),
        "llama": f"<|python_tag|>{json.dumps({'name': name, 'parameters': arguments})}",
        "qwen": f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in given)
        + "</function>\n</tool_call>",
        "xml": f'<invoke name="{name}">'
        + "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in given)
        + "</invoke>",
    }
    return shapes[shape]


@dataclass(frozen=True)
class CallingPolicy(ScriptedPolicy):
    """The same policy, but it writes tool calls; the world runs what they say."""

    def play(self, *given: Any, **named: Any) -> Iterator[Trajectory]:
        environment, tasks, samples, settings, seed, constraint, _ = given
        if constraint is not None:
            wanted = constraint.allows
            constraint = Constraint(
                name=constraint.name,
                max_redraws=constraint.max_redraws,
                allows=lambda text, kinds: wanted(as_call(text), kinds),
            )
        for run in super().play(environment, tasks, samples, settings, seed, constraint):
            steps = [
                step.model_copy(update={"text": as_call(step.text)})
                if step.role == "assistant"
                else step
                for step in run.steps
            ]
            yield run.model_copy(update={"steps": tuple(steps)})


def as_call(command: str) -> str:
    head, _, about = command.partition(" ")
    return called(head, {"path": about} if about else {}, "hermes" if head == "cat" else "plain")


def test_the_object_of_a_tool_call_is_named_and_may_be_allowed(tmp_path: Path) -> None:
    case = ablation_case(tmp_path, BEFORE, AFTER, world=unnamed(), tasks=60)
    scripts = {"before": BEFORE, "after-0": AFTER}
    calling = {side: lambda s=side, k=one: CallingPolicy(s, k) for side, one in scripts.items()}
    identities = {one.role.name: one.identity for one in case.subjects}
    case = replace(case, subjects=loaded(calling, identities))
    assert set(object_use(case, (), ("cat", "ls"))) == {"cat notes", "cat outputs"}
    answers = conformance.answers(ablation, case)
    assert answers["ablation.shortcut", "cat notes"].estimate == 1
    assert not answers[CARRIED, "cat"].diagnostics["carries"], "that is the other objects"
    assert answers[REFUSED, None].interval.low > 0
    assert answers[REFUSED, "cat notes"].interval.high <= 0, "once the reader allows it"
