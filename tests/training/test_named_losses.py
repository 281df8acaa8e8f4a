"""Losses that are chosen by name, and what is left out of a step: verl's formulas where
TRL has none, splits, far-off numbers, recipes, and an exact resume.

The functions `verl_*` are written from verl 0.10's source (`core_algos.py`,
`rollout_corr_helper.py`), on tensors `[rows, tokens]`; verl itself is not run.
"""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from forensics.errors import UserError
from forensics.policies import policy_from
from tests.training.test_trl_losses import BATCHES, TOLERANCE, gap, objective, our_loss, random_rows
from training.environments.mini_repo import MiniRepo
from training.losses import LossSection, Objective, normaliser, policy_loss
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import parse_recipe
from training.rollouts import overlong_penalty
from training.trainer import grpo

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
NAMES = ["cispo", "clipped", "gspo", "sapo"]


def verl_sequence_mean(losses: Tensor, mask: Tensor) -> Tensor:
    """`agg_loss(..., "seq-mean-token-mean")`."""
    return ((losses * mask).sum(-1) / (mask.sum(-1) + 1e-8)).mean()


def verl_gspo(old: Tensor, now: Tensor, gains: Tensor, mask: Tensor, low: float, high: float):
    ratio = now - old
    whole = (ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    ratio = (now - now.detach() + whole.detach().unsqueeze(-1)).clamp(max=10.0).exp()
    losses = torch.maximum(-gains * ratio, -gains * ratio.clamp(1 - low, 1 + high))
    return verl_sequence_mean(losses, mask)


def verl_cispo(old: Tensor, now: Tensor, gains: Tensor, mask: Tensor, low: float, high: float):
    ratio = (now - old).clamp(-20.0, 20.0).exp().clamp(1 - low, 1 + high).detach()
    return (-ratio * gains * now * mask).sum() / mask.sum()


def verl_sapo(old: Tensor, now: Tensor, gains: Tensor, mask: Tensor, up: float, down: float):
    taus = torch.where(gains > 0, torch.tensor(up), torch.tensor(down))
    gates = torch.sigmoid(taus * ((now - old).clamp(-20.0, 20.0).exp() - 1.0)) * (4.0 / taus)
    return verl_sequence_mean(-gates * gains, mask)


VERL: dict[str, tuple[Any, tuple[float, float], dict[str, Any]]] = {
    "gspo": (verl_gspo, (0.05, 0.08), {"level": "token", "clip_low": 0.05, "clip_high": 0.08}),
    "cispo": (verl_cispo, (0.2, 0.28), {"clip_low": 0.2, "clip_high": 0.28}),
    "sapo": (verl_sapo, (1.0, 2.0), {"temperature_positive": 1.0, "temperature_negative": 2.0}),
}


@pytest.mark.parametrize("name", VERL)
def test_they_are_verls_formulas(name: str) -> None:
    formula, ends, keys = VERL[name]
    for seed in BATCHES:
        rows = random_rows(seed)
        gains, mask = rows["advantages"][:, None].expand_as(rows["mask"]), rows["mask"].float()
        theirs = formula(rows["old"], rows["now"], gains, mask, *ends)
        assert (
            gap(our_loss(rows, objective({"loss": name} | keys)), theirs, rows["now"]) < TOLERANCE
        )


def verl_seq_mean_k1(log_ratio: Tensor, mask: Tensor, lower: float, upper: float) -> Tensor:
    """`compute_rollout_rejection_mask(..., "seq_mean_k1")`: which tokens stay."""
    k1 = -log_ratio.clamp(-20.0, 20.0)
    mean = (k1 * mask).sum(-1) / (mask.sum(-1) + 1e-8)
    return mask * ((mean >= math.log(lower)) & (mean <= math.log(upper)))[:, None]


def test_rows_are_left_out_by_their_geometric_mean_as_in_verl() -> None:
    """The loss is the sum over what verl keeps; its divisor stays that of all rows."""
    left = 0
    for seed in BATCHES:
        rows, limit = random_rows(seed), 1.02
        kept = verl_seq_mean_k1(rows["old"] - rows["sampler"], rows["mask"], 1 / limit, limit)
        left += int((rows["mask"] & ~kept).sum())
        ratio = (rows["now"] - rows["old"]).exp()
        gains = rows["advantages"][:, None]
        token = -torch.minimum(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
        theirs = (token * kept).sum() / rows["mask"].sum()
        ours = our_loss(rows, Objective(geometric_limit=limit))
        assert gap(ours, theirs, rows["now"]) < TOLERANCE
        assert gap(our_loss(rows, Objective()), theirs, rows["now"]) > 1e-3
    assert left > 100


@pytest.mark.parametrize("name", NAMES)
def test_any_split_adds_up(name: str) -> None:
    """Rows one by one, each cut to its own length, one of them without a token."""
    keys = {"loss": name, "geometric_limit": 1.05, "off_policy_limit": 0.1, "importance": "mask"}
    rows, chosen = random_rows(0), objective(keys)
    rows["mask"][3] = False
    together = our_loss(rows, chosen)
    weight = rows["mask"].float()
    divisor, total = normaliser(weight, chosen, 12), 0.0
    for row in range(len(weight)):
        last = int(weight[row].nonzero().max()) + 1 if weight[row].any() else 2
        part = {n: rows[n][row : row + 1, :last] for n in ("now", "old", "sampler")}
        total += policy_loss(
            part["now"],
            old_logprobs=part["old"],
            sampler_logprobs=part["sampler"],
            advantages=rows["advantages"][row : row + 1],
            token_weight=weight[row : row + 1, :last],
            objective=chosen,
            normaliser=divisor,
        ).loss
    assert gap(total, together, rows["now"]) < 1e-6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gain", [-1.0, 0.0, 1.0])
def test_no_log_ratio_is_too_large_and_no_idle_token_counts(name: str, gain: float) -> None:
    now = torch.tensor([[-700.0, -310.0, -1.0, math.nan]], requires_grad=True)
    found = policy_loss(
        now,
        old_logprobs=torch.tensor([[-400.0, -400.0, -400.0, math.inf]]),
        sampler_logprobs=torch.tensor([[-1.0, -400.0, -490.0, math.nan]]),
        advantages=torch.tensor([gain]),
        token_weight=torch.tensor([[1.0, 1.0, 1.0, 0.0]]),
        objective=objective({"loss": name, "off_policy_limit": 1e3, "geometric_limit": 1e9}),
        normaliser=normaliser(torch.ones(1, 3), Objective(), 12),
    )
    (gradient,) = torch.autograd.grad(found.loss, now)
    assert torch.isfinite(found.loss) and torch.isfinite(gradient).all() and gradient[0, 3] == 0
    assert all(torch.isfinite(value) for value, _ in found.diagnostics.values())


def test_at_a_ratio_of_one_all_have_the_gradient_of_reinforce() -> None:
    rows = random_rows(0)
    rows["old"] = rows["now"].detach()
    weighted = -rows["advantages"][:, None] * rows["now"] * rows["mask"]
    wanted = torch.autograd.grad(weighted.sum() / rows["mask"].sum(), rows["now"])[0]
    for name in NAMES:
        loss = our_loss(rows, objective({"loss": name, "aggregation": "token-mean"}))
        torch.testing.assert_close(torch.autograd.grad(loss, rows["now"])[0], wanted)


def content(grpo: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {
        "policy": {"checkpoint": "x"},
        "environment": {"name": "mini-repo", "options": {"turns": "3"}},
        "rewards": {"coin": 1.0},
        "sampling": {"max_turn_tokens": 6, "max_tokens": 60},
        "grpo": {"steps": 2, "groups": 3, "samples": 4, "save_every": 1} | (grpo or {}),
        "objective": keys,
    }


@pytest.mark.parametrize(
    ("grpo_keys", "keys", "wanted"),
    [
        ({}, {"loss": "gspo", "temperature_positive": 2.0}, "unknown key 'temperature_positive'"),
        ({}, {"loss": "cispo", "dual_clip": 3.0}, "unknown key 'dual_clip' in \\[objective\\]"),
        ({}, {"loss": "sapo", "clip_high": 0.3}, "unknown key 'clip_high'"),
        ({}, {"level": "token"}, "unknown key 'level'"),
        ({}, {"loss": "gspo", "dual_clip": 1.0001}, "lies inside the ordinary clip"),
        ({}, {"geometric_limit": 1.0}, "greater than 1"),
        ({}, {"geometric_limit": 1.01}, "geometric_limit corrects .* set recompute_old = true"),
        ({"advantages": "rloo", "scaling": "none"}, {}, 'scaling has no effect with .* "rloo"'),
        ({"advantages": "gdpo", "scaling": "batch"}, {}, "scaling has no effect"),
        ({"advantages": "pass-at-k", "dead_tolerance": 0.1}, {}, "dead_tolerance has no effect"),
        ({"advantages": "pass-at-k"}, {}, "pass_k 4 must be below samples 4"),
        ({"pass_k": 2}, {}, "unknown key 'pass_k' in \\[grpo\\]"),
        ({"advantages": 3}, {}, "grpo.advantages: Input should be a valid string"),
    ],
)
def test_what_does_not_fit_is_refused(
    grpo_keys: dict[str, Any], keys: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(UserError, match=wanted):
        parse_recipe(content(grpo_keys, **keys), "mine")


def test_a_recipe_takes_the_defaults_of_its_loss_and_estimator() -> None:
    estimator = {"advantages": "pass-at-k", "pass_k": 2}
    given = parse_recipe(content(estimator, loss="gspo"), "mine")
    assert given.objective.aggregation == "sequence-mean"
    assert (given.objective.clip_low, given.objective.clip_high) == (3e-4, 4e-4)
    again = parse_recipe(given.model_dump(mode="json"), "what was written")
    assert again.model_dump() == given.model_dump() and again.grpo.model_dump()["pass_k"] == 2
    assert parse_recipe(content(loss="cispo"), "mine").objective.aggregation == "token-mean"


def test_the_recipe_of_dapo_is_what_the_page_says() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (text,) = (block for block in blocks if "[objective]" in block)
    given = parse_recipe(tomllib.loads(text), "the page")
    chosen = given.objective
    assert (chosen.clip_low, chosen.clip_high, chosen.kl) == (0.2, 0.28, "none")
    assert chosen.aggregation == "token-mean" and given.grpo.filter == "dead" and given.grpo.refill
    punished = [overlong_penalty(drawn, chosen) for drawn in (16_384, 18_432, 20_480)]
    assert punished == [0.0, -0.5, -1.0]


def trained(folder: Path, die: bool, loss: str, advantages: str) -> tuple[Tensor, dict[str, float]]:
    """Weights after two steps, killed after the first or not; what the last one told."""
    keys = {"pass_k": 2} if advantages == "pass-at-k" else {}
    sharp = {"clip_low": 0.0, "clip_high": 0.0} if loss == "gspo" else {}
    given = {"advantages": advantages, "recompute_old": True, "epochs": 2} | keys
    recipe = parse_recipe(content(given, loss=loss, importance="truncate", **sharp), "mine")
    tokenizer, told = build_tokenizer(), {}
    policy = policy_from(build_model(len(tokenizer), 0), tokenizer, "start")

    def report(step: Any) -> None:
        told.update(step.losses)
        if die and step.step == 1:
            raise KeyboardInterrupt

    try:
        grpo(policy, MiniRepo(turns="3"), recipe, 3, folder, report)
    except KeyboardInterrupt:
        return trained(folder, False, loss, advantages)
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()]), told


@pytest.mark.parametrize(
    ("loss", "advantages", "own"),
    [("cispo", "gdpo", "clip_high"), ("gspo", "rloo", "clip_low"), ("sapo", "pass-at-k", "gate")],
)
def test_a_killed_run_goes_on_bit_for_bit(
    loss: str, advantages: str, own: str, tmp_path: Path
) -> None:
    """As with the clipped surrogate (`test_grpo`)."""
    whole, told = trained(tmp_path / "whole", False, loss, advantages)
    killed, _ = trained(tmp_path / "killed", True, loss, advantages)
    assert torch.equal(whole, killed) and own in told


def test_a_section_of_another_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="give a Gspo, not a Objective"):
        Objective(loss="gspo")
    with pytest.raises(ValueError, match="give a Objective, not a LossSection"):
        LossSection()
