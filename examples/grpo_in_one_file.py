"""GRPO (2402.03300) in one file, to read before the core in `training/`, which does the same: a
test holds this file's loss and its weights after some steps to those of the core.

    python examples/grpo_in_one_file.py --steps 20 --out trained

1. `policy.play` has the policy try each of a few tasks several times; every sampled token keeps the
   log-probability that it was drawn with.
2. A run is as good as its reward compared with the other runs of its task: (reward - mean) / std.
   A task that all runs won, or all lost, teaches nothing.
3. The loss raises the probability of the tokens of good runs and lowers that of bad ones, by the
   clipped ratio of the probability now to that when they were drawn, averaged over tokens.
   Tokens that the environment wrote have no part in it.
4. AdamW steps. One pass over each batch: the ratio is 1 and clipping idle until there are more.

What the core adds: recipes, resuming, records that can be replayed, other losses and estimators,
references, length masks, several processes, half precision, rows grouped by length.
"""

import argparse
from collections.abc import Sequence

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from forensics import SamplingSettings, policy_from
from training import MiniRepo, checkpoint_path

CLIP = 0.2
FLOOR = 1e-6  # added to a standard deviation
GRADIENT_NORM = 1.0
SETTINGS = SamplingSettings(temperature=1.0, max_turn_tokens=24, max_tokens=512)


def advantages(rewards: Sequence[float]) -> list[float]:
    """How much better each run of one task is than their mean, in standard deviations;
    all 0 where nothing tells them apart.
    """
    values = torch.tensor(rewards, dtype=torch.float64)
    return ((values - values.mean()) / (values.std(correction=0) + FLOOR)).tolist()


def padded(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    """Rows of different length as one tensor, with zeros on the right."""
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor([*row], dtype=torch.float64) for row in rows], batch_first=True
    )


def batch_of(runs: Sequence, values: Sequence[float]) -> dict[str, torch.Tensor]:
    """Of each run its tokens, `[rows, length]`; and by the position of the token that is predicted,
    `[rows, length - 1]`, whether the policy drew it, at what log-probability, and its advantage.
    """
    tokens, drawn, logprobs = [], [], []
    for run in runs:
        tokens.append([token for step in run.steps for token in step.token_ids])
        drawn.append([flag for step in run.steps for flag in step.sampled])
        told = iter([value for step in run.steps for value in step.logprobs or ()])
        logprobs.append([next(told) if flag else 0.0 for flag in drawn[-1]])
    mask = padded(drawn)[:, 1:].float()
    return {
        "tokens": padded(tokens).long(),
        "mask": mask,
        "old": padded(logprobs)[:, 1:].float(),
        "advantages": torch.tensor(values, dtype=torch.float32)[:, None] * mask,
    }


def loss_of(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The clipped loss, a mean over the tokens that the policy drew. Rows are padded on the right,
    so that a causal model needs no attention mask.
    """
    logits = model(batch["tokens"]).logits[:, :-1].float()
    now = logits.log_softmax(-1).gather(-1, batch["tokens"][:, 1:, None])[..., 0]
    ratio = (now - batch["old"]).exp()
    plain = ratio * batch["advantages"]
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP) * batch["advantages"]
    return -(torch.minimum(plain, clipped) * batch["mask"]).sum() / batch["mask"].sum()


def step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, runs: Sequence, samples: int
) -> float | None:
    """Learn from runs that stand task by task, `samples` of each; the loss, `None` where no task
    tells its runs apart. A run without an outcome is a failure of the environment; its task is left
    out.
    """
    kept, values = [], []
    for first in range(0, len(runs), samples):
        group = runs[first : first + samples]
        rewards = [run.outcome for run in group]
        if None in rewards or not any(found := advantages(rewards)):
            continue
        kept, values = [*kept, *group], [*values, *found]
    if not kept:
        return None
    optimizer.zero_grad()
    loss = loss_of(model, batch_of(kept, values))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
    optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--checkpoint", default=str(checkpoint_path("bundled:open-base")))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--groups", type=int, default=8, help="tasks of a step")
    parser.add_argument("--samples", type=int, default=8, help="runs of each task")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--out", help="a folder for the trained checkpoint")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(given.checkpoint, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(given.checkpoint)
    policy, world = policy_from(model, tokenizer, given.checkpoint), MiniRepo()
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate, weight_decay=0.0)
    for number in range(given.steps):
        tasks = world.tasks("train", given.groups, seed=number)
        runs = list(policy.play(world, tasks, given.samples, SETTINGS, seed=number))
        loss = step(model, optimizer, runs, given.samples)
        won = sum(run.outcome == 1.0 for run in runs) / len(runs)
        print(f"step {number}: {won:.0%} won, loss {'none' if loss is None else f'{loss:.4f}'}")
    if given.out:
        model.save_pretrained(given.out)
        tokenizer.save_pretrained(given.out)


if __name__ == "__main__":
    main()
