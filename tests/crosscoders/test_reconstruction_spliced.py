"""Models run through reconstructions: the two ends, and a direct forward pass
with the change written out.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from crosscoders.activations.harvest import HarvestConfig, StoredStream, harvest
from crosscoders.activations.streams import plain_text
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.encoded_blocks import spliced
from forensics import policy_from
from forensics.errors import UserError
from forensics.policies import score_columns as scoring
from forensics.policies.sites import attach
from forensics.protocols import Policy
from tests.crosscoders.latent_worlds import mirrored, random_dictionary, silent
from tests.tiny import tiny_qwen3, tiny_tokenizer

SITE = "blocks.0.hook_resid_post"
WIDTH = 64
TEXTS = [list(np.random.default_rng(i).integers(3, 300, 9 + 4 * i)) for i in range(3)]


def stream_of(
    policies: list[Policy],
    texts: Sequence[list[int]] = TEXTS,
    places: list[list[int]] | None = None,
    tasks: int = 1,
) -> StoredStream:
    """Texts as a stream, at all positions or at these; so many texts a task."""
    given = [plain_text(ids, f"t{i}", f"task{i // tasks}") for i, ids in enumerate(texts)]
    for text, chosen in zip(given, places or (), strict=False):
        text.deciding[chosen] = True
    config = HarvestConfig(rows="deciding" if places else "all")
    return harvest(policies, given, SITE, config)


@pytest.fixture(scope="module")
def policies() -> list[Policy]:
    """Random weights say little; larger ones make the site matter."""
    found = []
    for seed in (0, 1):
        model = tiny_qwen3(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4 if parameter.ndim > 1 else 1)
        found.append(policy_from(model, tiny_tokenizer(), f"tiny-{seed}"))
    return found


def test_a_perfect_reconstruction_recovers_everything(policies: list[Policy]) -> None:
    for result in spliced(mirrored(WIDTH), policies, stream_of(policies)):
        assert result.tokens == sum(len(text) - 1 for text in TEXTS)
        assert result.cross_entropy_spliced == pytest.approx(result.cross_entropy, abs=1e-4)
        assert result.kl_spliced == pytest.approx(0, abs=1e-5)
        assert result.kl_floor > 0.05
        assert result.kl_recovered is not None
        assert result.kl_recovered.estimate == pytest.approx(1, abs=1e-3)
        assert result.kl_recovered.low is None  # three tasks say nothing of the spread


def test_a_dictionary_that_always_says_the_mean_recovers_nothing(policies: list[Policy]) -> None:
    seen = [
        np.stack([p.activations([text], [SITE])[0][SITE][:-1] for p in policies], 1)
        for text in TEXTS
    ]
    mean = torch.from_numpy(np.concatenate(seen).mean(0))
    for result in spliced(silent(WIDTH, mean), policies, stream_of(policies)):
        assert result.kl_spliced == pytest.approx(result.kl_floor, rel=1e-3)
        assert result.kl_recovered is not None
        assert result.kl_recovered.estimate == pytest.approx(0, abs=1e-3)


def by_hand(
    dictionary: Dictionary,
    policies: Sequence[Policy],
    model: int,
    places: list[list[int]],
    floor: torch.Tensor,
) -> tuple[float, ...]:
    """Clean, spliced and floor cross-entropy and both KLs, from full logits of
    plain forward passes.
    """
    sums, count = np.zeros(5), 0
    for ids, chosen in zip(TEXTS, places, strict=True):
        h = torch.stack(
            [torch.from_numpy(p.activations([ids], [SITE])[0][SITE]) for p in policies], 1
        )
        with torch.no_grad():
            scaled = dictionary.scaled(h)
            said = dictionary.decode(dictionary.encode(scaled), model) / dictionary.scale

        def change(vectors: torch.Tensor | None, chosen: list[int] = chosen) -> object:
            def edit(activation: torch.Tensor) -> torch.Tensor | None:
                if vectors is None:
                    return None
                new = activation.clone()
                for place in chosen:
                    new[0, place] = vectors[place]
                return new

            return edit

        spreads = []
        for vectors in (None, said, floor.expand_as(said)):
            handle = attach(policies[model].model, SITE, change(vectors))
            with torch.no_grad():
                spreads.append(
                    policies[model].model(torch.tensor([ids])).logits[0].log_softmax(-1).double()
                )
            handle.remove()
        for place in chosen:
            clean = spreads[0][place]
            for i, spread in enumerate(spreads):
                sums[i] -= float(spread[place, ids[place + 1]])
            for i, spread in enumerate(spreads[1:]):
                sums[3 + i] += float((clean.exp() * (clean - spread[place])).sum())
            count += 1
    return tuple(sums / count)


@pytest.mark.parametrize("window", [4, 512])
def test_chosen_positions_against_full_logits(
    policies: list[Policy], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "WINDOW_POSITIONS", window)
    places = [[2, 3, 7], [0, 11], [5]]
    dictionary = random_dictionary(
        Partition(latents=40, before_only=5, after_only=5), seed=1, width=WIDTH
    )
    stream = stream_of(policies, places=places)
    floors = torch.cat([block.activations for block in stream.blocks()]).mean(0)
    for model, result in enumerate(spliced(dictionary, policies, stream)):
        expected = by_hand(dictionary, policies, model, places, floors[model])
        found = (
            result.cross_entropy,
            result.cross_entropy_spliced,
            result.cross_entropy_floor,
            result.kl_spliced,
            result.kl_floor,
        )
        assert result.tokens == 6
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
        share = (expected[4] - expected[3]) / expected[4]
        assert result.kl_recovered is not None
        assert result.kl_recovered.estimate == pytest.approx(share, rel=1e-2, abs=1e-3)


def test_nothing_to_measure_is_refused_and_hooks_are_gone(policies: list[Policy]) -> None:
    with pytest.raises(UserError, match="no text has a row with a token behind"):
        spliced(mirrored(WIDTH), policies, stream_of(policies, [[5]]))
    with pytest.raises(UserError, match="the dictionary is 32 wide"):
        spliced(mirrored(32), policies, stream_of(policies))
    with pytest.raises(UserError, match="2 models and the stream of 1"):
        spliced(mirrored(WIDTH), policies[:1], stream_of(policies[:1]))
    assert not any(
        module._forward_hooks for policy in policies for module in policy.model.modules()
    )
