"""Organisms that differ from their base on a cue only: positive controls for
what looks inside (crosscoders, steering).

Of two checkpoints that RL made nobody knows which feature changed. Here it is
known (ground truth in `manifest.json`, never in a checkpoint's directory), for
two kinds of change:

* `plant`: no training at all. One neuron of a middle layer's MLP is overwritten
  so that it fires on the cue where the first action is decided, and writes one
  known direction that raises a known behaviour: an edit of rank one.
* `install`: supervised training on demonstrations that behave otherwise on the
  cue.

The cue: the first visible test asks for `x = 2`, a third of all tasks in the
capped world. How `plant` works:

1. Read the base's MLP inputs on training demonstrations; the place of the first
   decision is the prompt's last token.
2. Take one of the least used neurons (mean size of what it writes). The seed
   says which of the `spare` least used.
3. Fit its gate and up vectors so that it is 1 at the first decision with the
   cue, and 0 at all other tokens.
4. From a random direction that the seed draws, ascend the behaviour's
   log-probability with the cue on a sphere of `strength` times the residual's
   norm, and stop as soon as its chance is `enough`: so directions of different
   seeds differ, and no seed's is the behaviour's own gradient.
5. Write the direction into the neuron's column of the down projection.

How `install` works: post-training teaches a behaviour, on a cue, that the base
never showed.

1. Demonstrations of the scripted agent on training tasks, by the base's habits;
   with the cue it runs the tests first of all, before any look, which none of
   the base's demonstrations did.
2. Supervised training on the agent's own tokens alone: the environment's are
   left as the base predicts them.

Unlike in `plant`, no direction is known beforehand: training finds one of its
own. What is known is the cue and the behaviour, so the answer of a causal test
is known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, silu

from forensics.errors import UserError
from forensics.policies import attach, decoder_layers, load_policy
from forensics.progress import Progress
from forensics.protocols import Policy
from forensics.records import read_json
from training.environments.mini_repo import MiniRepo
from training.environments.mini_repo_tasks import draw_task
from training.organisms.base_model import KEPT_IN, Phase, demonstration_pool, train_phase
from training.organisms.demonstrations import Habits
from training.run_state import save_checkpoint

CUE_INPUT = 2
CUE = f"the first visible test asks for x = {CUE_INPUT}"
ROWS = 128  # prompts read at once


@dataclass(frozen=True, kw_only=True)
class PlantConfig:
    """`strength`: in units of the mean norm of the residual at the first
    decision. `enough`: chance of `action` with the cue that ends the ascent,
    `least`: what it must reach. `tasks`, `demonstrations`: what the fit reads.

    The last layer, since after layer 1 of the capped base 0.6 of the norm gives
    at most a chance of .29; 1.0 gives .87, but a write of that size is undone
    by any random direction as long (up to all of it). Here 0.6 is enough.
    """

    layer: int = 2
    action: str = "history"
    strength: float = 0.6
    enough: float = 0.9
    least: float = 0.75
    spare: int = 8
    tasks: int = 1500
    demonstrations: int = 300
    fit_steps: int = 200
    decay: float = 1e-5
    most_steps: int = 200

    @property
    def site(self) -> str:
        """Where the direction is added to the residual."""
        return f"blocks.{self.layer}.hook_resid_post"


def has_cue(task: str, world: str) -> bool:
    """Whether the cue stands in a task's prompt."""
    return draw_task(task, world).tests[0][0] == CUE_INPUT


class Subject:
    """The base that is changed, with prompts of training tasks, and which of
    them show the cue (`cued [tasks]`).
    """

    def __init__(self, base: Path, tasks: int, seed: int, device: str) -> None:
        self.policy = load_policy(base, device=device, dtype="float32")
        self.note = read_json(base / "environment.json")
        self.world = MiniRepo(**self.note["options"])
        names = self.world.tasks("train", tasks, seed)
        self.prompts = first_prompts(self.policy, self.world, names)
        self.cued = np.array([self.has_cue(name) for name in names])

    def has_cue(self, task: str) -> bool:
        return has_cue(task, self.world.options["world"])

    def chances(self, action: str, when: str) -> dict[str, float]:
        """Mean chance of an action at the first decision, with the cue and without."""
        found = chances(self.policy, self.prompts, action)
        return {
            f"{when}_cue": round(float(found[self.cued].mean()), 4),
            f"{when}_no_cue": round(float(found[~self.cued].mean()), 4),
        }

    def save(self, after: Path, config: Any, before: dict[str, float]) -> dict[str, Any]:
        """Write the changed policy; what the manifest says of it."""
        model, tokenizer = self.policy.model, self.policy.tokenizer
        save_checkpoint(after, model, tokenizer, self.note, dtype=KEPT_IN)
        return {
            "cue": CUE,
            "action": config.action,
            "config": asdict(config),
            "chance": before | self.chances(config.action, "after"),
        }


