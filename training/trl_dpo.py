"""Preference pairs (`pairs.jsonl`) in TRL's `DPOTrainer` (1.16), token for token.

TRL takes text only: it tokenises the columns `prompt`, `chosen` and `rejected`
itself, and appends an end of text to every plain continuation. Recorded tokens
would not survive that. So, by public interfaces alone:

1. `trl_dataset` leaves TRL's text columns empty and carries ids and weights in
   columns of its own (`pair_...`), which need `remove_unused_columns=False` to
   reach the collator.
2. `PairCollator` makes the batch of them with TRL's own collator, and narrows
   `completion_mask` to the tokens with weight: with one weighted token the loss
   is on single positions. Nothing is appended, nothing is cut off.
3. `trl_trainer` puts both into a `DPOTrainer` and refuses options under which
   they would not be what is trained on.

TRL's mask is all or nothing, so weights other than 0 and 1 are refused. Its
log-probabilities are those at temperature 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from forensics.errors import UserError
from forensics.records import PreferencePair
from training.update import padded

TEXTS = ("prompt", "chosen", "rejected")  # what TRL tokenises: empty here
REFERENCE = (
    "ref_chosen_logps",
    "ref_rejected_logps",
)  # what TRL adds where it scores the reference beforehand
IDS = {"prompt": "pair_prefix", "chosen": "pair_chosen", "rejected": "pair_rejected"}
NEEDED = "pass `DPOConfig(remove_unused_columns=False)`, without which TRL drops the pairs' tokens"


def trl_dataset(pairs: Sequence[PreferencePair]) -> Any:
    """The pairs as a `datasets.Dataset` for `DPOTrainer`, to be used with
    `PairCollator` and no other collator.

    Raises `UserError` for no pairs, and for weights other than 0 and 1.
    """
    try:
        from datasets import Dataset
    except ImportError:
        raise UserError(
            "TRL is not installed; install it with `pip install 'policy-forensics[trl]'`"
        ) from None
    if not pairs:
        raise UserError("there are no preference pairs to train on; give at least one")
    return Dataset.from_list([dict.fromkeys(TEXTS, "") | _columns(pair) for pair in pairs])


def _columns(pair: PreferencePair) -> dict[str, list[int]]:
    columns = {
        f"pair_{side}": list(getattr(pair, side)) for side in ("prefix", "chosen", "rejected")
    }
    for side in ("chosen", "rejected"):
        weights = getattr(pair, f"{side}_weights") or (1,) * len(getattr(pair, side))
        if not set(weights) <= {0, 1}:
            raise UserError(
                f"pair '{pair.id}' has token weights other than 0 and 1, which TRL's loss does not"
                " know; give each token 0 or 1"
            )
        columns[f"pair_{side}_mask"] = [int(weight) for weight in weights]
    return columns


@dataclass(frozen=True, kw_only=True)
class PairCollator:
    """Batches of `trl_dataset` as TRL wants them: chosen rows first, filled up
    on the right.

    `input_ids`, `attention_mask`, `completion_mask` `[2 pairs, length]`; the
    last is 1 at tokens with weight.
    """

    pad_token_id: int
    pad_to_multiple_of: int | None = None

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch. Raises `UserError` where TRL has dropped the pairs' columns."""
        from trl.trainer.dpo_trainer import DataCollatorForPreference

        if "pair_prefix" not in examples[0]:
            raise UserError(NEEDED)
        collate = DataCollatorForPreference(
            pad_token_id=self.pad_token_id, pad_to_multiple_of=self.pad_to_multiple_of
        )
        batch: dict[str, Any] = collate(
            [
                {f"{part}_ids": list(example[column]) for part, column in IDS.items()}
                | {name: example[name] for name in REFERENCE if name in example}
                for example in examples
            ]
        )
        masks = [
            [*[0] * len(example["pair_prefix"]), *example[f"pair_{side}_mask"]]
            for side in ("chosen", "rejected")
            for example in examples
        ]
        narrow = padded(masks, 0, torch.long)
        batch["completion_mask"] = torch.zeros_like(batch["completion_mask"])
        batch["completion_mask"][:, : narrow.shape[1]] = narrow
        return batch


def trl_trainer(
    model: Any, tokenizer: Any, pairs: Sequence[PreferencePair], args: Any, **others: Any
) -> Any:
    """A `trl.DPOTrainer` on the pairs. `args`: a `DPOConfig`; `others` go to
    the trainer (`ref_model`, `peft_config`).

    Raises `UserError` for options that drop, cut or complete tokens.
    """
    data = trl_dataset(pairs)
    from trl.trainer.dpo_trainer import DPOTrainer

    if args.remove_unused_columns:
        raise UserError(NEEDED)
    if tokenizer.eos_token is None:
        raise UserError(
            "TRL wants a tokenizer with an end of text, though none is used; set"
            " tokenizer.eos_token"
        )
    longest = max(len(pair.prefix) + max(len(pair.chosen), len(pair.rejected)) for pair in pairs)
    if args.max_length is not None and longest > args.max_length:
        raise UserError(
            f"a pair has {longest} tokens and max_length is {args.max_length}; pairs are never cut"
            " off, so raise it or set max_length=None"
        )
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return DPOTrainer(
        model=model,
        args=args,
        train_dataset=data,
        processing_class=tokenizer,
        data_collator=PairCollator(pad_token_id=pad, pad_to_multiple_of=args.pad_to_multiple_of),
        **others,
    )
