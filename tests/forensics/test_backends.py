"""One policy through every backend: the same numbers, whatever runs the model."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from forensics import UserError, load_policy
from forensics.policies import require
from forensics.policies.constructed import constructed_policy
from forensics.policies.nnsight import from_nnsight
from forensics.policies.transformer_lens import from_transformer_lens
from forensics.protocols import Intervention, Policy, SamplingSettings
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

BASE, LEAK = (checkpoint_path(f"bundled:{name}") for name in ("capped-base", "leak"))
EXAMPLE = Path(__file__).parents[2] / "examples" / "models_in_memory" / "models_in_memory.py"
SITES = (
    "hook_embed",
    "blocks.0.hook_resid_pre",
    "blocks.1.hook_attn_out",
    "blocks.1.hook_mlp_out",
    "blocks.1.hook_resid_post",
)
SETTINGS = SamplingSettings(max_turn_tokens=8)
TEXTS = [[5, 3, 8, 2, 9, 4, 7], [1, 2, 3]]


@pytest.fixture(scope="module")
def ours() -> Policy:
    return load_policy(LEAK, device="cpu", dtype="float32")


@pytest.fixture(scope="module", params=["transformer-lens", "nnsight"])
def theirs(request: pytest.FixtureRequest) -> Policy:
    pytest.importorskip(request.param.replace("-", "_"))
    return load_policy(LEAK, backend=request.param, device="cpu", dtype="float32")


def test_activations_and_log_probabilities_are_the_same(ours: Policy, theirs: Policy) -> None:
    assert theirs.identity == ours.identity and theirs.capabilities == ours.capabilities
    both = (ours.activations(TEXTS, SITES), theirs.activations(TEXTS, SITES))
    for mine, other in zip(*both, strict=True):
        for site in SITES:
            np.testing.assert_allclose(other[site], mine[site], atol=2e-5)
    for mine, other in zip(*(p.logprobs(TEXTS, SETTINGS) for p in (ours, theirs)), strict=True):
        np.testing.assert_allclose(other, mine, atol=2e-5)


def test_changed_activations_change_the_same_samples(ours: Policy, theirs: Policy) -> None:
    shift = torch.randn(ours.model.config.hidden_size, generator=torch.manual_seed(0)) * 3
    for site in SITES:
        changes = [Intervention(site=site, name="shift", apply=lambda x, context: x + shift)]
        mine, other = (p.sample(TEXTS, 3, SETTINGS, 1, None, changes) for p in (ours, theirs))
        plain = ours.sample(TEXTS, 3, SETTINGS, 1)
        assert [[c.token_ids for c in row] for row in mine] == [
            [c.token_ids for c in row] for row in other
        ]
        assert mine != plain


def test_episodes_are_the_same(ours: Policy, theirs: Policy) -> None:
    world = MiniRepo(world="capped")
    tasks = world.tasks("held-out", 6, 0)
    mine, other = (
        [[step.text for step in run.steps] for run in p.play(world, tasks, 2, SETTINGS, 0)]
        for p in (ours, theirs)
    )
    assert mine == other


def test_the_librarys_own_names_are_sites() -> None:
    pytest.importorskip("transformer_lens")
    pytest.importorskip("nnsight")
    from nnsight import NNsight
    from transformer_lens.model_bridge import TransformerBridge

    model, ids = tiny_qwen3(1).eval(), torch.tensor([TEXTS[0]])
    wrapped = NNsight(model)
    with wrapped.trace(ids, use_cache=False):
        seen = wrapped.model.layers[1].mlp.output.save()
    policy = from_nnsight(wrapped, tiny_tokenizer())
    (found,) = policy.activations(TEXTS[:1], ["model.layers.1.mlp.output"])
    np.testing.assert_allclose(found["model.layers.1.mlp.output"], seen[0].detach(), atol=1e-6)
    with pytest.raises(UserError, match="no tokenizer"):
        from_nnsight(wrapped)

    bridge = TransformerBridge.boot_transformers(
        str(LEAK), device="cpu", tokenizer=load_policy(LEAK, device="cpu").tokenizer
    )
    _, cache = bridge.run_with_cache(ids)
    policy = from_transformer_lens(bridge)
    (found,) = policy.activations(TEXTS[:1], ["blocks.1.mlp.gate.hook_out"])
    np.testing.assert_allclose(
        found["blocks.1.mlp.gate.hook_out"], cache["blocks.1.mlp.gate.hook_out"][0], atol=1e-5
    )
    with pytest.raises(UserError, match="TransformerBridge"):
        from_transformer_lens(model)


def test_a_constructed_policy_has_exactly_its_probabilities() -> None:
    tokenizer = tiny_tokenizer()
    stop, size = tokenizer.eos_token_id, len(tokenizer)

    def next_token(text: tuple[int, ...]) -> np.ndarray:
        found = np.zeros(size)
        found[[65, 66, stop]] = (0.5, 0.3, 0.2) if text[-1] != 66 else (0.1, 0.2, 0.7)
        return found

    policy = constructed_policy(next_token, tokenizer, "two letters")
    (scores,) = policy.logprobs([[65, 65, 66, stop]], SETTINGS)
    np.testing.assert_allclose(np.exp(scores), [0.5, 0.3, 0.7], rtol=1e-6)
    (drawn,) = policy.sample([[65]], 2000, SamplingSettings(max_turn_tokens=2), 0)
    for first, second in product((65, 66), repeat=2):
        share = np.mean([one.token_ids[:2] == (first, second) for one in drawn])
        chance = next_token((65,))[first] * next_token((first,))[second]
        assert share == pytest.approx(chance, abs=0.03)
    table = constructed_policy({(65,): next_token((65,))}, tokenizer, "table")
    assert table.sample([[65]], 1, SamplingSettings(max_turn_tokens=1), 0)
    with pytest.raises(UserError, match="needs weights in this process"):
        require(policy, "weights", task="patching")


STRANGER = """
import numpy as np

class Mine:
    capabilities = frozenset({"logprobs"})
    def __init__(self, url, identity):
        self.identity = identity or f"mine {url}"
    def logprobs(self, token_ids, settings, starts=None):
        return [np.full(len(ids) - 1, -0.5) for ids in token_ids]

def open_policy(place, *, device="auto", dtype=None, identity=None, **options):
    return Mine(place, identity)
"""


def test_a_strangers_package_is_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: Policy
) -> None:
    """One module and one entry point: it scores a log, and what it lacks is refused."""
    from crosscoders import patch_map
    from probes import score_log

    (tmp_path / "my_backend.py").write_text(STRANGER)
    info = tmp_path / "my_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[forensics.policies]\nmine = my_backend:open_policy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = load_policy("http://there", backend="mine")
    assert policy.identity == "mine http://there"
    world = MiniRepo(world="capped")
    runs = list(ours.play(world, world.tasks("held-out", 2, 0), 1, SETTINGS, 0))
    for scored in score_log(policy, None, runs):
        assert set(scored.columns["policy"]) == {-0.5}
    with pytest.raises(UserError, match="mine http://there has logprobs"):
        patch_map(policy, ours, [])
    with pytest.raises(
        UserError, match="unknown policy 'yours'; known: constructed, huggingface, mine"
    ):
        load_policy("x", backend="yours")
