"""The policy loss: closed forms, the KL estimators against the divergence
itself, splits, and masks.
"""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from training.divergences import KL_ESTIMATORS, kl_term
from training.losses import (
    LossParts,
    Objective,
    Tokens,
    clipped_surrogate,
    importance_weight,
    normaliser,
    policy_loss,
)
from training.rollouts import overlong_penalty

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
    tokens = Tokens(logprobs=log_ratio, log_ratio=log_ratio, advantages=gains)
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


@given(st.floats(0.01, 50), st.floats(-4, 4), st.floats(1.3, 5))
def test_dual_clip_bounds_the_loss_of_bad_tokens_and_touches_no_other(
    ratio: float, gain: float, cap: float
) -> None:
    bounded, plain = single(ratio, gain, dual_clip=cap), single(ratio, gain)
    assert bounded <= max(cap * abs(gain), plain if gain >= 0 else 0) + 1e-4
    if gain >= 0 or ratio <= cap:
        assert bounded == pytest.approx(plain, rel=1e-5)


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


@given(st.integers(0, 10**6))
def test_aggregations_agree_where_all_rows_are_equally_long(seed: int) -> None:
    batch = numbers(seed=seed) | {"token_weight": torch.ones(6, 5, dtype=torch.float64)}
    one, two, three = (
        whole(
            batch,
            Objective(
                aggregation=name, **EVERYTHING, dr_grpo_tokens=5 if name == "dr-grpo" else None
            ),
        ).loss
        for name in AGGREGATIONS
    )
    torch.testing.assert_close(one, two)
    torch.testing.assert_close(one, three)


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


def test_the_gradient_scales_with_the_token_weight() -> None:
    """Doubling one token's weight at a fixed normaliser doubles its gradient and no other."""
    batch, objective = numbers(), Objective(**EVERYTHING)
    divisor, gradients = normaliser(batch["token_weight"], objective, MOST), []
    at = tuple(batch["token_weight"].nonzero()[3].tolist())
    for factor in (1.0, 2.0):
        weights = batch["token_weight"].clone()
        weights[at] *= factor
        leaf = batch["logprobs"].clone().requires_grad_()
        changed = batch | {"logprobs": leaf, "token_weight": weights}
        policy_loss(objective=objective, normaliser=divisor, **changed).loss.backward()
        gradients.append(leaf.grad)
    ratio = torch.ones_like(gradients[0])
    ratio[at] = 2.0
    torch.testing.assert_close(gradients[1], gradients[0] * ratio)


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
        mean = (old.exp() * kl_term(now, old, reference, Objective(kl=kind))).sum()
        torch.testing.assert_close(torch.autograd.grad(mean, logits, retain_graph=True)[0], wanted)
        if kind != "k2":
            torch.testing.assert_close(mean, divergence)


@given(st.integers(0, 10**6))
def test_bare_kl_estimators_against_their_definitions(seed: int) -> None:
    """On-policy: k1 and k3 have the value; the derivative of k1 vanishes, that
    of k3 is of the other direction.
    """
    logits, _, reference = categorical(seed)
    now = logits.log_softmax(-1)
    drawn = now.exp().detach()
    means = {
        name: (drawn * estimate(now, reference)).sum() for name, estimate in KL_ESTIMATORS.items()
    }
    gradients = {
        name: torch.autograd.grad(mean, logits, retain_graph=True)[0]
        for name, mean in means.items()
    }
    forwards, backwards = (
        (now.exp() * (now - reference)).sum(),
        (reference.exp() * (reference - now)).sum(),
    )
    torch.testing.assert_close(means["k1"], forwards)
    torch.testing.assert_close(means["k3"], forwards)
    torch.testing.assert_close(means["k2"], (drawn * (now - reference) ** 2).sum() / 2)
    assert gradients["k1"].abs().max() < 1e-12
    torch.testing.assert_close(gradients["k3"], torch.autograd.grad(backwards, logits)[0])
    plain = Objective(kl="k3", kl_correction=False)
    assert torch.equal(kl_term(now, now - 1, reference, plain), KL_ESTIMATORS["k3"](now, reference))


def test_k3_is_never_negative_and_zero_only_at_equality() -> None:
    gap = torch.linspace(-3, 3, 61, dtype=torch.float64)
    values = KL_ESTIMATORS["k3"](torch.zeros_like(gap), gap)
    torch.testing.assert_close(values, gap.exp() - gap - 1)
    assert (values >= 0).all() and values.argmin() == 30


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


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_mask_leaves_out_what_is_too_rare_as_what_is_too_common(level: str) -> None:
    """Ratios just inside and just beyond 1/3 and 3, each in a row of its own."""
    ratios = torch.tensor([[0.33], [0.34], [2.9], [3.1]])
    objective = Objective(importance="mask", importance_level=level, importance_cap=3.0)
    weights, left_out = importance_weight(ratios.log(), torch.zeros(4, 1), objective)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0, 0.34, 2.9, 0]))
    assert left_out.flatten().tolist() == [True, False, False, True]
    low = Objective(importance="mask", importance_cap=3.0, importance_floor=0.0)
    assert importance_weight(ratios.log(), torch.zeros(4, 1), low)[0][0] == pytest.approx(0.33)


