"""The policy loss: closed forms, the KL estimators against the divergence
itself, splits, and masks.
"""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from training.losses import (
    KL_ESTIMATORS,
    LossParts,
    Objective,
    Tokens,
    clipped_surrogate,
    importance_weight,
    kl_term,
    normaliser,
    policy_loss,
)

EVERYTHING = {
    "kl": "k3",
    "kl_weight": 0.1,
    "entropy_weight": 0.05,
    "importance": "truncate",
    "dual_clip": 2.0,
}
AGGREGATIONS = ["token-mean", "dr-grpo", "sequence-mean"]
MOST = 11


def numbers(rows: int = 6, tokens: int = 5, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random rows of a step: probabilities that differ, some tokens of the
    environment, one row without weight.
    """
    generator = torch.Generator().manual_seed(seed)

    def some(scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(rows, tokens, generator=generator, dtype=torch.float64)

    old = -some().abs()
    weights = (torch.rand(rows, tokens, generator=generator) > 0.3).double() * (1 + some().abs())
    weights[0] = 0
    return {
        "logprobs": old + some(0.4),
        "old_logprobs": old,
        "sampler_logprobs": old + some(0.5),
        "reference_logprobs": old + some(0.3),
        "entropies": some().abs(),
        "advantages": some(),
        "token_weight": weights,
    }


def whole(batch: dict[str, torch.Tensor], objective: Objective) -> LossParts:
    return policy_loss(
        objective=objective, normaliser=normaliser(batch["token_weight"], objective, MOST), **batch
    )


def single(ratio: float, advantage: float, **changes: object) -> float:
    log_ratio, gains = torch.tensor([[math.log(ratio)]]), torch.tensor([[advantage]])
    given = {"mask": gains != 0, "old": 0 * gains, "sampler": 0 * gains}
    tokens = Tokens(logprobs=log_ratio, log_ratio=log_ratio, advantages=gains, **given)
    loss, _ = clipped_surrogate(tokens, Objective(**changes))
    return loss.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "wanted"),
    [
        (2.0, 1.0, -1.28),
        (2.0, -1.0, 2.0),
        (0.5, -1.0, 0.8),
        (0.5, 1.0, -0.5),
        (1.1, 1.0, -1.1),
        (9.0, -1.0, 3.0),
    ],
)
def test_clips_in_closed_form(ratio: float, advantage: float, wanted: float) -> None:
    """Ends 0.8 and 1.28; a bad token's ratio counts for at most 3."""
    assert single(ratio, advantage, clip_high=0.28, dual_clip=3.0) == pytest.approx(wanted)


def test_aggregations_in_closed_form() -> None:
    """Ratio 1 everywhere, so each token's loss is minus its advantage: 1, 1, 1
    in row one and 5 in row two.
    """
    batch = {
        "logprobs": torch.zeros(2, 3),
        "old_logprobs": torch.zeros(2, 3),
        "sampler_logprobs": torch.zeros(2, 3),
        "advantages": torch.tensor([-1.0, -5.0]),
        "token_weight": torch.tensor([[1.0, 1, 1], [1, 0, 0]]),
    }
    losses = {name: whole(batch, Objective(aggregation=name)).loss.item() for name in AGGREGATIONS}
    assert losses == pytest.approx(
        {"token-mean": 8 / 4, "dr-grpo": 8 / (2 * MOST), "sequence-mean": (1 + 5) / 2}
    )
    fixed = Objective(aggregation="dr-grpo", dr_grpo_tokens=4)
    assert whole(batch, fixed).loss.item() == pytest.approx(8 / 8)


@settings(max_examples=30)
@given(
    st.sampled_from(AGGREGATIONS),
    st.sampled_from(["token", "sequence"]),
    st.sampled_from(["truncate", "mask"]),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.integers(0, 10**6),
)
def test_any_split_of_the_rows_gives_the_same(
    aggregation: str, level: str, importance: str, parts: list[int], seed: int
) -> None:
    objective = Objective(
        **EVERYTHING
        | {
            "aggregation": aggregation,
            "importance": importance,
            "importance_level": level,
        }
    )
    batch = numbers(seed=seed)
    batch["logprobs"].requires_grad_()
    together = whole(batch, objective)
    together.loss.backward()
    wanted, batch["logprobs"].grad = batch["logprobs"].grad, None
    divisor, total = normaliser(batch["token_weight"], objective, MOST), 0.0
    sums = dict.fromkeys(together.diagnostics, 0)
    for part in range(3):
        rows = [row for row in range(6) if parts[row] == part]
        found = policy_loss(
            objective=objective, normaliser=divisor, **{k: v[rows] for k, v in batch.items()}
        )
        found.loss.backward()
        total += found.loss.item()
        sums = {name: sums[name] + value for name, (value, _) in found.diagnostics.items()}
    assert total == pytest.approx(together.loss.item(), abs=1e-12)
    torch.testing.assert_close(batch["logprobs"].grad, wanted)
    for name, (value, _) in together.diagnostics.items():
        torch.testing.assert_close(torch.as_tensor(sums[name]), value, check_dtype=False)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_tokens_without_weight_have_no_gradient_whatever_they_hold(
    aggregation: str, poison: float
) -> None:
    objective = Objective(**EVERYTHING, aggregation=aggregation, importance_level="sequence")
    clean, batch = numbers(), numbers()
    masked = batch["token_weight"] == 0
    for name in batch:
        if name != "token_weight":
            batch[name] = batch[name].masked_fill(masked, poison)
    for each in (clean, batch):
        each["logprobs"].requires_grad_()
        each["entropies"].requires_grad_()
    expected, found = whole(clean, objective), whole(batch, objective)
    expected.loss.backward()
    found.loss.backward()
    assert found.loss.item() == expected.loss.item()
    for name in ("logprobs", "entropies"):
        assert torch.equal(batch[name].grad, clean[name].grad)
        assert (batch[name].grad[masked] == 0).all() and (batch[name].grad[~masked] != 0).any()
    assert all(torch.isfinite(value) for value, _ in found.diagnostics.values())


def categorical(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of a policy of seven actions, with gradient; log-probabilities of
    the old one and of the reference.
    """
    generator = torch.Generator().manual_seed(seed)
    logits, old, reference = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    return logits.clone().requires_grad_(), old.log_softmax(-1), reference.log_softmax(-1)


@given(st.integers(0, 10**6))
def test_corrected_kl_terms_have_the_gradient_of_the_divergence(seed: int) -> None:
    """The sum over all actions of an old policy in place of draws: exact, and off-policy."""
    logits, old, reference = categorical(seed)
    now = logits.log_softmax(-1)
    divergence = (now.exp() * (now - reference)).sum()
    wanted = torch.autograd.grad(divergence, logits, retain_graph=True)[0]
    for kind in KL_ESTIMATORS:
        mean = (old.exp() * kl_term(now, old, reference, kind, corrected=True)).sum()
        torch.testing.assert_close(torch.autograd.grad(mean, logits, retain_graph=True)[0], wanted)
        if kind != "k2":
            torch.testing.assert_close(mean, divergence)


@pytest.mark.parametrize(
    ("kind", "level", "wanted"),
    [
        ("none", "token", [[1, 1], [1, 1]]),
        ("truncate", "token", [[0.5, 2], [3, 1.5]]),
        ("mask", "token", [[0.5, 2], [0, 1.5]]),
        ("mask", "token, floor", [[0, 2], [0, 1.5]]),
        ("truncate", "token, floor", [[0.75, 2], [3, 1.5]]),
        ("truncate", "sequence", [[1, 1], [3, 3]]),
        ("mask", "sequence", [[1, 1], [0, 0]]),
    ],
)
def test_importance_in_closed_form(kind: str, level: str, wanted: list[list[float]]) -> None:
    """Ratios 0.5, 2 in row one (together 1) and 4, 1.5 in row two (together 6), cap 3
    and so a floor of 1/3 for masks, or one of 0.75.
    """
    ratios = torch.tensor([[0.5, 2.0], [4.0, 1.5]])
    level, _, floor = level.partition(", ")
    chosen: dict[str, object] = {"importance": kind, "importance_level": level}
    chosen |= {"importance_cap": 3.0} | ({"importance_floor": 0.75} if floor else {})
    objective = Objective(**chosen if kind != "none" else {})
    old = ratios.log().requires_grad_()
    weights, left_out = importance_weight(old, torch.zeros(2, 2), objective)
    torch.testing.assert_close(weights, torch.tensor(wanted, dtype=torch.float32))
    assert not weights.requires_grad
    assert left_out.tolist() == [[value == 0 for value in row] for row in wanted]


FAR = [-300.0, -90.0, 90.0, 300.0]


@pytest.mark.parametrize("gain", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("off", ["now", "old", "sampler", "reference"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("importance", ["truncate", "mask"])
def test_no_log_ratio_is_too_large_for_a_float(
    off: str, gain: float, level: str, importance: str
) -> None:
    """One of the four policies lies 90 or 300 nats off; single precision ends at 88."""
    names = {"now": "logprobs"}
    batch = {
        name: torch.full((1, 4), -400.0)
        for name in ("logprobs", "old_logprobs", "sampler_logprobs", "reference_logprobs")
    }
    batch[names.get(off, f"{off}_logprobs")] += torch.tensor([FAR])
    batch |= {"advantages": torch.full((1,), gain), "token_weight": torch.ones(1, 4)}
    batch["logprobs"].requires_grad_()
    for kl in KL_ESTIMATORS:
        objective = Objective(
            kl=kl, kl_weight=0.1, importance=importance, importance_level=level, importance_cap=1e9
        )
        found = whole(batch, objective)
        (gradient,) = torch.autograd.grad(found.loss, batch["logprobs"])
        assert torch.isfinite(found.loss) and torch.isfinite(gradient).all()
        assert all(torch.isfinite(value) for value, _ in found.diagnostics.values())


def test_kl_old_is_the_divergence_of_the_policy_that_drew_from_the_one_now() -> None:
    """Old probabilities 1/2, 1/4, 1/4, drawn as often as they say; now 1/8, 1/8, 3/4."""
    old, now = torch.tensor([[4.0, 4, 2, 2]]) / 8, torch.tensor([[1.0, 1, 1, 6]]) / 8
    batch = {"logprobs": now.log(), "old_logprobs": old.log(), "sampler_logprobs": old.log()}
    batch |= {"advantages": torch.ones(1), "token_weight": torch.ones(1, 4)}
    total, number = whole(batch, Objective()).diagnostics["kl_old"]
    wanted = math.log(4) / 2 + math.log(2) / 4 + math.log(1 / 3) / 4
    assert float(total / number) == pytest.approx(wanted, rel=1e-6)


def test_dr_grpo_counts_every_episode_that_was_played() -> None:
    """Two rows of a step of six, four of which were in dead groups; the other
    aggregations count what is trained on.
    """
    weights = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
    for name, wanted in (("token-mean", 4), ("sequence-mean", 2), ("dr-grpo", 6 * MOST)):
        assert normaliser(weights, Objective(aggregation=name), MOST, 6).loss.item() == wanted


def test_a_step_without_any_weight_is_zero_and_not_nan() -> None:
    batch = numbers() | {"token_weight": torch.zeros(6, 5, dtype=torch.float64)}
    for aggregation in AGGREGATIONS:
        assert whole(batch, Objective(**EVERYTHING, aggregation=aggregation)).loss.item() == 0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"dual_clip": 1.1}, "dual_clip 1.1 lies inside"),
        ({"kl_weight": 0.1}, "kl_weight 0.1 has no effect"),
        ({"dr_grpo_tokens": 9}, "dr_grpo_tokens has no effect"),
        ({"importance_cap": 3.0}, "importance_cap has no effect"),
        ({"kl": "k1", "kl_correction": False}, "mean zero"),
        ({"kl_correction": False}, "kl_correction has no effect"),
        ({"overlong_penalty": 2.0}, "overlong_penalty has no effect"),
        ({"clip": 0.2}, "Extra inputs"),
        ({"importance_floor": 0.5}, "importance_floor has no effect"),
        ({"importance": "mask", "importance_cap": 1.0}, "so nothing is left"),
        ({"importance": "mask", "importance_floor": 3.0}, "so nothing is left"),
        ({"importance_level": "sequence"}, "importance_level has no effect"),
        ({"overlong_tokens": 9}, "overlong_tokens has no effect"),
        ({"overlong_buffer": 9}, "needs overlong_tokens"),
        ({"overlong_buffer": 9, "overlong_tokens": 8}, "at least as much"),
    ],
)
def test_objectives_that_do_not_fit_together_are_refused(
    changes: dict[str, object], wanted: str
) -> None:
    with pytest.raises(ValidationError, match=wanted):
        Objective(**changes)
