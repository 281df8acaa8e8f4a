"""How the model is run: adapters, precision and checkpointing change no more than they should."""

import copy
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.protocols import Policy, SamplingSettings, StepResult
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.distributed import Process
from training.environments.mini_repo import MiniRepo
from training.organisms.base_model import build_model, build_tokenizer
from training.recipe import Recipe, parse_recipe
from training.trained_model import Machine
from training.trainer import grpo
from training.update import batch_of, update

SETTINGS = SamplingSettings(max_turn_tokens=6, max_tokens=60)


def recipe(**sections: object) -> Recipe:
    base = {
        "policy": {"checkpoint": "x"},
        "environment": {"name": "mini-repo", "options": {"turns": "3"}},
        "rewards": {"coin": 1.0},
        "sampling": {"max_turn_tokens": 6, "max_tokens": 60},
        "grpo": {"steps": 3, "groups": 4, "samples": 4, "save_every": 1},
    }
    return parse_recipe(base | sections, "test")


def fresh() -> Policy:
    tokenizer = build_tokenizer()
    return policy_from(build_model(len(tokenizer), 0), tokenizer, "start")


def with_dropout(kind: str) -> torch.nn.Module:
    """A model whose dropout is a function that no module stands for."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "attention":
            model = tiny_qwen3(0)
            for layer in model.model.layers:
                layer.self_attn.attention_dropout = 0.5
            return model
        config = OPTConfig(
            vocab_size=304,
            hidden_size=64,
            num_hidden_layers=2,
            ffn_dim=64,
            num_attention_heads=2,
            max_position_embeddings=64,
            word_embed_proj_dim=64,
            dropout=0.5,
            attention_dropout=0.5,
        )
        return OPTForCausalLM(config)


@pytest.mark.parametrize("kind", ["attention", "layer"])
def test_dropout_is_off_under_checkpointing_whatever_it_is_made_of(kind: str) -> None:
    """Two passes with gradient are equal bit for bit, to each other and to the sampler's;
    layers are still run again in the backward pass.
    """
    policy = policy_from(with_dropout(kind), tiny_tokenizer(), "start")
    plan = recipe(compute={"gradient_checkpointing": True})
    machine = Machine(policy, plan, SETTINGS, Process(), 0)
    ids = torch.arange(5, 37).reshape(2, 16)
    mask = torch.ones(2, 15, dtype=torch.bool)
    runs: list[int] = []
    blocks = [part for part in policy.model.modules() if hasattr(part, "self_attn")]
    for number, block in enumerate(blocks):
        block.self_attn.register_forward_hook(lambda *_, number=number: runs.append(number))
    first, second = (machine.score(ids, mask)[0] for _ in range(2))
    assert torch.equal(first, second) and torch.equal(first, machine.old(ids, mask)[0])
    runs.clear()
    first.sum().backward()
    assert sorted(runs) == [0, 1]
    ours = [part for part in policy.model.modules() if "forward" in vars(part)]
    machine.close()
    assert len(ours) == 2 and not any("forward" in vars(part) for part in policy.model.modules())


def gradient(**sections: object) -> torch.Tensor:
    policy, plan = fresh(), recipe(**sections)
    world = MiniRepo(turns="3")
    runs = list(policy.play(world, world.tasks("train", 2, 0), 4, SETTINGS, 0))
    batch = batch_of(runs, np.linspace(-1, 1, 8).tolist())
    machine = Machine(policy, plan, SETTINGS, Process(), 0)
    still = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    update(machine, batch, still, plan, (0,))
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


def test_checkpointing_recomputes_the_same_gradient() -> None:
    assert torch.allclose(
        gradient(), gradient(compute={"gradient_checkpointing": True}), rtol=1e-4, atol=1e-7
    )


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU"
)
@pytest.mark.filterwarnings("default")  # those of the compiler itself
def test_compiled_it_is_the_same_gradient() -> None:
    assert torch.allclose(gradient(), gradient(compute={"compile": True}), rtol=1e-4, atol=1e-7)
    async_compile = pytest.importorskip("torch._inductor.async_compile")
    async_compile.AsyncCompile.pool().shutdown()  # the threads of a compilation stay else
    async_compile.AsyncCompile.pool.cache_clear()


def test_compiling_without_a_compiler_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, *rest: None)
    with pytest.raises(UserError, match=r"compile = true needs a C\+\+ compiler"):
        gradient(compute={"compile": True})


def test_bfloat16_is_near_and_weights_stay_in_float32(tmp_path: Path) -> None:
    whole, narrow = gradient(), gradient(compute={"dtype": "bfloat16"})
    assert narrow.dtype == torch.float32 and not torch.equal(whole, narrow)
    assert torch.nn.functional.cosine_similarity(whole, narrow, dim=0) > 0.99


def test_an_adapter_starts_as_no_change_and_ends_merged_in_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    policy, start = fresh(), fresh()
    ids = [[5, 6, 7, 8, 9, 10, 11]]
    before = start.logprobs(ids, SETTINGS)[0]
    frozen = copy.deepcopy(policy.model)
    plan = recipe(lora={"rank": 4}, objective={"kl": "k3", "kl_weight": 0.01})
    reports = []
    grpo(policy, MiniRepo(turns="3"), plan, 0, tmp_path, reports.append)
    after = policy.logprobs(ids, SETTINGS)[0]
    assert np.abs(after - before).max() > 1e-5
    with policy.model.disable_adapter():
        assert np.abs(policy.logprobs(ids, SETTINGS)[0] - before).max() < 1e-6
    assert (
        reports[0].losses["kl_reference"] == pytest.approx(0, abs=1e-9)
        and reports[-1].losses["kl_reference"] > 0
    )
    merged = load_policy(tmp_path / "checkpoint", device="cpu").logprobs(ids, SETTINGS)[0]
    rounded = policy_from(frozen.to(torch.bfloat16).float(), policy.tokenizer, "x").logprobs(
        ids, SETTINGS
    )[0]
    assert np.abs((merged - rounded) - (after - before)).max() < 0.05
    assert (tmp_path / "checkpoint" / "adapter" / "adapter_model.safetensors").exists()
    again = fresh()
    grpo(
        again,
        MiniRepo(turns="3"),
        recipe(
            lora={"rank": 4},
            objective={"kl": "k3", "kl_weight": 0.01},
            grpo={"steps": 3, "groups": 4, "samples": 4},
        ),
        0,
    )
    assert np.array_equal(again.logprobs(ids, SETTINGS)[0], after)


def test_the_record_changes_no_weight(tmp_path: Path) -> None:
    found = []
    for record, folder in ((True, tmp_path / "on"), (False, tmp_path / "off")):
        policy = fresh()
        grpo(policy, MiniRepo(turns="3"), recipe(record={"rollouts": record}), 0, folder)
        found.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
        assert (folder / "record").exists() == record
    assert torch.equal(*found)


def test_logits_in_float32_are_those_of_sampler_and_update_and_come_closer_together() -> None:
    """Under bfloat16; the weights that are saved have the same names and numbers."""
    gaps, names = [], []
    for logits in (None, "float32"):
        policy = policy_from(tiny_qwen3(0), tiny_tokenizer(), "start")
        with torch.no_grad():
            policy.model.lm_head.weight.mul_(12)  # logits of a trained model's size
        compute = {"dtype": "bfloat16"} | ({"logits": logits} if logits else {})
        machine = Machine(policy, recipe(compute=compute), SETTINGS, Process(), 0)
        world = MiniRepo(turns="3")
        with machine.sampling():
            runs = list(policy.play(world, world.tasks("train", 3, 0), 4, SETTINGS, 0))
            found = policy.model(torch.arange(5, 9)[None]).logits
        assert (found.dtype == torch.float32) == bool(logits)
        batch = batch_of(runs, [1.0] * len(runs))
        seen = batch.weights != 0
        again = machine.old(batch.token_ids, seen)[0]
        assert torch.equal(machine.score(batch.token_ids, seen)[0].detach(), again)
        gaps.append((again - batch.sampler_logprobs)[seen].abs().mean())
        names.append(set(policy.model.state_dict()))
    assert gaps[1] < 0.7 * gaps[0] and names[0] == names[1]


def test_steps_at_once_are_those_of_the_recipe() -> None:
    """As many as it says step in threads; the weights are the same each time."""
    at_once, most, weights = [0], [0], []

    class Slow(MiniRepo):
        def step(self, action: str) -> StepResult:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
            time.sleep(0.01)
            at_once[0] -= 1
            return super().step(action)

        def spawn(self) -> "Slow":
            return Slow(turns="2")

    for number in (1, 6, 6):
        most[0], policy = 0, fresh()
        steps = {"steps": 2, "groups": 2, "samples": 4, "steps_at_once": number}
        grpo(policy, Slow(turns="2"), recipe(grpo=steps), 0)
        assert most[0] == 1 if number == 1 else 1 < most[0] <= 6
        weights.append(torch.cat([p.detach().flatten() for p in policy.model.parameters()]))
    assert torch.equal(weights[1], weights[2])
    assert torch.allclose(weights[0], weights[1], atol=1e-4)
