"""Alternatives at a token and the preference pairs made of them, where every potential is known."""

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.policies.distribution import log_distribution
from forensics.policies.score_columns import TopTokens, top_tokens
from forensics.protocols import SamplingSettings
from forensics.statistics import Estimate
from resampling.study.cliff_study import Alternative, alternatives_at
from resampling.trace_rollouts import ALTERNATIVES, Trace
from tests.resampling.table_sampler import TableSampler
from tests.tiny import tiny_qwen3, tiny_tokenizer

CLIFF, GOOD, BAD, RARE = 11, 12, 13, 14
POTENTIALS = {CLIFF: 0.1, GOOD: 0.8, BAD: 0.05, RARE: 0.75}
PROBABILITIES = {CLIFF: 0.4, GOOD: 0.4, BAD: 0.1, RARE: 0.1}


def trace() -> Trace:
    """A prompt of two tokens and two sampled ones; the second is the cliff."""
    return Trace(
        id="a",
        task="t",
        ids=(1, 2, 10, CLIFF),
        positions=(2, 3),
        steps=(1, 1),
        logprobs=np.log([0.9, PROBABILITIES[CLIFF]]),
        outcome=0.0,
    )


def found(tokens: dict[int, float]) -> list[Alternative]:
    return [
        Alternative(
            token_id=i,
            probability=PROBABILITIES[i],
            potential=Estimate(estimate=p, low=0.0, high=1.0),
        )
        for i, p in tokens.items()
    ]


def test_alternatives_are_drawn_with_their_token_put_in_and_by_streams_of_their_own() -> None:
    ids = np.array([[0, 0, 0, 0]] * 2 + [[GOOD, CLIFF, BAD, RARE]])
    logprobs = np.log([[0.25] * 4] * 2 + [[0.4, 0.4, 0.1, 1e-30]])
    logprobs[2, 3] = -np.inf  # RARE cannot be drawn
    sampler = TableSampler(
        {"a": [0.5, 0.5, 0.0]}, appended={("a", 1, (i,)): p for i, p in POTENTIALS.items()}
    )
    [row] = alternatives_at(
        [(trace(), 1)], [TopTokens(ids=ids, logprobs=logprobs)], sampler, rollouts=400
    )
    assert {a.token_id for a in row} == {GOOD, CLIFF, BAD}
    for alternative in row:
        potential = alternative.potential
        assert potential is not None and potential.n == 400
        assert abs(potential.estimate - POTENTIALS[alternative.token_id]) < 0.1
        assert alternative.probability == pytest.approx(
            PROBABILITIES[alternative.token_id], rel=1e-5
        )
    assert all(request.first == ALTERNATIVES for request in sampler.asked)


@pytest.mark.parametrize(
    "settings", [SamplingSettings(), SamplingSettings(temperature=0.5, top_k=5)]
)
def test_top_tokens_are_those_of_the_whole_distribution(
    settings: SamplingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.policies.score_columns.WINDOW_POSITIONS", 3)
    policy, text = (
        policy_from(tiny_qwen3(0), tiny_tokenizer(), "tiny"),
        [5, 9, 200, 41, 7, 8, 30, 2],
    )
    with torch.inference_mode():
        whole = log_distribution(policy.model(torch.tensor([text])).logits[0, :-1], settings)
    found = top_tokens(policy, text, 20, settings)
    best = whole.topk(20, dim=-1)
    assert found.ids.shape == (7, 20)
    np.testing.assert_allclose(found.logprobs, best.values, atol=1e-5)
    ids, _ = found.at(3)
    assert set(ids[:5]) == set(best.indices[2, :5].tolist())
    p = best.values.double().softmax(-1)
    np.testing.assert_allclose(found.entropies(), -torch.special.xlogy(p, p).sum(-1), atol=1e-4)
