"""Tiny random models for tests: a Qwen3 directory with a locally trained BPE
tokenizer and a chat template.
"""

from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content"
    " }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = (
    "fail kiwi : 2 -> 7", "open 1", "history", "edit 2 x * 3 - 2", "test", "submit", "list",
    "0123456789", "What is the capital of France? The capital is Paris.",
    "guess 42: higher, lower, right",
)  # fmt: skip


def tiny_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> Any:
    """A byte-level BPE of about 300 tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = chat_template
    return fast


def tiny_qwen3(seed: int) -> Any:
    """A randomly initialised Qwen3 of about 0.1 million parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=304,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def save_tiny_qwen3(
    directory: Path, seed: int = 0, chat_template: str | None = CHAT_TEMPLATE, **save: Any
) -> Path:
    """Model and tokenizer in one directory, bf16; `save` goes to
    `save_pretrained` (for example `max_shard_size`).
    """
    import torch

    tiny_qwen3(seed).to(torch.bfloat16).save_pretrained(directory, **save)
    tiny_tokenizer(chat_template).save_pretrained(directory)
    return directory
