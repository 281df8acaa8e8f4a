"""Whole logs scored: against a plain forward pass of each text alone, in every
way that the scorer reads.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings as checked, strategies as st

from forensics.errors import UserError
from forensics.policies import policy_from, score_columns
from forensics.policies.distribution import Text, log_distribution
from forensics.policies.hidden_states import HiddenStates
from forensics.policies.sampled_tokens import sampler_agreement
from forensics.policies.score_columns import TokenPositions
from forensics.policies.scored_log import score_log
from forensics.policies.shared_prefixes import PackCost, pack_by_prefix
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Step, Trajectory
from tests.episodes import episode_of
from tests.tiny import tiny_qwen3, tiny_tokenizer

VOCABULARY = 304


def bare(seed: int) -> Policy:
    model = tiny_qwen3(seed).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8)  # so that distributions are far from uniform
    return policy_from(model, tiny_tokenizer(), str(seed))


POLICY, REFERENCE = bare(0), bare(1)


def step(role: Any, ids: Sequence[int], sampled: Sequence[bool] | None = None, **more: Any) -> Step:
    own = (role == "assistant",) * len(ids) if sampled is None else tuple(sampled)
    return Step(role=role, text="", token_ids=tuple(ids), sampled=own, **more)


def run(*steps: Step, name: str = "run") -> Trajectory:
    return episode_of(id=name, task="task", policy="policy", environment="world", steps=steps)


def random_log(seed: int, texts: int, longest: int = 12) -> list[Trajectory]:
    """Runs over few tokens, so that many begin alike, and some are equal."""
    generator = np.random.default_rng(seed)

    def ids(least: int) -> list[int]:
        return generator.integers(0, 3, generator.integers(least, longest)).tolist()

    return [
        run(
            step("user", ids(1)),
            step("assistant", ids(0)),
            step("tool", ids(0)),
            step("assistant", ids(0)),
            name=f"run {i}",
        )
        for i in range(texts)
    ]


@torch.no_grad()
def plain(
    model: Any, trajectory: Trajectory, settings: SamplingSettings
) -> tuple[torch.Tensor, np.ndarray]:
    """The usual way: all logits of the text alone. Distributions at the sampled
    tokens, and which tokens those are.
    """
    ids = [i for one in trajectory.steps for i in one.token_ids or ()]
    drawn = np.flatnonzero([own for one in trajectory.steps for own in one.sampled or ()])
    if not len(drawn):
        return torch.empty(0, VOCABULARY), drawn
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, drawn - 1]
    starts, at = [], 0
    for one in trajectory.steps:
        starts += [at] if one.role == "assistant" else []
        at += len(one.token_ids or ())
    texts = [
        Text(ids=ids[:end], start=max(start for start in starts if start <= end)) for end in drawn
    ]
    return log_distribution(logits, settings, texts), np.array(ids)[drawn]


def expected(trajectory: Trajectory, settings: SamplingSettings) -> dict[str, np.ndarray]:
    """Every standard column by its definition, in float64."""
    (ours, tokens), (theirs, _) = (
        plain(one.model, trajectory, settings) for one in (POLICY, REFERENCE)
    )
    p, q = ours.double(), theirs.double()
    chance = p.exp()
    at = torch.arange(len(tokens)), torch.tensor(tokens, dtype=torch.long)
    uniform = 1 / VOCABULARY
    found = {
        "policy": p[at],
        "reference": q[at],
        "entropy": -torch.where(chance > 0, chance * p, 0.0).sum(-1),
        "kl": torch.where(chance > 0, chance * (p - q), 0.0).sum(-1),
        "self_certainty": (uniform * (np.log(uniform) - p)).sum(-1),
        "top_logprob": p.max(-1).values,
    }
    return {name: column.numpy() for name, column in found.items()}


def assert_right(log: list[Trajectory], settings: SamplingSettings, **more: Any) -> None:
    found = list(score_log(POLICY, REFERENCE, log, settings=settings, **more))
    assert [one.trajectory.id for one in found] == [one.id for one in log]
    for scored in found:
        for name, column in expected(scored.trajectory, settings).items():
            np.testing.assert_allclose(
                scored.columns[name], column, rtol=2e-5, atol=2e-5, err_msg=name
            )


SETTINGS = [
    SamplingSettings(),
    SamplingSettings(temperature=0.7),
    SamplingSettings(top_k=5),
    SamplingSettings(top_p=0.8),
    SamplingSettings(repetition_penalty=1.3, presence_penalty=0.4),
    SamplingSettings(temperature=0.0),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_column_is_what_a_plain_pass_over_each_text_gives(settings: SamplingSettings) -> None:
    assert_right(random_log(0, 40), settings)


def test_a_chunk_of_any_size_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (1, 3, 7):
        monkeypatch.setattr(score_columns, "CHUNK_BYTES", {"cpu": rows * 4 * VOCABULARY})
        assert_right(random_log(1, 30), SamplingSettings())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_packed_or_row_by_row_and_with_the_head_on_or_off(
    packed: bool, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HiddenStates, "packed", packed)
    if whole:
        monkeypatch.setattr("forensics.policies.hidden_states.output_head", lambda model: None)
    assert_right(random_log(2, 30), SamplingSettings())


@checked(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=8), st.sampled_from([2.0, 30.0, 1e9])
)
def test_a_forest_holds_every_text_once(texts: list[list[int]], square: float) -> None:
    packs = list(
        pack_by_prefix(
            [np.array(text, np.int64) for text in texts], PackCost(call=1.0, square=square)
        )
    )
    assert sorted(i for forest in packs for i in forest.texts) == list(range(len(texts)))
    for forest in packs:
        beginnings = set()
        attention_mask = forest.attention_mask()
        for number, path in zip(forest.texts, forest.paths, strict=True):
            assert forest.ids[path].tolist() == texts[number]
            assert forest.depth[path].tolist() == list(range(len(path)))
            for place, node in enumerate(path):
                assert np.flatnonzero(attention_mask[node]).tolist() == sorted(
                    path[: place + 1].tolist()
                )
            beginnings |= {tuple(texts[number][:end]) for end in range(1, len(path) + 1)}
        assert len(forest.ids) == len(beginnings)  # no beginning is there twice


def test_a_model_with_a_window_is_read_row_by_row_and_rightly() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    model = MistralForCausalLM(
        MistralConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            sliding_window=4,
            max_position_embeddings=128,
        )
    ).eval()
    assert not HiddenStates(model).packed and HiddenStates(POLICY.model).packed
    log = random_log(3, 12)
    for scored in score_log(policy_from(model, tiny_tokenizer(), "windowed"), None, log):
        spread, tokens = plain(model, scored.trajectory, SamplingSettings())
        wanted = spread[torch.arange(len(tokens)), torch.tensor(tokens, dtype=torch.long)]
        np.testing.assert_allclose(scored.columns["policy"], wanted, rtol=1e-4, atol=1e-4)


def test_swapping_flips_the_sign_and_one_checkpoint_twice_is_exactly_nothing() -> None:
    log = random_log(4, 20)
    there = list(score_log(POLICY, REFERENCE, log))
    back = list(score_log(REFERENCE, POLICY, log))
    again = list(score_log(POLICY, bare(0), log))
    for one, other, same in zip(there, back, again, strict=True):
        np.testing.assert_array_equal(one.ratio, -other.ratio)
        assert not same.ratio.any() and not same.columns["kl"].any()
    assert max(np.abs(one.ratio).max(initial=0) for one in there) > 0.1


class Counted:
    """How many positions it was ever shown at once."""

    names = ("nothing",)
    most = 0

    def __call__(self, policy: Any, reference: Any, at: TokenPositions) -> Any:
        self.most = max(self.most, len(policy), len(at.token))
        return policy[:, 0]


def test_no_more_than_a_chunk_of_distributions_is_shown_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where many runs draw at one and the same place."""
    monkeypatch.setattr(score_columns, "CHUNK_BYTES", {"cpu": 4 * 4 * VOCABULARY})
    readout = Counted()
    list(
        score_log(
            POLICY,
            REFERENCE,
            [run(step("user", [1]), step("assistant", [2]))] * 20,
            readouts=(readout,),
        )
    )
    assert readout.most == 4


