"""Forensics in TRL's `GRPOTrainer`: the runnable example, the record computed
again by other means, audits alone.
"""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl")

from forensics import policy_from
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from forensics.records.train_rows import TrainingRow
from forensics.records.train_tables import TrainingRecord
from tests.training.trl_runs import (
    EXAMPLE,
    length,
    load_example,
    parts_of,
    right,
    trainer_of,
    watched,
)
from training.live import read_reports
from training.live.trl_callback import row_tokens, sampling_of

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example()


def rows_of(folder: Path) -> list[TrainingRow]:
    record = TrainingRecord(folder)
    return [row for step in record.steps() for row in record.rows(step)]


def weights_of(folder: Path) -> bytes:
    return (folder / "checkpoint-4" / "model.safetensors").read_bytes()


def test_three_lines_add_forensics_and_change_no_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example as it stands, and without its three marked lines: the same
    weights, byte for byte.
    """
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    plain = [line for line in lines if not line.endswith(("  # 1\n", "  # 2\n", "  # 3\n"))]
    assert len(lines) - len(plain) == 3
    (tmp_path / "plain.py").write_text("".join(plain))
    for script, out in ((EXAMPLE, "with"), (tmp_path / "plain.py", "without")):
        monkeypatch.setattr(sys, "argv", ["train.py", "--out", str(tmp_path / out), "--steps", "4"])
        runpy.run_path(str(script), run_name="__main__")
    assert weights_of(tmp_path / "with") == weights_of(tmp_path / "without")
    folder = tmp_path / "with" / "forensics"
    assert [report.step for report in read_reports(folder)] == [2, 4]
    assert list(TrainingRecord(folder).steps()) == [0, 1, 2, 3]
    assert not (tmp_path / "without" / "forensics").exists()


def test_the_record_holds_what_trl_used(example: Any, tmp_path: Path) -> None:
    """Advantages again from the rewards, reference log-probabilities again from
    the start's weights.
    """
    from transformers import AutoModelForCausalLM

    model, tokenizer = parts_of(example)
    model.save_pretrained(
        tmp_path / "start"
    )  # TRL loads its reference from where the model came from
    start = policy_from(model, tokenizer, "start")
    live = AutoModelForCausalLM.from_pretrained(tmp_path / "start")
    trainer = trainer_of(example, tmp_path, parts=(live, tokenizer), beta=0.1, temperature=0.7)
    watched(example, tmp_path, audits=False, outcome="right").attach(trainer)
    trainer.train()
    rows = rows_of(tmp_path / "forensics")
    assert len(rows) == 2 * 8 and {row.step for row in rows} == {0, 1}
    for group in {row.group for row in rows}:
        mine = [row for row in rows if row.group == group]
        assert [row.sample for row in mine] == [0, 1, 2, 3] and len({row.task for row in mine}) == 1
        rewards = np.array([row.reward for row in mine])
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        assert [row.advantage for row in mine] == pytest.approx(list(expected), abs=1e-4)
    for row in rows:
        assert (
            row.token_ids is not None
            and row.sampled is not None
            and row.reference_logprobs is not None
        )
        drawn = [i for i, flag in zip(row.token_ids, row.sampled, strict=True) if flag]
        text = tokenizer.decode(drawn, skip_special_tokens=True)
        assert row.rewards["length"] == (len(text) or None) and row.outcome == row.rewards["right"]
        assert row.end == ("terminated" if drawn[-1] in (0, 1) else "truncated")
        scored = start.logprobs([row.token_ids], SamplingSettings(temperature=0.7))[0]
        assert row.reference_logprobs == pytest.approx(scored[-len(drawn) :].tolist(), abs=1e-4)
    run = TrainingRecord(tmp_path / "forensics").run
    assert run.recipe["record"] == "complete" and any(
        "sampler log-prob" in gap for gap in run.recipe["gaps"]
    )


@pytest.mark.slow
def test_audits_alone_are_those_beside_a_record(example: Any, tmp_path: Path) -> None:
    complete = trainer_of(example, tmp_path / "complete")
    watched(example, tmp_path / "complete").attach(complete)
    complete.train()
    alone = watched(example, tmp_path / "public", out=tmp_path / "public" / "forensics")
    with pytest.raises(UserError, match="is gone; attach"):
        alone.watched([right, length])
    public = trainer_of(example, tmp_path / "public", callbacks=[alone])
    public.train()
    assert len(rows_of(tmp_path / "complete" / "forensics")) == 16
    audits = [read_reports(tmp_path / name / "forensics") for name in ("complete", "public")]
    assert [[r.policy for r in reports] for reports in audits] == [
        [r.policy for r in audits[0]]
    ] * 2
    assert [r.step for r in audits[0]] == [1, 2]
    logged = [entry for entry in complete.state.log_history if "audit/gain" in entry]
    assert [entry["step"] for entry in logged] == [
        1,
        2,
    ]  # and TRL's own means are as without audits
    names = ("loss", "reward", "completions/mean_length")
    own = [
        [[e[name] for name in names] for e in t.state.log_history if "loss" in e]
        for t in (complete, public)
    ]
    assert len(own[0]) == 2 and own[0] == own[1]


def test_a_changed_trl_is_refused(example: Any, tmp_path: Path) -> None:
    class Changed(SimpleNamespace):
        def _calculate_rewards(self, inputs: Any, prompts: Any) -> None: ...
        def _generate_and_score_completions(self, inputs: Any) -> None: ...

    with pytest.raises(
        UserError, match=r"takes \(inputs, prompts\) in this TRL, where 1.16 has"
    ) as caught:
        watched(example, tmp_path).attach(Changed())
    assert "audits alone" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UserError, match="is missing"):
        watched(example, tmp_path).attach(SimpleNamespace())


def test_tokens_of_tools_are_not_sampled() -> None:
    """Two turns with an answer of the tool between them; padding on the left of
    prompts, on the right of the rest.
    """
    given = {
        "prompt_ids": torch.tensor([[0, 7, 8]]),
        "prompt_mask": torch.tensor([[0, 1, 1]]),
        "tool_mask": torch.tensor([[1, 1, 0, 0, 1, 1]]),
        "sampling_per_token_logps": torch.tensor([[-0.5, -1.0, 0.0, 0.0, -2.0, 0.0]]),
    }
    assert row_tokens(given, 0, [4, 5, 6, 6, 3]) == {
        "token_ids": (7, 8, 4, 5, 6, 6, 3),
        "sampled": (False, False, True, True, False, False, True),
        "turns": 2,
        "sampler_logprobs": (-0.5, -1.0, -2.0),
        "old_logprobs": None,
        "reference_logprobs": None,
    }


def test_sampling_is_the_trainers_own() -> None:
    given = SimpleNamespace(
        temperature=0.5,
        top_p=0.9,
        top_k=None,
        max_completion_length=32,
        min_p=None,
        repetition_penalty=1.0,
        generation_kwargs=None,
    )
    wanted = SamplingSettings(
        temperature=0.5, top_p=0.9, top_k=0, max_turn_tokens=32, max_tokens=32 + 1024
    )
    assert sampling_of(given) == wanted
    for name, value in (
        ("min_p", 0.1),
        ("repetition_penalty", 1.1),
        ("generation_kwargs", {"min_p": 0.1}),
    ):
        with pytest.raises(UserError, match="cannot draw with min_p"):
            sampling_of(SimpleNamespace(**{**vars(given), name: value}))
