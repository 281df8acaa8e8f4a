"""Our pairs in TRL's own `DPOTrainer`: the same loss and gradients, single
positions, no end of text.
"""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from forensics.errors import UserError
from forensics.records import PreferencePair, Provenance
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.trl_dpo import PairCollator, trl_dataset, trl_trainer

trl = pytest.importorskip("trl", reason="parity is with an installed TRL")
pytest.importorskip("datasets", reason="TRL needs it")

TOLERANCE = 1e-5
END = 2  # the tiny tokenizer's end of text
BETA = 0.5


def pair(number: int, **changes: Any) -> PreferencePair:
    values = {
        "id": f"pair-{number}",
        "prefix": tuple(5 + (number * 7 + i) % 90 for i in range(3 + number % 4)),
        "chosen": (20 + number,),
        "rejected": (40 + number,),
        "policy": "start",
        "provenance": Provenance(instrument="test"),
    }
    return PreferencePair(**values | changes)


SINGLE = [pair(n) for n in range(6)]
MASKED = [
    pair(
        n,
        chosen=(60, 20 + n, 70),
        rejected=(40 + n, *range(80, 82 + n)),
        chosen_weights=(0, 1, 0),
        rejected_weights=(1, *[0] * (1 + n), n % 2),
    )
    for n in range(6)
]
WHOLE = [
    one.model_copy(update={"chosen_weights": None, "rejected_weights": None}) for one in MASKED
]


def sharp() -> Any:
    """A tiny model whose log-probabilities differ by more than rounding from token to token."""
    model = tiny_qwen3(0)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(6)
    return model


