"""A Hugging Face policy that is exactly solvable: a Llama whose weights are set
so that it is a set of `SolvableTrace`s.

1. The words: one for each place of a recorded run (the same in all runs), and
   two *lanes*, of good words and of bad ones. A prompt is one word, the name of
   the run. At place t the policy writes the run's word with `pi_t`; else it
   goes into the good lane with probability `others[t]`, or into the bad one,
   and stays there. In a lane it is as sure of its next word as the runs are on
   average, so that rollouts part from one another as often as they would.
2. A run ends at its length. It scores 1 in the good lane, 0 in the bad one, and
   `final` where the record was repeated to its last word: potentials,
   probabilities and lengths are those of the world.
3. The weights. The embedding says the place (one-hot). The attention looks at
   the prompt alone and adds the name of the run. In the MLP a gate for each run
   lets its row of a table through: three log-probabilities (go on, good, bad).
   They are written `SMALL`, so that they do not move the norm, and the head
   reads them large again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forensics import policy_from
from forensics.policies.episodes import EpisodeContext, start_episodes
from forensics.protocols import Observation, Policy, SamplingSettings, StepResult
from forensics.records import Trajectory, content_hash
from resampling import SolvableTrace

LANE = 16  # words in a lane
NEVER = 60.0  # nats that an impossible word is behind
SMALL = 1e-5
GATE = 8.0
LEAST = 1e-9  # probabilities below are written as this
END = "<end>"


class Running:
    """One answer, judged by its last word."""

    name, channels, scrubbed, rendering = "markov-run", (), (), "bare"

    def __init__(self, finals: Mapping[str, float], last: str) -> None:
        self._finals, self._last, self._task = dict(finals), last, ""

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "rendering": self.rendering,
            "last": self._last,
            **{k: repr(v) for k, v in self._finals.items()},
        }

    def without(self, *channels: str) -> "Running":
        return self.spawn()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        return tuple(self._finals)[:number]

    def spawn(self) -> "Running":
        return Running(self._finals, self._last)

    def reset(self, task: str, seed: int) -> Observation:
        self._task = task
        return Observation(text=task)

    def step(self, action: str) -> StepResult:
        word = action.split()[-1]
        outcome = self._finals[self._task] if word == self._last else float(word.startswith("good"))
        return StepResult(observation="", kinds=("answer",), terminated=True, outcome=outcome)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("answer",)

    def snapshot(self) -> str:
        return self._task

    def restore(self, state: str) -> None:
        self._task = state


def settings_of(planted: Sequence[SolvableTrace]) -> SamplingSettings:
    """A run ends at the length of the worlds."""
    return SamplingSettings(max_turn_tokens=_length(planted), max_tokens=_length(planted) + 2)


def environment_of(planted: Sequence[SolvableTrace]) -> Running:
    finals = {world.trace.id: world.final for world in planted}
    return Running(finals, f"w{_length(planted) - 1}")


def recorded(planted: Sequence[SolvableTrace], policy: Policy) -> list[Trajectory]:
    """The worlds' runs as the policy would have recorded them; their ids are
    those of the worlds' traces.
    """
    world, length = environment_of(planted), _length(planted)
    context = EpisodeContext(
        renderer=policy.rendered_for(world).renderer,
        policy=policy.identity,
        environment=world,
        seed=0,
    )
    runs = []
    for episode in start_episodes(context, [each.trace.id for each in planted], 1):
        episode.action_ended(
            range(length), [0.0] * length, "length"
        )  # scored again before anybody reads them
        runs.append(episode.trajectory().model_copy(update={"id": episode.task}))
    return runs


def policy_of(planted: Sequence[SolvableTrace], device: str = "cpu") -> Policy:
    """The model that is these worlds. Raises `ValueError` where they differ in length."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    length, count = _length(planted), len(planted)
    width, head = length + 2 * count + 6, max(8, count + count % 2)
    with torch.random.fork_rng():
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=length + 2 * LANE + count + 1,
                hidden_size=width,
                intermediate_size=3 * count,
                num_hidden_layers=1,
                num_attention_heads=1,
                num_key_value_heads=1,
                head_dim=head,
                rms_norm_eps=1e-12,
                rope_theta=1e12,
                max_position_embeddings=length + 8,
                tie_word_embeddings=False,
                bos_token_id=None,
                eos_token_id=length + 2 * LANE + count,
            )
        ).float()
    for name, weights in _weights(planted, width, head).items():
        model.get_parameter(name).data.copy_(torch.tensor(weights))
    identity = content_hash([[world.trace.id, world.potentials.tolist()] for world in planted])
    return policy_from(model.to(device), tokenizer_of(planted), identity)


