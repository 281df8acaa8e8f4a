"""Grafting one module's weights: pairs in which one module differs, the bundled
leak pair, and played episodes.
"""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from crosscoders.patching.decisions import Behaviour
from crosscoders.patching.hybrids import grafted, pieces_of
from crosscoders.patching.maps import graft_map
from forensics import policy_from
from tests.crosscoders.patching_worlds import bundled, changed, random_decisions, shaken, tiny
from tests.tiny import tiny_tokenizer

# at random the behaviour moves up here and down there; four tasks have no interval
SOME = Behaviour(name="some", actions=((5,), (9, 7)))
MODULES = {
    "blocks.0.attn": lambda model: model.model.layers[0].self_attn,
    "blocks.1.mlp": lambda model: model.model.layers[1].mlp,
    "blocks.1.post_attention_layernorm": lambda model: (
        model.model.layers[1].post_attention_layernorm
    ),
    "final_norm": lambda model: model.model.norm,
}


@pytest.fixture(scope="module")
def base():
    return bundled("capped-base")


@pytest.fixture(scope="module")
def leak():
    return bundled("leak")


@pytest.mark.parametrize("name", MODULES)
def test_where_one_module_differs_its_graft_moves_everything_and_no_other_anything(name):
    before = tiny(0)
    after = changed(before, lambda model: shaken(MODULES[name](model)))
    found = graft_map(before, after, random_decisions(16, 4), behaviour=SOME)
    assert found.kl.estimate > 1e-4
    for row in found.rows:
        holds = name in row.change.place.split("+")
        moved = (not holds) if row.change.direction == "all-but" else holds
        assert row.kl_moved.estimate == moved, row.change
        assert row.behaviour_moved.estimate == pytest.approx(float(moved), abs=1e-12), row.change
        assert (row.change.relative_change > 0) == holds


def test_patching_the_embedding_everywhere_is_grafting_its_input_side():
    from crosscoders.patching.maps import patch_map

    before, after = tiny(0), tiny(1)
    texts = random_decisions(16, 4)
    patch = patch_map(before, after, texts, behaviour=SOME, sites=["hook_embed"], positions=["all"])
    graft = graft_map(before, after, texts, behaviour=SOME, modules=["embed"])
    for way in ("into-before", "into-after"):
        one, other = patch.row("hook_embed", way, "all"), graft.row("embed", way)
        assert (one.kl_moved, one.behaviour_moved, one.chance) == (
            other.kl_moved,
            other.behaviour_moved,
            other.chance,
        )
        assert one.kl_moved.estimate != 0


def test_the_weights_are_afterwards_what_they_were():
    before, after = tiny(0), tiny(1)
    held = [
        {name: (value, value.detach().clone()) for name, value in side.model.named_parameters()}
        for side in (before, after)
    ]
    graft_map(before, after, random_decisions(9, 9))
    own, other = (pieces_of(side.model).of("blocks.0.mlp") for side in (before, after))
    with pytest.raises(RuntimeError, match="amid"), grafted(own, other):
        assert (
            before.model.model.layers[0].mlp.up_proj.weight
            is after.model.model.layers[0].mlp.up_proj.weight
        )
        raise RuntimeError("amid the graft")
    for side, kept in zip((before, after), held, strict=True):
        now = dict(side.model.named_parameters())
        assert set(now) == set(kept)
        assert all(
            now[name] is one and torch.equal(one, copy) for name, (one, copy) in kept.items()
        )
        assert side.model.lm_head.weight is side.model.model.embed_tokens.weight


def _gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=304, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    )


def _llama():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=304,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=False,
            attention_bias=True,
            max_position_embeddings=64,
        )
    )


@pytest.mark.parametrize("make", [lambda: tiny(0).model, _gpt2, _llama])
def test_every_parameter_belongs_to_one_module(make):
    model = make()
    pieces = pieces_of(model)
    places = [weight for name in pieces.names for weight in pieces.of(name)]
    assert len(set(places)) == len(places)
    owned = {id(module._parameters[name]) for module, name in places if name in module._parameters}
    assert owned == {id(parameter) for parameter in model.parameters()}
    assert {"embed", "blocks.0.attn", "blocks.1.mlp", "final_norm", "unembed"} <= set(pieces.names)


@pytest.mark.parametrize("make", [_gpt2, _llama])
def test_other_architectures_are_grafted_too(make):
    def policy(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = make()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4)
        return policy_from(model, tiny_tokenizer(), str(seed))

    before, after = policy(0), policy(1)
    everything = "+".join(pieces_of(before.model).names)
    found = graft_map(before, after, random_decisions(8, 8), modules=[everything, "blocks.1.mlp"])
    assert found.row(everything, "into-before").kl_moved.estimate == 1
    assert found.row("blocks.1.mlp", "into-before").kl_moved.estimate not in (0, 1)
