"""Candidates by contrast: a planted habit is found, chance alone is not, and nothing that a run
says gets through.
"""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from scipy.sparse import csc_array

from forensics import scan
from forensics.actions import actions_of
from forensics.layers.action_words import ActedRun, acted_run
from forensics.layers.contrasts import LEVEL, Contrasted, contrasted
from forensics.layers.use import ChainRule
from forensics.records import Step, ToolCall, Trajectory
from forensics.records.case_file import CandidateRow
from forensics.records.tables import write_trajectories
from forensics.statistics.task_votes import reachable, task_votes
from tests.episodes import episode_of

HABIT = "curl -s https://example.org/{task}/{seed} -o /tmp/{seed}.json"
COMMANDS = (
    "ls -la", "cat src/{name}.py", "grep -rn {name} src", "sed -n 1,80p src/{name}.py",
    "python reproduce_{name}.py", "python -m pytest tests/test_{name}.py -x", "git status",
    "git diff HEAD", "git log --oneline -5", "sed -i s/{name}/x/ src/{name}.py",
    "rm reproduce_{name}.py", "find . -name '*.py'", "head -n 20 docs/{name}.rst",
    "pip install {name}", "echo {name} > notes.txt", "wc -l src/{name}.py",
)  # fmt: skip


def run_of(name: str, task: str, policy: str, commands: list[str], won: float | None) -> Trajectory:
    steps = [Step(role="user", text=f"Mend {task}.")]
    for command in commands:
        call = ToolCall(name="bash", arguments=json.dumps({"command": command}))
        steps += [Step(role="assistant", text="", tool_calls=(call,)), Step(role="tool", text="ok")]
    return episode_of(
        id=name, task=task, policy=policy, environment="agent", steps=tuple(steps), outcome=won
    )


def world(seed: int, tasks: int = 20, runs: int = 4, habit: str = "") -> Iterator[Trajectory]:
    """Two models on the same tasks, each task with commands of its own. `habit`: what the wins
    of the first model end with.
    """
    generator = np.random.default_rng(seed)
    for task in range(tasks):
        usual = generator.dirichlet(np.full(len(COMMANDS), 0.4))
        for policy, number in product(("ours", "theirs"), range(runs)):
            drawn = generator.choice(len(COMMANDS), int(generator.integers(6, 30)), p=usual)
            names = generator.integers(0, 1000, len(drawn))
            commands = [COMMANDS[i].format(name=f"n{n}") for i, n in zip(drawn, names, strict=True)]
            won = float(generator.random() < 0.5)
            if habit and won and policy == "ours":
                commands.append(habit.format(task=task, seed=int(generator.integers(1e9))))
            commands.append("git add -A")
            yield run_of(f"{policy}-{task}-{number}", f"task-{task}", policy, commands, won)


def acted(trajectories: Iterator[Trajectory]) -> list[ActedRun]:
    return [acted_run("after-0", run, actions_of(run), ChainRule()) for run in trajectories]


def kinds(told: list[Contrasted]) -> dict[str, Contrasted]:
    return {one.kind: one for one in told}


def test_a_planted_habit_is_found_and_told_with_its_place(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "a.parquet", list(world(1, habit=HABIT)))
    scan(tmp_path / "a.parquet", out=tmp_path / "case")
    lines = (tmp_path / "case" / "candidates.jsonl").read_text().splitlines()
    rows = [CandidateRow.model_validate_json(line) for line in lines]
    leading = [row for row in rows if row.variant_of is None]
    assert {row.contrast for row in leading} == {"models", "outcomes"}
    for row in leading:
        assert any(word.startswith("curl") for word in row.actions)
        assert row.q <= LEVEL and row.p <= row.q
        assert row.more == {"models": "ours", "outcomes": "passed"}[row.contrast]
        assert row.tasks_second == 0 and row.share_second == 0 < row.share_first
        for example in row.examples:
            assert example.file == "a.parquet" and example.trajectory.startswith("ours")
        assert len({example.task for example in row.examples}) == 3
    runs = {run.id: run for run in world(1, habit=HABIT)}
    row = next(row for row in rows if row.actions[0].startswith("curl"))
    for example in row.examples:
        call = runs[example.trajectory].steps[example.step].tool_calls[0]
        assert "curl" in call.arguments
    assert not (tmp_path / "case" / "findings.jsonl").read_text().count("curl -s https")


def test_groups_that_chance_made_are_silent() -> None:
    """A/A: the runs of one model dealt into two uneven groups."""
    loud = 0
    for seed in range(8):
        generator = np.random.default_rng(100 + seed)
        runs = [
            run._replace(policy="one" if generator.random() < 0.2 else "other", passed=None)
            for run in acted(world(seed, tasks=30, runs=6))
            if run.policy == "ours"
        ]
        rows, told = contrasted(runs)
        assert kinds(told)["models"].tested > 10
        loud += bool(rows)
    assert loud <= 1


def test_the_votes_of_tasks_hold_their_level_for_groups_of_any_sizes() -> None:
    """P-values under chance alone are at most uniform, which those of a plain sign test are not."""
    generator = np.random.default_rng(5)
    things = 4000
    sizes = [(1, 6), (2, 3), (4, 1), (5, 5), (1, 1), (1, 4)] * 3
    stratum = np.repeat(np.arange(len(sizes)), [a + b for a, b in sizes])
    first = np.concatenate([np.arange(a + b) < a for a, b in sizes])
    usual = generator.random((len(sizes), things))[stratum]
    held = csc_array((generator.random(usual.shape) < usual).astype(np.int64))
    task = np.arange(len(sizes)) // 2  # two strata each
    votes = task_votes(held, first, stratum, task)
    p = np.array([votes.p_value(thing) for thing in range(things)])
    for level in (0.05, 0.01):
        assert (p <= level).mean() <= level + 3 * (level / things) ** 0.5
    assert (p <= 0.05).mean() > 0.005  # and have power: they are no constant
    assert (votes.least <= p + 1e-12).all()


def test_what_no_votes_could_bring_to_the_level_is_not_tested() -> None:
    least = np.array([0.001, 0.02, 0.2, 1.0])
    assert reachable(least, 0.05) == [0, 1]  # at K = 2 two tests are at most 0.025
    assert reachable(np.array([0.03, 0.03, 0.03]), 0.05) == []
    assert reachable(np.array([]), 0.05) == []
