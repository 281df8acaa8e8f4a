"""Drawing again without what was refused: the distribution of the policy given
that it is none of it, exactly.
"""

from collections import Counter
from collections.abc import Sequence
from math import log

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.policies.distribution import Refusals, renormalised_without
from forensics.protocols import Constraint, Policy, SamplingSettings
from training.organisms.base_model import build_model, build_tokenizer

PREFIX, OTHER = [13, 30, 4], [20, 7, 7, 15]


def word_policy() -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 3), tokenizer, "word")


def test_the_mass_of_a_refused_action_is_taken_off_each_of_its_tokens() -> None:
    """Two refused actions, 1 2 and 1 3, and another that starts apart."""
    refusals = (
        Refusals()
        .also([1, 2], [log(0.5), log(0.4)])
        .also([1, 3], [log(0.5), log(0.1)])
        .also([7], [log(0.2)])
    )
    assert refusals.masses([]) == pytest.approx({1: 0.25, 7: 0.2})
    assert refusals.masses([1]) == pytest.approx({2: 0.4, 3: 0.1})
    assert refusals.masses([1, 2]) == {} and refusals.masses([5]) == {}


def test_what_is_left_is_the_conditional_distribution() -> None:
    before = torch.tensor([[0.5, 0.3, 0.2]] * 3).log()
    left = renormalised_without(
        before, [{0: 0.2, 2: 0.2}, {0: 0.5, 1: 0.3, 2: 0.2}, {1: 0.3}]
    ).exp()
    assert left[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert left[1].tolist() == pytest.approx([0.5, 0.3, 0.2]), (
        "where nothing is left it stays as it was"
    )
    assert left[2].tolist() == pytest.approx([5 / 7, 0.0, 2 / 7])


@pytest.mark.slow
def test_redrawn_actions_have_the_frequencies_of_plain_ones_that_were_not_refused() -> None:
    """The most frequent actions refused: the rest turn up in their own
    proportions, and nobody waits for them.
    """
    policy, settings = word_policy(), SamplingSettings(temperature=0.1, max_turn_tokens=2)
    plain = Counter(_texts(policy, settings, 2500, 1, None))
    refused = {text for text, _ in plain.most_common(8)}
    constraint = Constraint(
        name="refuse:common", allows=lambda text, kinds: text not in refused, max_redraws=8
    )
    drawn = Counter(_texts(policy, settings, 2500, 2, constraint))
    rest = {text: count for text, count in plain.items() if text not in refused}
    assert not refused & set(drawn) and sum(drawn.values()) == 2500, (
        "eight refused actions need at most eight redraws"
    )
    for text, count in Counter(rest).most_common(5):
        share, expected = drawn[text] / 2500, count / sum(rest.values())
        noise = 4 * np.sqrt(expected / 2500 + expected / sum(rest.values()))
        assert abs(share - expected) < noise, (text, share, expected)


def test_each_text_of_a_batch_is_drawn_again_from_what_is_left_of_its_own() -> None:
    policy, settings = word_policy(), SamplingSettings(temperature=0.1, max_turn_tokens=2)
    plain = Counter(
        _texts(policy, settings, 300, 1, None) + _texts(policy, settings, 300, 1, None, OTHER)
    )
    refused = dict(plain.most_common(12))
    assert sum(refused.values()) > 200, "many are drawn again"
    constraint = Constraint(
        name="refuse:common", allows=lambda text, kinds: text not in refused, max_redraws=12
    )
    together = policy.sample([PREFIX, OTHER], 300, settings, 3, constraint)
    for prefix, drawn in zip((PREFIX, OTHER), together, strict=True):
        (alone,) = policy.sample([prefix], 300, settings, 3, constraint)
        same = [one.token_ids == other.token_ids for one, other in zip(drawn, alone, strict=True)]
        assert np.mean(same) > 0.99


def _texts(
    policy: Policy,
    settings: SamplingSettings,
    n: int,
    seed: int,
    constraint: Constraint | None,
    prefix: Sequence[int] = PREFIX,
) -> list[str]:
    drawn = policy.sample([prefix], n, settings, seed, constraint)[0]
    return [policy.renderer.action_text(one.token_ids) for one in drawn if one.stop != "refused"]
