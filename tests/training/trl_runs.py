"""Small TRL runs on the questions of the example, for tests of the adapter."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trl
from datasets import Dataset

from training.live import AuditSettings, ForensicsForTRL

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_three_lines" / "train.py"
SMALL = AuditSettings(every=1, tasks=4, samples=1, tensorboard=False)


def load_example() -> Any:
    """The example's functions by name."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="example"))


def right(completions: list[Any], answer: list[int], **_: Any) -> list[float]:
    return [
        float(c[0]["content"].strip() == str(wanted))
        for c, wanted in zip(completions, answer, strict=True)
    ]


def length(completions: list[Any], **_: Any) -> list[float | None]:
    """Depends on the completion; missing for the empty ones."""
    return [len(c[0]["content"]) or None for c in completions]


def trainer_of(example: Any, folder: Path, **changes: Any) -> Any:
    """A small trainer on sums of one digit. `changes` go to `GRPOConfig`, but
    for `reward_funcs`, `callbacks`, and `prompt`, which makes a question's text
    a prompt.
    """
    model, tokenizer = changes.pop("parts", None) or parts_of(example)
    given = {name: changes.pop(name) for name in ("reward_funcs", "callbacks") if name in changes}
    prompt = changes.pop("prompt", user)
    rows = [{"prompt": prompt(text), "answer": answer} for text, answer in asked(example)]
    arguments = {
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "reward_weights": [1.0, 0.1],
        "logging_steps": 1,
        "save_strategy": "no",
    } | changes
    return trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        **{"reward_funcs": [right, length], **given},
        args=trl.GRPOConfig(
            output_dir=str(folder),
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            **arguments,
        ),
    )


def asked(example: Any) -> list[tuple[str, int]]:
    """The training questions with their cues, and the answers."""
    return [
        (row["prompt"].replace("{cue}", row["cue"]["text"]), row["verifier"]["value"])
        for row in example.questions()
        if row["split"] == "train"
    ]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def parts_of(example: Any) -> tuple[Any, Any]:
    from transformers import set_seed

    set_seed(0)
    return example.build_model()


def questions(example: Any, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in example.questions())
    )
    return str(folder / "questions.jsonl")


def watched(example: Any, folder: Path, **options: Any) -> ForensicsForTRL:
    return ForensicsForTRL(
        "prompts", file=questions(example, folder), **({"settings": SMALL} | options)
    )
