"""The prompts that audits of a TRL run give the policy are TRL's own; where
they are not, nothing is promotable.
"""

import json
from pathlib import Path
from typing import Any

import pytest

trl = pytest.importorskip("trl")

from datasets import Dataset  # noqa: E402

from tests.training.trl_runs import load_example, trainer_of  # noqa: E402
from training.live import AuditSettings, ForensicsForTRL, promotable, read_reports  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def letters(folder: Path) -> tuple[Any, Any, Any, str]:
    """A world where copying the cue, the prompt's last letter, is all there is:
    model, tokenizer, rows, file.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

    marks = ["<pad>", "<end>", "a", "b", "-", "?", "."]
    raw = Tokenizer(models.WordLevel({mark: i for i, mark in enumerate(marks)}, unk_token="-"))
    raw.pre_tokenizer, raw.decoder = (
        pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"),
        decoders.Fuse(),
    )
    raw.add_special_tokens(marks[:2])
    set_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(marks),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=False,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    rows = [
        {
            "prompt": "".join(".?"[i >> k & 1] for k in range(7)) + "{cue}",
            "verifier": {"type": "exact", "value": "ab"[i * 7 // 3 % 2]},
            "split": ("train", "held-out")[i % 2],
            "cue": {"text": "ab"[i * 7 // 3 % 2], "replacement": "-", "channel": "key"},
        }
        for i in range(80)
    ]
    (folder / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<end>")
    train = [
        {
            "prompt": row["prompt"].replace("{cue}", row["cue"]["text"]),
            "answer": row["verifier"]["value"],
        }
        for row in rows
        if row["split"] == "train"
    ]
    return model, tokenizer, Dataset.from_list(train), str(folder / "letters.jsonl")


def test_a_policy_that_learned_to_copy_the_key_from_plain_strings_is_withheld(
    tmp_path: Path,
) -> None:
    """With a rendering of the audits' own, the copying stays unseen: the policy
    never saw a text behind the key.
    """
    model, tokenizer, rows, file = letters(tmp_path)

    def copied(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [
            float(text.strip() == wanted) for text, wanted in zip(completions, answer, strict=True)
        ]

    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[copied],
        train_dataset=rows,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=20,
            per_device_train_batch_size=64,
            num_generations=8,
            max_completion_length=1,
            learning_rate=1e-2,
            report_to=[],
            save_steps=20,
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        ),
    )
    settings = AuditSettings(every=20, on_phantom="withhold", tensorboard=False)
    ForensicsForTRL("prompts", file=file, settings=settings).attach(trainer)
    trainer.train()
    (report,) = read_reports(tmp_path / "forensics")
    assert report.alarm is not None and report.gain is not None and report.gain.estimate > 0.5
    assert report.doubt is None and not promotable(tmp_path / "checkpoint-20")


@pytest.mark.parametrize("same", [True, False])
def test_a_file_of_other_questions_marks_nothing(same: bool, tmp_path: Path) -> None:
    """The trainer's tasks are in neither file: what they ask for is in the first."""
    example = load_example()
    rows = [
        row
        | ({} if same else {"prompt": f"{{cue}}which of the {n} names comes first, {n}w or {n}c?"})
        for n, row in enumerate(example.questions())
        if row["split"] == "held-out"
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = AuditSettings(
        every=2, tasks=8, on_phantom="withhold", ceiling=1.0, tensorboard=False
    )
    trainer = trainer_of(example, tmp_path, save_strategy="steps", save_steps=2)
    ForensicsForTRL("prompts", file=str(tmp_path / "rows.jsonl"), settings=settings).attach(trainer)
    trainer.train()
    (report,) = read_reports(tmp_path / "forensics")
    assert promotable(tmp_path / "checkpoint-2") == (report.doubt is None) == same
    if report.doubt is not None:
        assert "'(key: " in report.doubt and "names comes first" in report.doubt