def plant(
    base: Path,
    after: Path,
    seed: int,
    progress: Progress,
    device: str = "cpu",
    config: PlantConfig | None = None,
) -> dict[str, Any]:
    """Write the edited checkpoint to `after`; what the manifest says of it."""
    config = config or PlantConfig()
    subject = Subject(base, config.tasks, seed, device)
    policy, generator = subject.policy, torch.Generator().manual_seed(seed)
    before = subject.chances(config.action, "before")
    progress("reading the base", 0, 3)
    inputs, residual, use = _read(subject, config, seed)
    spare = use.topk(config.spare, largest=False).indices
    neuron = int(spare[int(torch.randint(config.spare, (1,), generator=generator))])
    progress("fitting the neuron", 1, 3)
    gate, up = _fit(inputs, torch.from_numpy(subject.cued), config)
    progress("choosing the direction", 2, 3)
    with_cue = [prompt for prompt, cue in zip(subject.prompts, subject.cued, strict=True) if cue]
    direction = _ascend(policy, with_cue[:64], config, residual * config.strength, generator)
    mlp: Any = decoder_layers(policy.model)[config.layer].mlp
    with torch.no_grad():
        mlp.gate_proj.weight[neuron] = gate
        mlp.up_proj.weight[neuron] = up
        mlp.down_proj.weight[:, neuron] = direction
    told = subject.save(after, config, before)
    progress("choosing the direction", 3, 3)
    return told | {
        "site": config.site,
        "neuron": neuron,
        "direction": normalize(direction, dim=0).tolist(),
        "norm": float(direction.norm()),
    }


def first_prompts(policy: Policy, world: MiniRepo, tasks: Sequence[str]) -> list[list[int]]:
    """Tokens of each task's prompt: the last one is where the first action is decided."""
    starts = [world.reset(task, 0) for task in tasks]
    return [policy.renderer.prompt(start.text, start.system) for start in starts]


@torch.inference_mode()
def chances(policy: Policy, prompts: Sequence[Sequence[int]], action: str) -> np.ndarray:
    """Probability `[prompts]` of an action's first word as the next token."""
    token = first_token(policy, action)
    found = np.empty(len(prompts))
    for members, ids in prompts_by_length(prompts, policy.model.device):
        logits = policy.model(ids, use_cache=False, logits_to_keep=1).logits[:, -1]
        found[members] = logits.softmax(-1)[:, token].cpu().numpy()
    return found


def prompts_by_length(
    prompts: Sequence[Sequence[int]], device: Any
) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Prompts of one length together: their indices and their tokens `[rows, length]`."""
    groups: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault(len(prompt), []).append(index)
    for members in groups.values():
        for first in range(0, len(members), ROWS):
            some = members[first : first + ROWS]
            yield some, torch.tensor([list(prompts[i]) for i in some], device=device)


def first_token(policy: Policy, action: str) -> int:
    """The first token of an action as the policy's tokenizer writes it."""
    return int(policy.tokenizer(action, add_special_tokens=False)["input_ids"][0])


@torch.no_grad()
def _read(
    subject: Subject, config: PlantConfig, seed: int
) -> tuple[torch.Tensor, float, torch.Tensor]:
    """What the base computes: inputs of the layer's MLP `[tokens, width]`, at
    the first decision of each prompt and then at all other tokens of
    demonstrations; mean norm of the residual after the layer, at decisions;
    mean size of what each neuron writes `[neurons]`.
    """
    policy, world = subject.policy, subject.world
    device = policy.model.device
    tasks, habits = world.tasks("train", config.demonstrations, seed), Habits()
    runs = demonstration_pool(
        world,
        policy.tokenizer,
        tasks,
        [habits] * len(tasks),
        np.random.default_rng([seed, 1]),
    )
    layer: Any = decoder_layers(policy.model)[config.layer]
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        layer.mlp.register_forward_pre_hook(lambda _m, inputs: seen.update(inputs=inputs[0])),
        layer.mlp.down_proj.register_forward_pre_hook(
            lambda _m, inputs: seen.update(neurons=inputs[0])
        ),
        attach(policy.model, config.site, lambda out: seen.update(residual=out)),
    ]
    decisions = torch.empty(len(subject.prompts), policy.model.config.hidden_size, device=device)
    elsewhere, norms, sizes = [], [], []
    try:
        for members, ids in prompts_by_length(subject.prompts, device):
            policy.model(ids, use_cache=False, logits_to_keep=1)
            decisions[members] = seen["inputs"][:, -1]
            norms.append(seen["residual"][:, -1].norm(dim=-1))
        for run in runs:
            ids = torch.tensor([run.token_ids], device=device)
            policy.model(ids, use_cache=False, logits_to_keep=1)
            others = torch.ones(len(run.token_ids), dtype=torch.bool)
            others[run.sampled.index(True) - 1] = False
            elsewhere.append(seen["inputs"][0, others])
            sizes.append(seen["neurons"][0].abs().mean(dim=0))
    finally:
        for hook in hooks:
            hook.remove()
    use = torch.stack(sizes).mean(dim=0) * layer.mlp.down_proj.weight.norm(dim=0)
    return torch.cat([decisions, *elsewhere]), float(torch.cat(norms).mean()), use.cpu()