def test_the_correction_scales_the_surrogate_but_not_the_reference_term() -> None:
    """Sampler half as likely as the trainer: twice the policy gradient, the
    same pull to the reference.
    """
    batch = {name: torch.zeros(1, 1) for name in ("logprobs", "old_logprobs", "reference_logprobs")}
    batch |= {
        "sampler_logprobs": torch.full((1, 1), -math.log(2)),
        "advantages": torch.ones(1),
        "token_weight": torch.ones(1, 1),
    }
    objective = Objective(importance="truncate", kl="k2", kl_weight=0.5, importance_cap=5.0)
    assert whole(batch, objective).loss.item() == pytest.approx(-2.0)
    batch["reference_logprobs"] = torch.ones(1, 1)
    assert whole(batch, objective).loss.item() == pytest.approx(-2.0 + 0.5 * 0.5)


def test_diagnostics_count_what_the_clips_stopped() -> None:
    """Three of four tokens with weight: one stopped below, one above, one beyond the dual clip."""
    ratios = torch.tensor([[0.5, 2.0, 5.0, 9.0]])
    batch = {
        "logprobs": ratios.log(),
        "old_logprobs": torch.zeros(1, 4),
        "sampler_logprobs": torch.zeros(1, 4),
        "advantages": torch.tensor([[-1.0, 1.0, -1.0, -1.0]]),
        "token_weight": torch.tensor([[1.0, 1.0, 1.0, 0.0]]),
        "entropies": torch.tensor([[1.0, 2.0, 3.0, math.nan]]),
    }
    found = {
        name: (value.item(), weight.item())
        for name, (value, weight) in whole(batch, Objective(dual_clip=3.0)).diagnostics.items()
    }
    assert found["clip_low"] == found["clip_high"] == found["clip_dual"] == (1, 3)
    assert found["entropy"] == (6, 3)
    assert found["kl_old"][0] == pytest.approx(sum(r - 1 - math.log(r) for r in (0.5, 2.0, 5.0)))


@given(st.integers(0, 10**6))
def test_kl_old_is_the_divergence_of_the_policy_that_drew(seed: int) -> None:
    """Every action once, weighted by its chance under the old policy, in place of draws."""
    logits, old, _ = categorical(seed)
    now = logits.detach().log_softmax(-1)
    total = 0.0
    for action in range(7):
        batch = {
            "logprobs": now[action].reshape(1, 1),
            "old_logprobs": old[action].reshape(1, 1),
            "sampler_logprobs": old[action].reshape(1, 1),
            "advantages": torch.zeros(1),
            "token_weight": torch.ones(1, 1),
        }
        value, number = whole(batch, Objective()).diagnostics["kl_old"]
        total += old[action].exp().item() * value.item() / number.item()
    assert total == pytest.approx((old.exp() * (old - now)).sum().item(), rel=1e-4, abs=1e-6)


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


@given(st.floats(-19.9, 19.9), st.sampled_from([-1.0, 1.0]))
def test_a_ratio_that_fits_is_what_it_was(gap: float, gain: float) -> None:
    """Value and gradient, written out without any limit."""
    now = torch.tensor([[gap]], dtype=torch.float64, requires_grad=True)
    tokens = {"logprobs": now, "old_logprobs": torch.zeros(1, 1), "token_weight": torch.ones(1, 1)}
    tokens |= {"sampler_logprobs": torch.zeros(1, 1), "advantages": torch.tensor([gain])}
    found = torch.autograd.grad(whole(tokens, Objective()).loss, now)[0].item()
    ratio = math.exp(gap)
    moves = ratio < 1.2 if gain > 0 else ratio > 0.8
    assert found == pytest.approx(-gain * ratio if moves else 0.0, rel=1e-5)


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


def test_missing_inputs_are_named() -> None:
    batch = numbers()
    del batch["reference_logprobs"]
    with pytest.raises(ValueError, match="reference_logprobs"):
        whole(batch, Objective(kl="k1"))
    del batch["entropies"]
    with pytest.raises(ValueError, match="entropies"):
        whole(batch, Objective(entropy_weight=0.1))


@pytest.mark.parametrize(
    ("length", "wanted"), [(0, 0.0), (80, 0.0), (90, -1.0), (100, -2.0), (130, -2.0)]
)
def test_overlong_penalty_in_closed_form(length: int, wanted: float) -> None:
    """Limit 100, buffer 20, penalty 2: from 80 on in a straight line."""
    objective = Objective(overlong_buffer=20, overlong_tokens=100, overlong_penalty=2.0)
    assert overlong_penalty(length, objective) == pytest.approx(wanted)
    assert overlong_penalty(length, Objective()) == 0


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
