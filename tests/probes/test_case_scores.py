"""One pass of each checkpoint serves every instrument; a live policy is never
taken for the one it began as.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import Budget, load_policy
from forensics.case import Case, Rollouts
from forensics.errors import MissingInput, UserError
from forensics.instruments import run_instrument
from forensics.investigation.concluded import measure
from forensics.investigation.inputs import CaseRequest, check_inputs
from forensics.policies.sampled_tokens import TokenScores
from forensics.policies.score_store import policy_ref, stored_scores
from forensics.policies.scored_log import score_log
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Evidence, Step, Trajectory, Undefined
from forensics.records.tables import write_trajectories
from probes import progress_advantage
from probes.grades.instrument import grades
from probes.grades.step_grades import case_scores
from probes.kl.instrument import kl
from tests.probes.test_scoring_kept import without_ids
from tests.subjects import Loaded
from training.organisms.organism import BUNDLED

PLAIN = SamplingSettings()
LEAK, BASE = BUNDLED / "leak", BUNDLED / "capped-base"
Seen = Counter[str]  # tokens that went through each side's model


def counted(side: str, load: Callable[[], Any], seen: Seen) -> Callable[[], Any]:
    """The loader of a policy whose model counts the tokens that it reads."""

    def loaded() -> Any:
        policy = load()
        policy.model.get_input_embeddings().register_forward_hook(
            lambda module, inputs, output: seen.update({side: inputs[0].numel()})
        )
        return policy

    return loaded


def watched(case: Case, seen: Seen) -> Case:
    return replace(
        case,
        subjects=tuple(
            Loaded(role=one.role, load=counted(one.role.name, one.open, seen), stated=one.stated)
            for one in case.subjects
        ),
    )


def damaged(case: Case) -> Case:
    """The same, but for a before that cannot be loaded."""

    def other() -> Policy:
        raise UserError("this checkpoint is damaged")

    before, *afters = case.subjects
    broken = Loaded(role=before.role, load=other, stated=before.stated)
    return replace(case, subjects=(broken, *afters))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Case:
    request = CaseRequest(
        before=BASE, after=LEAK, budget=Budget(tasks=260, samples=1), seed=11, device="cpu"
    )
    found = check_inputs(request).case(tmp_path_factory.mktemp("played") / "case")
    assert len(found.rollouts("after-0").paths) == 2
    return found


@pytest.fixture
def case(played: Case, tmp_path: Path) -> Case:
    """Of two chunks of tasks, none of them scored."""
    return replace(played, folder=Path(shutil.copytree(played.folder, tmp_path / "case")))


def test_one_pass_reads_each_checkpoint_once_in_a_whole_measurement(case: Case) -> None:
    """As `investigate` measures: no more tokens go through the models than one
    bare pass over the log takes.
    """
    seen, bare = Seen(), Seen()
    found = measure(watched(case, seen), [grades, kl], lambda what, done, of: None)
    assert {"grades.auroc", "grades.shortcut", "kl.split", "kl.channel_share"} == {
        one.question for one in found if isinstance(one, Evidence)
    }
    sides = {one.role.name: counted(one.role.name, one.open, bare)() for one in case.subjects}
    for path in case.rollouts("after-0").paths:
        part = Rollouts(key="", paths=(path,))
        assert len(list(score_log(sides["after-0"], sides["before"], part))) == len(
            list(part.rows("id"))
        )
    assert seen == bare


def test_each_takes_the_tasks_that_it_asks_for_from_the_same_pass(case: Case) -> None:
    few = {scored.trajectory.task for scored in case_scores(case, 3)[1]}
    kept = sorted(path.name for path in (case.folder / "scores").iterdir())
    many = {scored.trajectory.task for scored in case_scores(case, 260)[1]}
    assert (len(few), len(many)) == (3, 260) and few < many
    assert kept == sorted(path.name for path in (case.folder / "scores").iterdir())


def test_what_cannot_be_scored_is_undefined_with_the_reason(case: Case) -> None:
    for tool in (grades, kl):
        answers = list(run_instrument(tool, damaged(case)))
        assert answers and all(
            isinstance(one, Undefined) and "damaged" in one.reason for one in answers
        )
    with pytest.raises(MissingInput, match="damaged"):
        list(case_scores(damaged(case), 3)[1])


# --- a policy in memory ---


@pytest.fixture
def log(case: Case, tmp_path: Path) -> Rollouts:
    runs = list(case.rollouts("after-0"))[:12]
    write_trajectories(tmp_path / "log.parquet", runs)
    return Rollouts(key="the log", paths=(tmp_path / "log.parquet",))


def trained(policy: Policy, run: Trajectory) -> None:
    """One step of gradient descent, as a trainer takes it: the object and its
    identity stay what they are.
    """
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3)
    ids = torch.tensor([[token for step in run.steps for token in step.token_ids or ()]])
    policy.model(ids, labels=ids).loss.backward()
    optimizer.step()


def test_a_live_policy_against_its_start_has_a_ratio(log: Rollouts) -> None:
    live, start = load_policy(BASE, device="cpu"), load_policy(BASE, device="cpu")
    assert all((scored.ratio == 0).all() for scored in score_log(live, start, log))
    trained(live, next(iter(log)))
    assert live.identity == start.identity  # the trap
    assert max(np.abs(scored.ratio).max() for scored in score_log(live, start, log)) > 1e-3
    assert any(run.grade for run in progress_advantage(live, start, log))


def test_what_is_kept_of_a_live_policy_is_not_taken_for_what_it_became(
    log: Rollouts, tmp_path: Path
) -> None:
    live, start = load_policy(BASE, device="cpu"), load_policy(BASE, device="cpu")

    def kept() -> list[TokenScores]:
        return list(
            stored_scores(
                tmp_path / "scores", log, policy_ref(live), policy_ref(start), settings=PLAIN
            )
        )

    def files() -> int:
        return len(list((tmp_path / "scores").iterdir()))

    first = kept()
    assert all((scored.ratio == 0).all() for scored in first)
    again = kept()
    assert files() == 1 and all(
        np.array_equal(one.ratio, two.ratio) for one, two in zip(first, again, strict=True)
    )
    trained(live, next(iter(log)))
    assert max(np.abs(scored.ratio).max() for scored in kept()) > 1e-3 and files() == 2


def test_weights_that_change_between_asking_and_scoring_are_refused(
    log: Rollouts, tmp_path: Path
) -> None:
    live = load_policy(BASE, device="cpu")
    side = policy_ref(live)
    trained(live, next(iter(log)))
    with pytest.raises(UserError, match="have changed"):
        list(stored_scores(tmp_path, log, side, None, settings=PLAIN))


# --- tokenised again ---


def test_what_was_tokenised_again_is_read_back_with_its_tokens(case: Case, tmp_path: Path) -> None:
    pair = [load_policy(path, device="cpu") for path in (LEAK, BASE)]
    runs = [without_ids(run) for run in list(case.rollouts("after-0"))[:6]]
    asked = Step(role="user", text="and a word behind the last action")
    runs.append(runs[0].model_copy(update={"id": "more", "steps": (*runs[0].steps, asked)}))
    write_trajectories(tmp_path / "bare.parquet", runs)
    log = Rollouts(key="bare", paths=(tmp_path / "bare.parquet",))
    sides = [policy_ref(policy) for policy in pair]
    for found in (
        stored_scores(tmp_path / "scores", log, *sides, settings=PLAIN) for _ in range(2)
    ):
        for kept, bare in zip(found, score_log(*pair, runs), strict=True):
            assert kept.retokenised and kept.trajectory == bare.trajectory
            np.testing.assert_array_equal(kept.token, bare.token)