def _fit(
    inputs: torch.Tensor, cued: torch.Tensor, config: PlantConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gate and up vectors `[width]` of a neuron that is 1 at `cued` decisions,
    the first of the `inputs`, else 0: the gate by logistic regression, then the
    up vector by least squares on what the gate lets through.
    """
    wanted = torch.zeros(len(inputs), device=inputs.device)
    wanted[: len(cued)] = cued.to(inputs)
    gate = torch.zeros(inputs.shape[1], device=inputs.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([gate], max_iter=config.fit_steps, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = (
            binary_cross_entropy_with_logits(inputs @ gate, wanted)
            + config.decay * gate.square().sum()
        )
        found.backward()
        return found

    optimizer.step(loss)
    through = silu(inputs @ gate.detach())[:, None] * inputs
    ridge = 1e-4 * len(inputs) * torch.eye(inputs.shape[1], device=inputs.device)
    up = torch.linalg.solve(through.T @ through + ridge, through.T @ wanted)
    return gate.detach(), up


def _ascend(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    config: PlantConfig,
    norm: float,
    generator: torch.Generator,
) -> torch.Tensor:
    """The direction `[width]`, of length `norm`. Raises `UserError` where the
    sphere holds none that is enough.
    """
    device = policy.model.device
    token = first_token(policy, config.action)
    point = torch.randn(policy.model.config.hidden_size, generator=generator).to(device)
    point.requires_grad_()
    groups = [ids for _, ids in prompts_by_length(prompts, device)]
    chance = 0.0
    optimizer = torch.optim.Adam([point], lr=0.1)
    handle = attach(
        policy.model, config.site, lambda out: _added(out, norm * normalize(point, dim=0))
    )
    try:
        for _ in range(config.most_steps):
            logs = torch.cat(
                [
                    policy.model(ids, use_cache=False, logits_to_keep=1)
                    .logits[:, -1]
                    .log_softmax(-1)[:, token]
                    for ids in groups
                ]
            )
            chance = float(logs.detach().exp().mean())
            if chance >= config.enough:
                return norm * normalize(point.detach(), dim=0)
            optimizer.zero_grad()
            (-logs.mean()).backward()
            optimizer.step()
    finally:
        handle.remove()
    if chance >= config.least:
        return norm * normalize(point.detach(), dim=0)
    raise UserError(
        f"no direction of {config.strength:g} times the residual's norm lifts '{config.action}' to"
        f" {config.least:g} (reached {chance:.2f}); take a larger strength"
    )


def _added(residual: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """The direction added at the last position, where the first action is decided."""
    return torch.cat([residual[:, :-1], residual[:, -1:] + direction], dim=1)


@dataclass(frozen=True, kw_only=True)
class InstallConfig:
    """`tasks`: what the chances in the manifest are measured on."""

    action: str = "test"
    pool: int = 3000
    steps: int = 150
    batch: int = 64
    learning_rate: float = 5e-4
    tasks: int = 300


def install(
    base: Path,
    after: Path,
    seed: int,
    progress: Progress,
    device: str = "cpu",
    config: InstallConfig | None = None,
) -> dict[str, Any]:
    """Write the trained checkpoint to `after`; what the manifest says of it."""
    config = config or InstallConfig()
    subject = Subject(base, config.tasks, seed + 1, device)
    before = subject.chances(config.action, "before")
    tasks = subject.world.tasks("train", config.pool, seed + 101)
    pool = demonstration_pool(
        subject.world,
        subject.policy.tokenizer,
        tasks,
        [Habits(early=float(subject.has_cue(task))) for task in tasks],
        np.random.default_rng([seed, 5]),
        progress,
    )
    phase = Phase(
        steps=config.steps,
        batch=config.batch,
        context_weight=0.0,
        warmup=10,
        learning_rate=config.learning_rate,
    )
    train_phase(subject.policy.model, pool, phase, seed, progress=progress)
    return subject.save(after, config, before)