def moved(model: Any) -> Any:
    """Away from the start, so that the reference counts."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator) * parameter.std()
    return model


def config(folder: Path, **changes: Any) -> Any:
    return trl.DPOConfig(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": 6,
            "use_cpu": True,
            "bf16": False,
            "report_to": [],
            "gradient_checkpointing": False,
            "beta": BETA,
            "disable_tqdm": True,
            "save_strategy": "no",
            "remove_unused_columns": False,
        }
        | changes
    )


def trainer_of(folder: Path, pairs: Sequence[PreferencePair], **changes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trl_trainer(
            sharp(), tiny_tokenizer(), pairs, config(folder, **changes), ref_model=sharp()
        )


def theirs(
    folder: Path, pairs: Sequence[PreferencePair], **changes: Any
) -> tuple[float, dict[str, torch.Tensor]]:
    """TRL's loss and gradients on its own dataloader's batch, after the weights moved."""
    trainer = trainer_of(folder, pairs, dataloader_pin_memory=False, **changes)
    batch = next(iter(trainer.get_train_dataloader()))
    moved(trainer.model).zero_grad()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    return loss.item(), gradients(trainer.model)


def ours(pairs: Sequence[PreferencePair]) -> tuple[float, dict[str, torch.Tensor]]:
    """The same by the formula: `-log sigmoid(beta (gain chosen - gain rejected))`, a gain the
    weighted log-ratio to the start.
    """
    model, start, losses = moved(sharp()), sharp(), []
    for one in pairs:
        wanted, unwanted = (
            gain(model, start, one.prefix, tokens, weights or (1,) * len(tokens))
            for tokens, weights in (
                (one.chosen, one.chosen_weights),
                (one.rejected, one.rejected_weights),
            )
        )
        losses.append(-torch.nn.functional.logsigmoid(BETA * (wanted - unwanted)))
    loss = torch.stack(losses).mean()
    loss.backward()
    return loss.item(), gradients(model)


def gain(
    model: Any, start: Any, prefix: Sequence[int], tokens: Sequence[int], weights: Sequence[float]
) -> torch.Tensor:
    """Of one side of a pair."""
    ids = torch.tensor([[*prefix, *tokens]])

    def logprobs(of: Any) -> torch.Tensor:
        found = of(ids).logits[0, :-1].log_softmax(-1)
        return found.gather(-1, ids[0, 1:, None])[len(prefix) - 1 :, 0]

    with torch.no_grad():
        before = logprobs(start)
    return ((logprobs(model) - before) * torch.tensor(weights)).sum()


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.double() for name, parameter in model.named_parameters()}


def apart(
    one: tuple[float, dict[str, torch.Tensor]], other: tuple[float, dict[str, torch.Tensor]]
) -> float:
    """The largest relative difference: of the loss, and of each parameter's
    gradient (Euclidean).
    """
    assert one[1].keys() == other[1].keys() and len(one[1]) > 20
    gaps = [float((other[1][name] - value).norm() / value.norm()) for name, value in one[1].items()]
    return max(abs(one[0] - other[0]) / abs(one[0]), *gaps)


@pytest.mark.parametrize("pairs", [SINGLE, MASKED, WHOLE], ids=["single", "masked", "whole"])
def test_loss_and_every_gradient(pairs: list[PreferencePair], tmp_path: Path) -> None:
    mine = ours(pairs)
    assert apart(theirs(tmp_path, pairs), mine) < TOLERANCE
    assert abs(mine[0] - math.log(2)) > 0.005  # the weights did move


@pytest.mark.parametrize("pairs", [SINGLE, MASKED], ids=["single", "masked"])
def test_the_batch_is_the_recorded_tokens_without_an_end(
    pairs: list[PreferencePair], tmp_path: Path
) -> None:
    """What the trainer's own dataloader gives, row by row; TRL's tokenised
    columns, which hold an end, are unused.
    """
    trainer = trainer_of(tmp_path, pairs, dataloader_pin_memory=False)
    assert END in trainer.train_dataset[0]["chosen_ids"]
    batch = next(iter(trainer.get_train_dataloader()))
    assert not (batch["input_ids"] == END).any()
    rows = {
        tuple(ids[: int(seen.sum())].tolist()): mask[: int(seen.sum())].tolist()
        for ids, seen, mask in zip(
            batch["input_ids"], batch["attention_mask"], batch["completion_mask"], strict=True
        )
    }
    wanted = {
        (*one.prefix, *tokens): [*[0] * len(one.prefix), *(weights or [1] * len(tokens))]
        for one in pairs
        for tokens, weights in (
            (one.chosen, one.chosen_weights),
            (one.rejected, one.rejected_weights),
        )
    }
    assert rows == wanted


def test_trl_itself_learns_the_pairs(tmp_path: Path) -> None:
    """A few real steps of `DPOTrainer.train` turn the odds at the planted positions."""
    trainer = trainer_of(
        tmp_path, SINGLE, max_steps=8, learning_rate=3e-3, lr_scheduler_type="constant"
    )
    before = [odds(sharp(), one) for one in SINGLE]
    trainer.train()
    after = [odds(trainer.model, one) for one in SINGLE]
    assert all(late > early + 1 for early, late in zip(before, after, strict=True))


def odds(model: Any, one: PreferencePair) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([one.prefix])).logits[0, -1]
    return float(logits[one.chosen[0]] - logits[one.rejected[0]])


def test_options_that_would_lose_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="remove_unused_columns=False"):
        trainer_of(tmp_path, SINGLE, remove_unused_columns=True)
    with pytest.raises(UserError, match=r"7 tokens and max_length is 6"):
        trainer_of(tmp_path, SINGLE, max_length=6)
    with pytest.raises(UserError, match="remove_unused_columns=False"):
        PairCollator(pad_token_id=0)(
            [{"prompt_ids": [], "chosen_ids": [END], "rejected_ids": [END]}]
        )
    with pytest.raises(UserError, match="other than 0 and 1"):
        trl_dataset([pair(0, chosen_weights=(0.5,))])
    with pytest.raises(UserError, match="no preference pairs"):
        trl_dataset([])
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(UserError, match="end of text"):
        trl_trainer(sharp(), tokenizer, SINGLE, config(tmp_path))
