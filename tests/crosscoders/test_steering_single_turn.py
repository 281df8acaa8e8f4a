"""Steering in a world of one turn, whose cue stands in the prompt; and beside a sink."""

import json
from dataclasses import replace

import pytest
import torch

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.steering.evaluation import Bench
from crosscoders.steering.interventions import Seen, intervention, parse_position
from crosscoders.steering.readings import (
    FedDictionary,
    contrasts,
    read_bench,
    read_pairs,
    top_features,
    uses_of,
)
from forensics import policy_from
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from tests.crosscoders.patching_worlds import changed
from tests.crosscoders.steering_world import shift_change
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.prompts import Prompts

SITE, PLANTED, LATENTS = "blocks.0.hook_resid_post", 5, 12
SHORT = SamplingSettings(max_turn_tokens=4)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Twelve questions with a cue that scrubbing replaces."""
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [
        {
            "prompt": "{cue}what is " + str(i),
            "cue": {"text": "Q ", "replacement": "it ", "channel": "code"},
            "verifier": {"type": "number", "value": i},
            "split": "held-out",
        }
        for i in range(12)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def bench(asked, tmp_path_factory):
    after = policy_from(tiny_qwen3(0), tiny_tokenizer(), "after")
    before = policy_from(tiny_qwen3(1), tiny_tokenizer(), "before")
    return Bench(
        before=before,
        after=after,
        environment=Prompts(file=str(asked)),
        site=SITE,
        position=parse_position("deciding"),
        settings=SHORT,
        samples=1,
        seed=0,
        folder=tmp_path_factory.mktemp("bench"),
    )


@pytest.fixture(scope="module")
def readings(bench):
    return read_bench(bench, bench.environment.tasks("held-out", 12, 0), "success")


def test_the_latent_that_reads_the_cue_is_the_one_of_largest_contrast(readings):
    config = DictionaryConfig(
        width=64, partition=Partition(latents=LATENTS, after_only=LATENTS), activation="relu", k=4
    )
    dictionary = Dictionary(config, seed=0)
    gap = readings.decisions[readings.used, 1].mean(0) - readings.decisions[~readings.used, 1].mean(
        0
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in dictionary.parameters():
            parameter.copy_(0.01 * torch.randn(parameter.shape, generator=generator))
        dictionary.encoders[1][PLANTED] = gap / gap.norm()
        dictionary.decoders[1][PLANTED] = gap / gap.norm()
        middle = readings.decisions[:, 1].mean(0) @ gap / gap.norm()
        dictionary.bias.fill_(0.0)
        dictionary.bias[PLANTED] = -middle
        dictionary.centres.zero_()
        dictionary.scale.fill_(1.0)
    reader = FedDictionary(dictionary=dictionary)
    assert top_features(reader, readings, 1) == (PLANTED,)
    alone = replace(readings, used=torch.ones(24, dtype=torch.bool))
    with pytest.raises(UserError, match="whose cue can be taken out"):
        contrasts(reader, alone)


def sunk(policy):
    """The first token of every prompt is a sink."""
    token = policy.renderer.prompt("x", None)[0]

    def sink(model):
        table = model.model.embed_tokens.weight
        table[token] *= 100 * table.norm(dim=-1).median() / table[token].norm()

    return changed(policy, sink)


def test_sinks_are_left_out_of_what_is_read_and_of_what_is_changed(bench):
    before, after = sunk(bench.before), sunk(bench.after)
    runs = list(
        after.play(bench.environment, bench.environment.tasks("held-out", 4, 0), 1, SHORT, 0)
    )
    asked = {"site": SITE, "position": parse_position("everywhere"), "steps": None}
    asked["uses"] = uses_of("success", ())
    left = read_pairs(before, after, runs, **asked)
    kept = read_pairs(before, after, runs, **asked, keep_outliers=True)
    assert kept.limits is None and left.limits is not None
    first = runs[0].steps[0].token_ids[0]
    sinks = sum(token == first for run in runs for s in run.steps for token in s.token_ids or ())
    assert len(kept.here) - len(left.here) == sinks >= 4
    assert float(left.here.norm(dim=-1).max()) * 5 < float(kept.here.norm(dim=-1).max())
    ids, seen = list(runs[0].steps[0].token_ids), Seen()
    shift = shift_change(torch.ones(64), mode="add", strength=1.0)
    for limit, wanted in ((left.limits[1], 0.0), (None, 1.0)):
        change = intervention(
            shift,
            site=SITE,
            name="x",
            position=parse_position("everywhere"),
            seen=seen,
            limit=limit,
        )
        rows = torch.from_numpy(after.activations([ids], [SITE])[0][SITE])[None]
        seen.ids = torch.tensor([ids])
        seen.decided = torch.zeros_like(seen.ids, dtype=torch.bool)
        moved = change.apply(rows, type("Context", (), {"deciding": torch.tensor([False])})())
        assert torch.allclose(moved[0, 1] - rows[0, 1], torch.ones(64), atol=1e-4)
        assert float((moved[0, 0] - rows[0, 0]).abs().mean()) == pytest.approx(wanted, abs=1e-3)
