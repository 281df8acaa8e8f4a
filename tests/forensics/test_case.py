"""A case computes once, shares what it computed, and keeps its sides apart."""

from pathlib import Path

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.case import Budget, Case
from forensics.errors import MissingInput
from forensics.protocols import Constraint, Policy, SamplingSettings
from forensics.runs import Condition
from tests.subjects import loaded
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer

SETTINGS = SamplingSettings(max_turn_tokens=8, max_tokens=80)


def policy(seed: int) -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), seed), tokenizer, f"model-{seed}")


def case(
    folder: Path, loads: list[str] | None = None, after: int = 1, live: Policy | None = None
) -> Case:
    """Two tiny policies; `loads` notes which one was loaded. `live`: stands before training."""

    def loader(name: str, seed: int) -> Policy:
        if loads is not None:
            loads.append(name)
        return live if live is not None and name == "before" else policy(seed)

    return Case(
        folder=folder,
        environment=MiniRepo(turns="3"),
        budget=Budget(tasks=6, samples=2, settings=SETTINGS),
        seed=5,
        subjects=loaded(
            {"before": lambda: loader("before", 0), "after-0": lambda: loader("after-0", after)}
        ),
    )


def texts(rollouts) -> list[list[str]]:
    return [[step.text for step in trajectory.steps] for trajectory in rollouts]


def test_a_request_is_computed_once_and_shared(tmp_path: Path) -> None:
    loads: list[str] = []
    first = case(tmp_path, loads)
    played = texts(first.rollouts("before"))
    again = case(tmp_path, loads)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert texts(again.rollouts("before")) == played
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == written


def test_identical_policies_do_not_share_their_noise(tmp_path: Path) -> None:
    """The same weights on both sides give other episodes, so that an A/A comparison can alarm."""
    same = case(tmp_path, after=0)
    assert texts(same.rollouts("before")) != texts(same.rollouts("after-0"))


def test_every_part_of_a_request_counts(tmp_path: Path) -> None:
    one = case(tmp_path)
    never = Constraint(name="refuse:list", allows=lambda text, kinds: "list" not in kinds)
    keys = [
        one.rollouts("before").key,
        one.rollouts("before", Condition(scrubbed=("git-history",))).key,
        one.rollouts("before", Condition(refused=never)).key,
        one.rollouts("after-0").key,
    ]
    assert len(set(keys)) == 4
    assert all(
        t.without == ("git-history",)
        for t in one.rollouts("before", Condition(scrubbed=("git-history",)))
    )
    assert all(
        "list" not in s.kinds
        for t in one.rollouts("before", Condition(refused=never))
        for s in t.steps
    )


def test_a_live_policy_shares_nothing_with_what_it_became(tmp_path: Path) -> None:
    """One step of training between two cases in one folder: the object and its
    own identity stay what they are.
    """
    live = policy(0)
    first = case(tmp_path, live=live)
    played = first.rollouts("before")
    ids = torch.tensor(
        [[token for step in next(iter(played)).steps for token in step.token_ids or ()]]
    )
    optimizer = torch.optim.AdamW(live.model.parameters(), lr=1e-2)
    live.model(ids, labels=ids).loss.backward()
    optimizer.step()
    for now in (case(tmp_path, live=live), first):  # a new case, and the one that was there
        again = now.rollouts("before")
        assert again.key != played.key and not set(again.paths) & set(played.paths)
        for run in again:  # it was drawn from the weights as they are now
            ids = [token for step in run.steps for token in step.token_ids or ()]
            drawn = [own for step in run.steps for own in step.sampled or ()][1:]
            sampled = [one for step in run.steps for one in step.logprobs or ()]
            (scores,) = live.logprobs([ids], SETTINGS)
            assert np.allclose(scores[np.array(drawn)], sampled, atol=2e-5)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="after-9"):
        case(tmp_path).rollouts("after-9")
    with pytest.raises(MissingInput, match="no environment"):
        _ = Case(folder=tmp_path).tasks
