"""Episodes per second: our lockstep decoder against the same episodes driven
turn by turn through `generate`.

The peer is what a TRL user would write: the transcripts of all running episodes
are tokenised with padding on the left, `model.generate` draws one action for
each and returns its logits (a trainer needs the log-probabilities, which our
record holds too), the actions are decoded, the environments answer, and the
whole text goes in again. Both play the same tasks with the same policy, settings and batch;
mean turns and success are printed so that the work can be compared. 1,024 episodes are
played in groups of 4, of 8 (the peer's default, to which the limit applies) and of 16.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.apart import in_turn, spread
from forensics import load_policy
from forensics.protocols import Environment, Policy, SamplingSettings, StepResult
from forensics.records import Trajectory
from training import MiniRepo, checkpoint_path

LIMIT = 5.0


@dataclass(frozen=True, kw_only=True)
class Played:
    """What was played, for comparing the work of both sides."""

    episodes: int
    turns: float
    success: float


def text_peer(
    policy: Policy,
    world: Environment,
    tasks: Sequence[str],
    samples: int,
    settings: SamplingSettings,
    seed: int,
) -> Played:
    """Transcripts as text, tokenised anew each turn; log-probabilities of what was drawn."""
    tokenizer, running = policy.tokenizer, _start(world, tasks, samples, seed)
    rows = running
    while running:
        batch = tokenizer(
            [row["text"] for row in running],
            return_tensors="pt",
            padding=True,
            padding_side="left",
            add_special_tokens=False,
        ).to(policy.model.device)
        drawn, logprobs = _generate(policy, batch["input_ids"], batch["attention_mask"], settings)
        actions = tokenizer.batch_decode(drawn, skip_special_tokens=True)
        for row, action, part in zip(running, actions, logprobs, strict=True):
            result = _advance(row, action.split("\n")[0].strip())
            row["logprobs"] += part
            row["text"] += f"{action.split(chr(10))[0].strip()} \n{result.observation}\n$ "
        running = [row for row in running if not row["over"]]
    return _played(rows)


def _start(
    world: Environment, tasks: Sequence[str], samples: int, seed: int
) -> list[dict[str, Any]]:
    import torch

    torch.manual_seed(seed)
    rows = []
    for task in tasks:
        for _ in range(samples):
            scene = world.spawn()
            row = {"scene": scene, "text": f"{scene.reset(task, 0).text}\n$ "}
            rows.append({**row, "turns": 0, "outcome": 0.0, "over": False, "logprobs": []})
    return rows


def _advance(row: dict[str, Any], action: str) -> StepResult:
    result: StepResult = row["scene"].step(action)
    row["turns"] += 1
    row["over"] = result.terminated or result.truncated
    row["outcome"] = result.outcome or 0.0
    return result


def _played(rows: Sequence[dict[str, Any]]) -> Played:
    return Played(
        episodes=len(rows),
        turns=statistics.mean(row["turns"] for row in rows),
        success=statistics.mean(row["outcome"] for row in rows),
    )


def _told(runs: Iterable[Trajectory]) -> Played:
    return _played([{"turns": run.turns, "outcome": run.outcome or 0} for run in runs])


def _generate(
    policy: Policy, ids: Any, mask: Any, settings: SamplingSettings
) -> tuple[list[list[int]], list[list[float]]]:
    """Drawn tokens, and their log-probabilities."""
    import torch

    with torch.inference_mode():
        output = policy.model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=settings.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=settings.max_turn_tokens,
            eos_token_id=sorted(policy.renderer.stops),
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        drawn = output.sequences[:, ids.shape[1] :]
        logprobs = (
            torch.stack(output.logits, 1).log_softmax(-1).gather(-1, drawn[..., None]).squeeze(-1)
        )
    return drawn.tolist(), logprobs.tolist()


def until_stop(row: list[int], stops: frozenset[int]) -> list[int]:
    for index, token in enumerate(row):
        if token in stops:
            return row[: index + 1]
    return row


SHAPES = ((256, 4), (128, 8), (64, 16))  # tasks, episodes of each
JUDGED = 1


def run(device: str = "cpu", repeats: int = 5) -> dict[str, Any]:
    """Every shape; the limit applies to the peer's default group."""
    found = [shape(device, repeats, *sizes) for sizes in SHAPES]
    return found[JUDGED] | {
        "limit": LIMIT,
        "other_shapes": [row for row in found if row is not found[JUDGED]],
    }


def shape(device: str, repeats: int, tasks: int, samples: int) -> dict[str, Any]:
    """Both sides in turn, `repeats` times; episodes a second and their ratio, pair by pair."""
    policy = load_policy(checkpoint_path("bundled:open-base"), device=device, dtype="float32")
    world = MiniRepo(world="open")
    names = world.tasks("held-out", tasks, 0)
    settings = SamplingSettings(max_turn_tokens=16, max_tokens=256)
    seconds, played = in_turn(
        {
            "lockstep": lambda seed: _told(policy.play(world, names, samples, settings, seed)),
            "generate": lambda seed: text_peer(policy, world, names, samples, settings, seed),
        },
        repeats,
    )
    return {
        "benchmark": f"episodes per second, {tasks} tasks x {samples}",
        "ratio": spread(
            [b / a for a, b in zip(seconds["lockstep"], seconds["generate"], strict=True)]
        ),
        "episodes_per_second": {
            name: spread([played[name].episodes / one for one in each])
            for name, each in seconds.items()
        },
        "work": {name: vars(value) for name, value in played.items()},
        "device": device,
    }
