"""Runs by subject and condition: content addresses that old folders rest on, subjects of every
kind, and a series of checkpoints.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from forensics.case import Budget, Case
from forensics.errors import MissingInput, OutsideFailure, UserError
from forensics.investigation.folder import case_identities
from forensics.policies import scripted_policy
from forensics.protocols import Alteration, Constraint, Intervention, SamplingSettings
from forensics.records import Checkpoint, Step, Trajectory, content_hash
from forensics.runs import OPEN, Condition, Series, series_of
from forensics.runs.run_store import MOST, Kept, _telling_of_cuts
from forensics.subjects import BEFORE, Logs, Role, ServedPolicy, held_subjects, inspect_subjects
from tests.episodes import episode_of
from tests.forensics.score_world import stored_case
from tests.tiny import save_tiny_qwen3
from training.environments.mini_repo import MiniRepo

REFUSED = Constraint(name="refuse:x", allows=lambda text, kinds: True)
ALTERED = Alteration(name="alt", of=lambda world: world)
STEERED = Intervention(site="blocks.0.hook_resid_post", name="zero", apply=lambda a, context: a)
WARM = SamplingSettings(temperature=0.5)
HISTORY = ("git-history",)
SHARED = [309261996837925259, 839440418350909734]


class Notes:
    """Plays nothing, and notes the seeds with which it should have."""

    identity = "b"
    capabilities = frozenset({"play", "constraint"})

    def __init__(self, *runs: Trajectory) -> None:
        self.seeds: list[int] = []
        self.runs = runs

    def play(self, *asked: Any) -> Iterator[Trajectory]:
        self.seeds.append(asked[4])
        return iter(self.runs)


@pytest.mark.parametrize(("condition", "some", "name", "seeds"), [
    (OPEN, False, "open-608b97ff029e0606", SHARED),
    (Condition(scrubbed=HISTORY), False, "without-git-history-2a529c95f1b8efab", SHARED),
    (Condition(refused=REFUSED), False, "altered-open-25111629df4402a8", SHARED),
    (Condition(altered=ALTERED, scrubbed=HISTORY), False,
     "altered-without-git-history-15aef49d2e0a3065", SHARED),
    (Condition(sampling=WARM), False, "altered-open-b0606e7c57055e12", SHARED),
    (Condition(steered=(STEERED,)), False, "altered-open-3bacc466965f1446", [386865325109816713,
     151071431541022223]),
    (Condition(scrubbed=HISTORY), True, "altered-without-git-history-c19c52a7252b33e0",
     [746579686263256872]),
    (Condition(refused=REFUSED), True, "altered-open-426033c6dc2bd6b7", SHARED),
])  # fmt: skip
def test_old_folders_are_found_again(
    tmp_path: Path, condition: Condition, some: bool, name: str, seeds: list[int]
) -> None:
    """File names and seeds as they were at the commit before conditions: a case that was played
    then goes on.
    """
    policy: Any = Notes()
    case = Case(
        folder=tmp_path,
        environment=MiniRepo(turns="3"),
        budget=Budget(tasks=300, samples=2),
        seed=5,
        subjects=held_subjects(policy),
    )
    log = case.rollouts("before", condition, tasks=case.tasks[100:280] if some else None)
    assert log.paths[0].name == f"before-{name}-0000.parquet"
    assert policy.seeds == seeds


class Rolls:
    """Plays by its seed and the task, and notes which tasks."""

    identity, capabilities = "b", frozenset({"play"})

    def __init__(self) -> None:
        self.played: list[tuple[str, ...]] = []

    def play(self, world: Any, tasks: Any, samples: int, *asked: Any) -> Iterator[Trajectory]:
        self.played.append(tuple(tasks))
        for task in tasks:
            for sample in range(samples):
                text = content_hash([task, sample, asked[1]])
                steps = (Step(role="assistant", text=text),)
                yield episode_of(policy="b", task=task, sample=sample, steps=steps)


def test_an_altered_world_is_played_once_for_a_task(tmp_path: Path) -> None:
    """Also where its runs lie in two files, a task lacks a run, or the case is gone on with."""
    condition = Condition(altered=ALTERED)

    def opened(folder: str) -> tuple[Rolls, Case]:
        policy: Any = Rolls()
        case = Case(
            folder=tmp_path / folder,
            environment=MiniRepo(turns="3"),
            budget=Budget(tasks=40, samples=2),
            subjects=held_subjects(policy),
        )
        return policy, case

    def runs(case: Case, tasks: Any) -> list[Trajectory]:
        return list(case.rollouts("before", condition, tasks=tasks))

    policy, case = opened("case")
    few, other, more = case.tasks[::4], case.tasks[1:3], case.tasks[:30]
    for tasks in (few, other):
        runs(case, tasks)
    again, case = opened("case")
    merged = runs(case, more)
    (left,) = again.played
    assert {*left} == {*more} - {*few} - {*other} and len(policy.played) == 2
    fresh, apart = opened("fresh")
    assert merged == runs(apart, more) and fresh.played == [more]
    assert [run.task for run in merged] == [task for task in more for _ in range(2)]
    lost = case.rollouts("before", condition, tasks=few).paths[0]
    lost.unlink()  # as the sentence about a broken file says; `more` has most of its tasks
    assert runs(case, few) == runs(apart, few) and {*again.played.pop()} == {*few} - {*more}
    runs(case, few[:3])
    assert len(again.played) == 1  # all of them lie there
    runs_elsewhere = list(case.rollouts("before", Condition(sampling=WARM), tasks=few))
    assert len(runs_elsewhere) == 2 * len(few) and again.played[1] == few  # another world


def test_a_channel_that_the_world_does_not_declare_is_one_sentence(tmp_path: Path) -> None:
    shown = Step(role="user", text="go", channels=("git-histroy",))
    run = episode_of(policy="b", sample=0, steps=(shown,), outcome=None, end="truncated")
    policy: Any = Notes(run)
    case = Case(folder=tmp_path, environment=MiniRepo(), subjects=held_subjects(policy))
    said = "mini-repo showed the channel 'git-histroy' on task t, .* declare: .*git-history"
    with pytest.raises(OutsideFailure, match=said):
        case.rollouts("before")


@pytest.mark.parametrize(("cut", "told"), [(2, True), (1, False)])
def test_runs_that_a_limit_cut_off_are_told(
    cut: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = [*["last action cut off; wrong", "token limit"][:cut], *[None] * (4 - cut)]
    runs = [episode_of(steps=(), end_reason=reason) for reason in reasons]
    assert list(_telling_of_cuts(runs, "after", SamplingSettings())) == runs
    assert ("50 % of the runs of after were cut off at 64 tokens" in caplog.text) == told
    assert ("if training had other limits" in caplog.text) == told  # these may be its own


def test_a_condition_is_its_content() -> None:
    one = Condition(scrubbed=("b", "a"), refused=REFUSED)
    assert one.scrubbed == ("a", "b")
    assert one.key == Condition(scrubbed=["a", "b"], refused=replace(REFUSED, max_redraws=3)).key  # type: ignore[arg-type]
    each = [
        OPEN,
        Condition(scrubbed=("a",)),
        Condition(refused=REFUSED),
        Condition(altered=ALTERED),
        Condition(steered=(STEERED,)),
        Condition(sampling=WARM),
    ]
    assert len({condition.key for condition in each}) == len(each)
    assert [condition.changed for condition in each] == [False, False, True, True, True, True]


# -- subjects --------------------------------------------------------------------------


def test_a_role_is_read_from_its_name_and_nothing_else() -> None:
    assert [Role.named(name) for name in ("before", "after-0", "after-12")] == [
        BEFORE,
        Role(0),
        Role(12),
    ]
    assert sorted([Role(10), Role(2), BEFORE]) == [BEFORE, Role(2), Role(10)]
    for other in ("after", "after-x", "beforehand", "x-1"):
        with pytest.raises(ValueError, match="no subject's name"):
            Role.named(other)


def test_afters_are_in_the_order_of_their_seeds(tmp_path: Path) -> None:
    stored: Any = {(f"after-{seed}", ()): None for seed in (10, 2, 0)}
    assert Case(folder=tmp_path, stored=stored).afters == ("after-0", "after-2", "after-10")


def test_what_a_subject_cannot_do_is_said_before_it_is_opened(tmp_path: Path) -> None:
    served = ServedPolicy(role=BEFORE, url="http://127.0.0.1:9/v1")
    case = Case(folder=tmp_path, environment=MiniRepo(), subjects=(served, Logs(role=Role(0))))
    assert case.runs_models and not case.opens("after-0", "logprobs")
    for name in ("before", "after-0", "after-1"):
        with pytest.raises(MissingInput, match=f"no policy to sample for `{name}`"):
            case.rollouts(name)
    with pytest.raises(MissingInput, match="no policy to open"):
        case.policy("after-0")
    assert not replace(case, subjects=(Logs(role=Role(0)),)).runs_models


def test_a_policy_without_weights_is_stated_as_what_it_is() -> None:
    """No type, no number of parameters; under the name that older folders give it."""
    from tests.strangers import b_ticket_desk as world

    before, after = inspect_subjects(
        scripted_policy(world.BEFORE), [scripted_policy(world.AFTER)], lambda *told: None, ("play",)
    )
    assert before.stated is not None and before.identity != after.identity
    told = before.stated.model_dump(mode="json")
    assert told == {"policy": scripted_policy(world.BEFORE).identity, "tokenizer": None}
    inputs = {
        "before": told,
        "after": [told],
        "budget": {"settings": {}},
        "environment": {"name": "x", "options": {}},
        "seed": 0,
    }
    old = {"weights": before.stated.weights, "tokenizer": "none", "dtype": "none"}
    assert case_identities(inputs) == case_identities(inputs | {"before": old, "after": [old]})


def test_what_a_case_keeps_in_memory_is_declared(tmp_path: Path) -> None:
    kept, made = Kept(), []

    def make(number: int) -> int:
        made.append(number)
        return number

    for number in (*range(MOST + 1), MOST, 0):
        assert kept.made(number, lambda number=number: make(number)) == number
    assert made == [*range(MOST + 1), 0]  # the oldest went, and was made again
    case = Case(folder=tmp_path)
    assert case.kept("x", lambda: 1) == case.kept("x", lambda: 2) == 1
    assert replace(case).kept("x", lambda: 2) == 2
    named = {name for name, one in vars(Case).items() if isinstance(one, cached_property)}
    assert set(vars(case)) <= {one.name for one in fields(case)} | named


# -- a series --------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> list[Path]:
    """Three checkpoints of a run; one has its step in its name alone."""
    found = []
    for step in (1000, 0, 200):
        folder = save_tiny_qwen3(tmp_path / (f"checkpoint-{step}" if step != 200 else "mid"), step)
        if step == 200:
            (folder / "trainer_state.json").write_text('{"global_step": 200}')
        found.append(folder)
    return found


def test_checkpoints_are_in_the_order_of_their_steps(run: list[Path]) -> None:
    series = series_of(run)
    assert series.steps == (0, 200, 1000)
    assert [one.role.name for one in series.subjects] == ["before", "after-0", "after-1"]
    assert [
        [(one.role.name, one.stated.training_step) for one in pair] for pair in series.pairs()
    ] == [[("before", 0), ("after-0", 200)], [("before", 200), ("after-0", 1000)]]


def test_what_is_no_series_is_refused(run: list[Path]) -> None:
    with pytest.raises(UserError, match="needs two checkpoints"):
        series_of(run[:1])
    (run[2] / "trainer_state.json").write_text('{"global_step": 0}')
    with pytest.raises(UserError, match="both of step 0"):
        series_of(run)
    (run[2] / "trainer_state.json").unlink()
    with pytest.raises(UserError, match=r"mid does not say its training step.*checkpoint-500"):
        series_of(run)


def test_the_score_by_step_is_read_from_stored_runs(tmp_path: Path) -> None:
    wins = {"before": 1, "after-0": 4, "after-1": 2}  # of five runs of each task
    runs: Any = {
        (side, ()): {
            f"task-{n}": [(float(sample < won), "terminated") for sample in range(5)]
            for n in range(20)
        }
        for side, won in wins.items()
    }
    case = stored_case(tmp_path, runs)
    series = Series(
        checkpoints=tuple(
            Checkpoint(
                path="p", weights="w", tokenizer="t", dtype="d", parameters=1, training_step=step
            )
            for step in (0, 10, 20)
        )
    )
    found = list(series.scores(case.rollouts))
    assert [one.step for one in found] == [0, 10, 20]
    assert [one.score.estimate for one in found] == pytest.approx([0.2, 0.8, 0.4])
    assert all(one.score.low < one.score.estimate < one.score.high for one in found)