def test_places_steps_and_masks() -> None:
    log = [
        run(
            step("user", [5, 6]),
            step("assistant", [7, 8, 9], [True, False, True]),
            step("assistant", []),
            step("tool", [1]),
            step("assistant", [2]),
        )
    ]
    (scored,) = score_log(POLICY, None, log)
    assert scored.step.tolist() == [1, 1, 4] and scored.place.tolist() == [0, 1, 0]
    assert scored.token.tolist() == [7, 9, 2] and not scored.unread
    assert "reference" not in scored.columns and "kl" not in scored.columns
    np.testing.assert_allclose(
        scored.columns["policy"], expected(log[0], SamplingSettings())["policy"], rtol=1e-5
    )


def test_a_long_text_loses_its_beginning_and_says_so() -> None:
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    log = [
        run(
            step("user", ids[:2]),
            step("assistant", ids[2:4]),
            step("tool", ids[4:5]),
            step("assistant", ids[5:]),
        )
    ]
    (scored,) = score_log(POLICY, REFERENCE, log, most_tokens=5)
    # kept: 1 5 9 2 6; the first of them was drawn at step 1, and nothing stands before it
    assert scored.unread == {1} and np.isnan(scored.columns["policy"]).tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]
    short = run(step("user", ids[3:5]), step("assistant", ids[5:]))
    np.testing.assert_allclose(
        scored.columns["policy"][2:], expected(short, SamplingSettings())["policy"], rtol=1e-5
    )


def test_a_run_without_actions_and_an_empty_log() -> None:
    (scored,) = score_log(POLICY, REFERENCE, [run(step("user", [1, 2]))])
    assert (
        all(len(column) == 0 for column in scored.columns.values()) and "policy" in scored.columns
    )
    assert list(score_log(POLICY, REFERENCE, [])) == []


def test_a_token_that_the_model_does_not_have() -> None:
    with pytest.raises(UserError, match="another tokenizer wrote the log"):
        list(score_log(POLICY, None, [run(step("user", [1]), step("assistant", [VOCABULARY]))]))


def test_sampler_and_scorer() -> None:
    plain_log = [run(step("user", [1, 2]), step("assistant", [3, 4]))]
    told = expected(plain_log[0], SamplingSettings())["policy"]
    log = [
        run(
            step("user", [1, 2]), step("assistant", [3, 4], logprobs=(told[0] + 0.5, told[1] - 0.1))
        )
    ]
    found = sampler_agreement(score_log(POLICY, None, log))
    assert found.tokens == 2 and found.largest == pytest.approx(0.5, abs=1e-4)
    assert found.mean == pytest.approx(0.3, abs=1e-4)
    assert sampler_agreement(score_log(POLICY, None, plain_log)).mean is None


def test_checkpoints_in_two_precisions_have_a_ratio() -> None:
    model = copy.deepcopy(POLICY.model).bfloat16()
    rounded = policy_from(model, POLICY.tokenizer, "rounded")
    ratios = np.concatenate(
        [scored.ratio for scored in score_log(POLICY, rounded, random_log(3, 5))]
    )
    assert 0 < np.abs(ratios).mean() < 0.3