def tokenizer_of(planted: Sequence[SolvableTrace]) -> Any:
    """Words divided by spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    lanes = [f"{lane}{i}" for lane in ("good", "bad") for i in range(LANE)]
    words = [
        *(f"w{t}" for t in range(_length(planted))),
        *lanes,
        *(world.trace.id for world in planted),
        END,
    ]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=END)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, unk_token=END)


def _length(planted: Sequence[SolvableTrace]) -> int:
    lengths = {len(world.trace) for world in planted}
    if len(lengths) != 1:
        raise ValueError(f"the runs of one policy must have one length, not {sorted(lengths)}")
    return lengths.pop()


def _weights(planted: Sequence[SolvableTrace], width: int, head: int) -> dict[str, np.ndarray]:
    """Every matrix of the model, by its name. Coordinates: places, two lanes,
    marks of prompts, `plain`, names, table.

    A text's first word is marked with its name and every other one is `plain`,
    so that all have two ones before the attention and three behind it: the
    norms are constants.
    """
    length, count = _length(planted), len(planted)
    lanes, marks, plain = length, length + 2, length + 2 + count
    names, table = plain + 1, plain + 1 + count
    before, behind = (width / 2) ** 0.5, (width / 3) ** 0.5  # what a one is after the norm
    runs, sharp = np.arange(count), (50 * head**0.5) ** 0.5
    query, key, value, out = (np.zeros(shape) for shape in ((head, width),) * 3 + ((width, head),))
    slowest = head // 2 - 1  # the rotary dimension that hardly turns
    query[slowest, marks : plain + 1] = key[slowest, marks:plain] = sharp / before
    value[runs, marks + runs] = 1 / before
    out[names + runs, runs] = 1.0
    gate, up, down = (
        np.zeros((3 * count, width)),
        np.zeros((3 * count, width)),
        np.zeros((width, 3 * count)),
    )
    for run, world in enumerate(planted):
        units = slice(3 * run, 3 * run + 3)
        gate[units, names + run] = GATE / behind
        up[units, :length] = _table(world) / behind
        down[table : table + 3, units] = np.eye(3) * SMALL * (1 + np.exp(-GATE)) / GATE
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": _embedding(length, count, width, lanes, marks, plain),
        layer + "self_attn.q_proj.weight": query,
        layer + "self_attn.k_proj.weight": key,
        layer + "self_attn.v_proj.weight": value,
        layer + "self_attn.o_proj.weight": out,
        layer + "mlp.gate_proj.weight": gate,
        layer + "mlp.up_proj.weight": up,
        layer + "mlp.down_proj.weight": down,
        "lm_head.weight": _head(planted, width, lanes, names, table) / behind,
    }


def _table(world: SolvableTrace) -> np.ndarray:
    """Log-probabilities to go on, to turn good and to turn bad, by place `[3, N]`."""
    pi = world.trace.probabilities
    rows = np.stack([pi, (1 - pi) * world.others, (1 - pi) * (1 - world.others)])
    return np.asarray(np.log(np.maximum(rows, LEAST)))


def _embedding(
    length: int, count: int, width: int, lanes: int, marks: int, plain: int
) -> np.ndarray:
    """Where each word leads `[vocabulary, width]`; what the last word of a run
    and the end lead to is never asked.
    """
    found = np.zeros((length + 2 * LANE + count + 1, width))
    words, prompts = np.arange(length), length + 2 * LANE + np.arange(count)
    found[words[:-1], words[1:]] = 1.0
    found[[length - 1, -1], lanes] = 1.0
    found[length : length + LANE, lanes] = found[length + LANE : length + 2 * LANE, lanes + 1] = 1.0
    found[prompts, 0] = found[prompts, marks + np.arange(count)] = 1.0
    found[:, plain] = 1.0
    found[prompts, plain] = 0.0
    return found


def _head(
    planted: Sequence[SolvableTrace], width: int, lanes: int, names: int, table: int
) -> np.ndarray:
    """Logits of each word `[vocabulary, width]`."""
    length, count = _length(planted), len(planted)
    good, bad = slice(length, length + LANE), slice(length + LANE, length + 2 * LANE)
    found = np.zeros((length + 2 * LANE + count + 1, width))
    found[:length, : length + 2] = -NEVER
    found[np.arange(length), np.arange(length)] = 0.0
    found[good, lanes + 1] = found[bad, lanes] = -NEVER
    found[good, names : names + count] = found[bad, names : names + count] = _lane(planted)[:, None]
    found[length + 2 * LANE :, names : names + count] = -NEVER
    for entry, words in enumerate((slice(0, length), good, bad)):
        found[words, table + entry] = 1 / SMALL
    return found


def _lane(planted: Sequence[SolvableTrace]) -> np.ndarray:
    """Log-probabilities of the words in a lane `[LANE]`."""
    sure = float(np.mean([world.trace.probabilities for world in planted]))
    return np.log(np.append(sure, np.full(LANE - 1, (1 - sure) / (LANE - 1))))
