"""The policy of `mini-repo`: a Qwen3 of 0.3 million parameters with a word-level tokenizer. One
token a word and one a number, so that a transformer of three layers can
learn the arithmetic. The head dimension is 32, which the common inference
engines accept.
"""

from typing import Any

from training.environments.mini_repo_tasks import NAMES

NUMBERS = range(-9, 34)
WORDS = """\
$ ; : , -> x * + - fail pass done error submitted
list open history edit test submit tests notes add fix start case
"""
SPECIAL = ("<pad>", "<eos>", "<unk>")


def build_tokenizer() -> Any:
    """The word-level tokenizer of `mini-repo`: words are split at spaces, a
    line break is a word.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, "\n", *WORDS.split(), *NAMES, *(str(number) for number in NUMBERS)]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(Regex(" +"), "removed"),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def build_model(vocabulary: int, seed: int, context: int = 512) -> Any:
    """A randomly initialised policy, float32; `context`: the longest text in tokens."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        rope_theta=10_000.0,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        use_cache=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).float()
