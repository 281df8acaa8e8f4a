"""One pass of each checkpoint serves every instrument; a live policy is never
taken for the one it began as.
"""

import errno
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import Budget, load_policy
from forensics.case import Case, Rollouts
from forensics.errors import MissingInput, OutsideFailure, UserError
from forensics.instruments import Instrument, run_instrument
from forensics.investigation.inputs import CaseRequest, check_inputs
from forensics.investigation.run import measure
from forensics.policies.sampled_tokens import TokenScores
from forensics.policies.score_log import score_log
from forensics.policies.score_store import PolicyRef, policy_ref, stored_scores
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Evidence, Step, Trajectory, Undefined, canonical_json
from forensics.records.tables import write_trajectories
from forensics.subjects import held_subjects
from probes import progress_advantage
from probes.case_scores import case_scores
from probes.grades.instrument import grades
from probes.kl.instrument import kl
from tests.probes.test_scoring_kept import without_ids
from tests.subjects import Loaded
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import BUNDLED
from training.recipe import parse_recipe
from training.trainer import grpo

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


def said(tool: Instrument, case: Case) -> list[str]:
    return [canonical_json(one) for one in run_instrument(tool, case)]


@pytest.mark.slow
def test_the_second_instrument_asks_nothing_of_the_models(case: Case) -> None:
    first, second = Seen(), Seen()
    told = said(grades, watched(case, first))
    assert first["before"] == first["after-0"] > 0  # each reads the log once, packed alike
    share = said(kl, watched(case, second))
    assert not second
    other = replace(case, folder=case.folder.parent / "other")
    assert said(kl, other) == share and said(grades, other) == told  # whoever comes first


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


@pytest.mark.parametrize("tool", [grades, kl])
def test_a_full_disk_is_no_answer_that_a_case_keeps(
    tool: Instrument, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    few = replace(tool, config=replace(tool.config, tasks=3))
    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
        with pytest.raises(OutsideFailure, match="no space left to write"):
            measure(case, [few], lambda what, done, of: None)
    assert not list(case.folder.glob("answers/*"))


def test_a_stored_run_that_was_changed_is_no_answer_either(case: Case) -> None:
    path = case.rollouts("after-0").paths[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(OutsideFailure, match=path.name):
        measure(case, [grades], lambda what, done, of: None)
    assert not list(case.folder.glob("answers/*"))


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


def test_a_case_of_live_policies_scores_them_as_they_are(
    case: Case, log: Rollouts, tmp_path: Path
) -> None:
    live, start = load_policy(BASE, device="cpu"), load_policy(BASE, device="cpu")
    mine = Case(
        folder=tmp_path / "live",
        environment=case.environment,
        stored={("after-0", ()): log},
        subjects=held_subjects(start, live),
    )

    def whole() -> float:
        (found,) = [one for one in run_instrument(kl, mine) if one.question == "kl.split"]
        assert isinstance(found, Evidence)
        return found.estimate

    assert whole() == 0
    trained(live, next(iter(log)))
    assert whole() > 1e-4


@dataclass
class Look:
    """A callback that scores the live policy against its start on the same log,
    as it would be done by hand.
    """

    start: Policy
    log: Rollouts
    folder: Path
    found: list[float] = field(default_factory=list)

    def on_start(self, view: Any) -> None:
        self._look(view)

    def on_step_end(self, view: Any, step_report: Any) -> None:
        self._look(view)

    def on_save(self, view: Any, folder: Path) -> None:
        """Nothing."""

    def on_end(self, view: Any) -> None:
        """Nothing."""

    def _look(self, view: Any) -> None:
        assert view.policy.identity == self.start.identity
        scores = stored_scores(
            self.folder, self.log, policy_ref(view.policy), policy_ref(self.start), settings=PLAIN
        )
        self.found.append(
            float(np.mean(np.concatenate([np.abs(scored.ratio) for scored in scores])))
        )


def test_in_a_trainer_the_ratio_to_the_start_grows_from_zero(log: Rollouts, tmp_path: Path) -> None:
    live, start = (load_policy(BASE, device="cpu", dtype="float32") for _ in range(2))
    recipe = parse_recipe(
        {
            "policy": {"checkpoint": "x"},
            "environment": {"name": "mini-repo"},
            "rewards": {"coin": 1.0},
            "grpo": {"steps": 2, "groups": 2, "samples": 4, "learning_rate": 1e-3},
            "sampling": {"max_turn_tokens": 6, "max_tokens": 200},
        },
        "test",
    )
    look = Look(start, log, tmp_path / "scores")
    grpo(live, MiniRepo(turns="2"), recipe, 1, callbacks=[look])
    assert look.found[0] == 0 and look.found[1] > 1e-4 and look.found[2] not in (look.found[1], 0)


def test_weights_that_change_between_asking_and_scoring_are_refused(
    log: Rollouts, tmp_path: Path
) -> None:
    live = load_policy(BASE, device="cpu")
    side = policy_ref(live)
    trained(live, next(iter(log)))
    with pytest.raises(UserError, match="have changed"):
        list(stored_scores(tmp_path, log, side, None, settings=PLAIN))


class Plain:
    """A backend without weights here; what it serves may change under one name."""

    identity = "server"
    capabilities = frozenset({"logprobs", "tokens"})
    context_length = None

    def __init__(self, policy: Policy) -> None:
        self.tokenizer, self.renderer, self.logprobs = (
            policy.tokenizer,
            policy.renderer,
            policy.logprobs,
        )


def test_nothing_is_kept_of_what_cannot_be_named(log: Rollouts, tmp_path: Path) -> None:
    model = load_policy(LEAK, device="cpu")
    sides = (
        policy_ref(Plain(model)),
        PolicyRef(identity="base", load=lambda: load_policy(BASE, device="cpu")),
    )
    heard: list[tuple[int, int]] = []
    found = list(
        stored_scores(
            tmp_path / "scores",
            log,
            *sides,
            settings=PLAIN,
            progress=lambda done, of: heard.append((done, of)),
        )
    )
    assert (
        len(found) == 12
        and set(found[0].columns) == {"policy", "reference"}
        and heard[-1] == (12, 12)
    )
    assert not (tmp_path / "scores").exists()


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
