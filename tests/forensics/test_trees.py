"""Known texts that shed forks, at the level of the decoder: what is drawn, with
which probability, at what cost.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isnan

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from forensics import policy_from
from forensics.policies.decoder import BatchDecoder
from forensics.policies.distribution import row_stream, uniforms
from forensics.policies.sequences import Branch, BranchedText
from forensics.protocols import Policy, SamplingSettings
from tests.tiny import tiny_qwen3, tiny_tokenizer

IDS = [*range(20, 40)]
SETTINGS = SamplingSettings(temperature=0.8, max_turn_tokens=8, max_tokens=60)


class Noting:
    """Ends after one action; keeps what it was told."""

    def __init__(self, number: int) -> None:
        self.uniforms: Iterator[float] = uniforms(row_stream(3, number))
        self.refusals = None
        self.ids: tuple[int, ...] = ()
        self.logprobs: tuple[float, ...] = ()
        self.stop = ""

    def action_ended(self, token_ids: Sequence[int], logprobs: Sequence[float], stop: str) -> None:
        self.ids, self.logprobs, self.stop = tuple(token_ids), tuple(logprobs), stop

    def out_of_room(self) -> None:
        self.stop = "no room"

    def no_other_token(self) -> None:
        self.stop = "no other"


def policy(sureness: float = 5.0) -> Policy:
    model = tiny_qwen3(2)
    model.model.norm.weight.data *= sureness
    return policy_from(model, tiny_tokenizer(), "chat")


def grown(policy: Policy, branches: list[Branch], settings: SamplingSettings = SETTINGS) -> None:
    prefix_caches = policy.prefix_caches([IDS])
    assert prefix_caches is not None
    for _ in policy.branch(
        [
            BranchedText(
                ids=IDS, starts=frozenset({15}), branches=branches, prefix_cache=prefix_caches[0]
            )
        ],
        settings,
    ):
        assert not torch.is_inference_mode_enabled()


def branch(kept: int, n: int, **changes: object) -> Branch:
    drivers = tuple(Noting(i) for i in range(n))
    return Branch(
        **{
            "kept": kept,
            "start": 15,
            "logprobs": (-1.0,) * (kept - 15),
            "drivers": drivers,
            **changes,
        }
    )


def distribution(policy: Policy, ids: Sequence[int]) -> np.ndarray:
    with torch.inference_mode():
        logits = policy.model(torch.tensor([list(ids)]), use_cache=False).logits[0, -1].double()
    return (logits / SETTINGS.temperature).softmax(-1).numpy()


def test_an_avoided_token_is_left_out_and_the_rest_renormalised() -> None:
    """Frequencies and recorded log-probabilities are those of what is left."""
    one = policy()
    plain = distribution(one, IDS[:17])
    ids = IDS.copy()
    ids[17] = int(plain.argmax())  # the likeliest token is the text's own
    avoiding, free = branch(17, 3000, avoid=True), branch(17, 50)
    prefix_caches = one.prefix_caches([ids])
    list(
        one.branch(
            [
                BranchedText(
                    ids=ids,
                    starts=frozenset({15}),
                    branches=[avoiding, free],
                    prefix_cache=prefix_caches[0],
                )
            ],
            SETTINGS,
        )
    )
    left = plain.copy()
    left[ids[17]] = 0
    left /= left.sum()
    counts = Counter(driver.ids[2] for driver in avoiding.drivers)
    assert ids[17] not in counts and ids[17] in {driver.ids[2] for driver in free.drivers}
    for driver in avoiding.drivers[:200]:
        assert driver.logprobs[:2] == (-1.0, -1.0)
        assert driver.logprobs[2] == pytest.approx(np.log(left[driver.ids[2]]), abs=1e-4)
    common = [token for token in counts if 3000 * left[token] > 8]
    wanted = np.array([left[token] for token in common])
    seen = np.array([counts[token] for token in common])
    assert chisquare(seen, wanted / wanted.sum() * seen.sum()).pvalue > 1e-3


def test_what_is_appended_belongs_to_the_action_and_nobody_drew_it() -> None:
    one = policy()
    added = branch(17, 5, append=(7, 8))
    grown(one, [added])
    for driver in added.drivers:
        assert driver.ids[:4] == (*IDS[15:17], 7, 8)
        assert [isnan(x) for x in driver.logprobs[:5]] == [False, False, True, True, False][
            : len(driver.logprobs)
        ]


def test_actions_that_are_over_draw_nothing() -> None:
    """By a stop token that is appended, by their length, and by the length of the text."""
    one = policy()
    stop = next(iter(one.renderer.stops))
    stopped = branch(17, 2, append=(7, stop))
    full = branch(17, 2, append=tuple(range(40, 46)))
    grown(one, [stopped, full])
    assert {(d.ids, d.stop) for d in stopped.drivers} == {((*IDS[15:17], 7, stop), "stop-token")}
    assert {(d.ids, d.stop) for d in full.drivers} == {((*IDS[15:17], *range(40, 46)), "length")}
    nowhere = branch(15, 2)
    grown(one, [nowhere], SamplingSettings(max_turn_tokens=8, max_tokens=15))
    assert {driver.stop for driver in nowhere.drivers} == {"no room"}


def test_a_policy_that_is_sure_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts of all prefixes share the text's row as far as they follow it,
    and each other's beyond.
    """
    one, greedy = policy(), SamplingSettings(temperature=0, max_turn_tokens=30, max_tokens=60)
    first = one.sample([IDS[:15]], 1, greedy, 0)[0][0].token_ids
    assert len(first) > 12
    ids = [*IDS[:15], *first]
    fed: list[int] = []
    feed = BatchDecoder._feed

    def counting(engine, rows, cache, start, end, ready):
        fed.append(len(rows) * (end - start))
        return feed(engine, rows, cache, start, end, ready)

    monkeypatch.setattr(BatchDecoder, "_feed", counting)
    branches = [branch(15 + k, 16, logprobs=(0.0,) * k) for k in range(12)]
    prefix_caches = one.prefix_caches([ids])
    list(
        one.branch(
            [
                BranchedText(
                    ids=ids,
                    starts=frozenset({15}),
                    branches=branches,
                    prefix_cache=prefix_caches[0],
                )
            ],
            greedy,
        )
    )
    assert all(driver.ids == first for one_fork in branches for driver in one_fork.drivers)
    assert sum(fed) <= len(first) + 1


@pytest.mark.parametrize("most", [1, 5, 64])
def test_no_more_runs_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    one = policy(1.0)
    one.batch_rows = most
    live: list[int] = []
    feed = BatchDecoder._feed

    def counting(engine, rows, cache, start, end, ready):
        live.append(sum(len(row.drivers) for row in rows))
        return feed(engine, rows, cache, start, end, ready)

    monkeypatch.setattr(BatchDecoder, "_feed", counting)
    branches = [branch(kept, 8) for kept in (15, 17, 18)]
    grown(one, branches)
    assert max(live) <= most and all(
        driver.ids for one_fork in branches for driver in one_fork.drivers
    )
