"""The token probability is that of the sampler, whatever the settings: against
frequencies, and against the formula.
"""

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from forensics import policy_from
from forensics.errors import UserError
from forensics.policies.distribution import Text, log_distribution
from forensics.protocols import Policy, SamplingSettings
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.organisms.base_model import build_model, build_tokenizer

PREFIX = [13, 30, 6, 57, 8, 52, 3, 30, 13]
SETTINGS = {
    "temperature": SamplingSettings(temperature=0.6, max_turn_tokens=2),
    "top-p": SamplingSettings(top_p=0.7, max_turn_tokens=2),
    "top-k": SamplingSettings(top_k=6, max_turn_tokens=2),
    "repetition": SamplingSettings(repetition_penalty=3.0, max_turn_tokens=2),
    "presence": SamplingSettings(presence_penalty=2.0, max_turn_tokens=2),
    "frequency": SamplingSettings(frequency_penalty=2.0, max_turn_tokens=2),
    "all": SamplingSettings(
        temperature=0.8,
        top_p=0.9,
        top_k=12,
        repetition_penalty=1.4,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        max_turn_tokens=2,
    ),
}


def word_policy() -> Policy:
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer), 3)
    model.model.norm.weight.data *= 4
    policy = policy_from(model, tokenizer, "word")
    policy.renderer.stops = frozenset()
    return policy


def chat_policy() -> Policy:
    model = tiny_qwen3(1)
    model.model.norm.weight.data *= 8
    policy = policy_from(model, tiny_tokenizer(), "chat")
    policy.renderer.stops = frozenset()
    return policy


@pytest.mark.parametrize(
    "build,name",
    [
        *((word_policy, name) for name in SETTINGS),
        (chat_policy, "all"),
        *(
            pytest.param(chat_policy, name, marks=pytest.mark.slow)
            for name in SETTINGS
            if name != "all"
        ),
    ],
)
def test_pairs_of_tokens_come_as_often_as_their_probability_says(build, name: str) -> None:
    """Two tokens a draw, so that the second is penalised for the first.
    Chi-square over all pairs, seed fixed.
    """
    policy, n = build(), 6000
    drawn = policy.sample([PREFIX], n, SETTINGS[name], seed=5)[0]
    counts = Counter(one.token_ids for one in drawn)
    stated = {one.token_ids: float(np.exp(sum(one.logprobs))) for one in drawn}
    common = [pair for pair in counts if n * stated[pair] >= 8]
    assert len(common) > 3
    rest = n - sum(counts[pair] for pair in common)
    seen, wanted = [counts[pair] for pair in common], [n * stated[pair] for pair in common]
    if (left := n - sum(wanted)) > 8:
        seen, wanted = [*seen, rest], [*wanted, left]
    assert rest <= left + 5 * max(left, 1) ** 0.5 + 2
    assert chisquare(seen, np.array(wanted) * sum(seen) / sum(wanted)).pvalue > 1e-3


@pytest.mark.parametrize("name", SETTINGS)
def test_scoring_gives_the_recorded_log_probabilities(name: str) -> None:
    policy = chat_policy()
    settings = SamplingSettings(**{**asdict(SETTINGS[name]), "max_turn_tokens": 12})
    for one in policy.sample([PREFIX], 5, settings, seed=1)[0]:
        scored = policy.logprobs([[*PREFIX, *one.token_ids]], settings, starts=[[len(PREFIX)]])[0]
        assert scored[len(PREFIX) - 1 :] == pytest.approx(one.logprobs, abs=3e-5)


def test_penalties_are_vllms() -> None:
    """Logits 2, -1, 1, 0, the text `0 1 | 1 1 2`: by hand, output counts 1 twice and 2 once."""
    settings = SamplingSettings(
        repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25
    )
    found = log_distribution(
        torch.tensor([[2.0, -1.0, 1.0, 0.0]]), settings, [Text(ids=[0, 1, 1, 1, 2], start=2)]
    )
    wanted = torch.tensor([[2 / 2, -1 * 2 - 0.5 - 2 * 0.25, 1 / 2 - 0.5 - 0.25, 0.0]]).log_softmax(
        -1
    )
    torch.testing.assert_close(found, wanted)


def test_what_needs_to_know_the_output_says_so() -> None:
    settings = SETTINGS["presence"]
    with pytest.raises(UserError, match="where each action starts"):
        word_policy().logprobs([PREFIX], settings)
    assert word_policy().logprobs([PREFIX], SETTINGS["repetition"])[0].shape == (8,)
    with pytest.raises(ValueError, match="need the text"):
        log_distribution(torch.zeros(1, 4), settings)
