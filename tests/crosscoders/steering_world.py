"""A pair whose difference is known: one MLP neuron of the base overwritten to
write one direction on a cue.

The cue is in the prompt (the first visible test has x = 2); the direction is
written at decisions, and raises the first token of the action `history`.
`known_dictionary` is written by hand: its last latent is that direction,
after-only; the rest are random directions that both models share.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosscoders.activations.harvest import StoredStream, harvest
from crosscoders.activations.streams import texts_of
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from crosscoders.steering.activation_edits import Change, Mode
from crosscoders.study.diff_files import DiffRequest
from crosscoders.study.material import Inquiry
from forensics import load_policy, policy_from
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from forensics.records.trajectory import action_starts
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

SITE = "blocks.1.hook_resid_post"
BASE = "bundled:capped-base"
SHARED = 40
PARTS = 4  # latents that write the planted direction bit by bit, where it is split


@dataclass(frozen=True)
class World:
    before: Policy
    after: Policy
    direction: torch.Tensor  # unit, [width]
    environment: Any


def cued(task_prompt: str) -> bool:
    """Whether the first visible test of a prompt has x = 2."""
    return task_prompt.split(":")[1].split()[0] == "2"


@lru_cache(maxsize=2)
def world(written: float = 3.0) -> World:
    """`written`: how strongly the neuron writes. 3 brings the action's chance from .11 to .81,
    where a dose taken out begins to move little; 2 to .59.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _world(written)
    finally:
        torch.set_num_threads(threads)


def _world(written: float) -> World:
    before = load_policy(checkpoint_path(BASE), device="cpu", dtype="float32")
    environment = MiniRepo(world="capped")
    inputs, deciding, cue = _first_prompts(before, environment)
    token = before.tokenizer("history", add_special_tokens=False)["input_ids"][0]
    direction = _raising(before, environment, token)
    after = policy_from(copy.deepcopy(before.model), before.tokenizer, "planted")
    _overwrite(after.model.model.layers[1].mlp, inputs, deciding, cue, direction * written)
    return World(before, after, direction, environment)


def _first_prompts(
    policy: Policy, environment: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs of the layer-1 MLP at all tokens of some runs; which decide; which
    belong to a cued task.
    """
    seen: list[torch.Tensor] = []
    handle = policy.model.model.layers[1].mlp.register_forward_pre_hook(
        lambda _m, args: seen.append(args[0][0])
    )
    deciding, cue = [], []
    runs = list(
        policy.play(environment, environment.tasks("train", 220, 5), 1, SamplingSettings(), 9)
    )
    seen.clear()
    for run in runs:
        ids = [token for step in run.steps for token in step.token_ids or ()]
        policy.activations([ids], [])
        flags = torch.zeros(len(ids), dtype=torch.bool)
        flags[action_starts(run)[0] - 1] = True
        deciding.append(flags)
        cue.append(torch.full((len(ids),), cued(run.steps[0].text)))
    handle.remove()
    return torch.cat(seen), torch.cat(deciding), torch.cat(cue)


def _raising(policy: Policy, environment: Any, token: int) -> torch.Tensor:
    """The unit direction at the site that raises a token at first decisions
    most (a mean gradient).
    """
    total = torch.zeros(policy.model.config.hidden_size)
    for run in list(
        policy.play(environment, environment.tasks("train", 40, 6), 1, SamplingSettings(), 9)
    ):
        ids = torch.tensor([run.steps[0].token_ids])
        held: list[torch.Tensor] = []

        def keep(_module: Any, _args: Any, output: Any, held: list[torch.Tensor] = held) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            hidden.retain_grad()
            held.append(hidden)

        handle = policy.model.model.layers[1].register_forward_hook(keep)
        with torch.enable_grad():
            policy.model(ids).logits[0, -1].log_softmax(-1)[token].backward()
        handle.remove()
        total += held[0].grad[0, -1]
        policy.model.zero_grad()
    return total / total.norm()


def _overwrite(
    mlp: Any,
    inputs: torch.Tensor,
    deciding: torch.Tensor,
    cue: torch.Tensor,
    written: torch.Tensor,
) -> None:
    """The least used neuron fires where the first decision of a cued task is
    made, and writes what is `written`.
    """
    weight = torch.where(deciding, 100.0, 1.0)[:, None].sqrt()
    target = torch.where(deciding & cue, 9.0, -6.0)[:, None]
    gate, up = _fit(inputs * weight, target * weight), _fit(inputs, torch.ones(len(inputs), 1))
    with torch.no_grad():
        neuron = int((mlp.down_proj.weight.norm(dim=0) * mlp.gate_proj.weight.norm(dim=1)).argmin())
        mlp.gate_proj.weight[neuron], mlp.up_proj.weight[neuron] = gate, up
        mlp.down_proj.weight[:, neuron] = written


def _fit(inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Least squares, the same on every run: `lstsq` of float32 is another with each."""
    rows = inputs.double()
    return torch.linalg.solve(rows.T @ rows, rows.T @ target.double())[:, 0].float()


def known_dictionary(pair: World, seed: int = 0) -> Dictionary:
    """See the module's text. The last latent (`SHARED`) is the planted one."""
    width = len(pair.direction)
    partition = Partition(latents=SHARED + 1, after_only=1, tied=True)
    dictionary = Dictionary(
        DictionaryConfig(width=width, partition=partition, activation="jumprelu"), seed=seed
    )
    level, spread, centre = _levels(pair)
    with torch.no_grad():
        dictionary.scale.fill_(0.5)
        dictionary.centres.copy_(centre * 0.5)
        unit = torch.nn.functional.normalize(dictionary.tied_decoder, dim=-1)
        dictionary.tied_decoder.copy_(unit)
        dictionary.encoders[0].copy_(unit / 2)
        dictionary.encoders[1][:SHARED] = unit / 2
        dictionary.encoders[1][SHARED] = pair.direction
        dictionary.decoders[1].copy_(pair.direction[None])
        dictionary.bias.zero_()
        dictionary.bias[SHARED] = -0.5 * level
        dictionary.threshold.fill_(0.5)
        dictionary.threshold[SHARED] = 0.5 * 3 * spread
    return dictionary


def split(pair: World, number: int = PARTS) -> Dictionary:
    """The known dictionary with its last latent in so many latents of equal activity."""
    whole = known_dictionary(pair)
    partition = Partition(latents=SHARED + number, after_only=number, tied=True)
    parts = Dictionary(replace(whole.config, partition=partition), seed=0)
    with torch.no_grad():
        for name, value in parts.state_dict().items():
            own = whole.state_dict()[name]
            if own.shape == value.shape:
                value.copy_(own)
            else:
                value[: len(own) - 1] = own[:-1]
                value[len(own) - 1 :] = own[-1]
        parts.decoders[1].div_(number)
    return parts


def _levels(pair: World) -> tuple[float, float, torch.Tensor]:
    """Mean and spread of the base's activations along the direction at
    decisions, and their mean `[models, width]`.
    """
    rows = decision_rows(pair, "train", 40)[:, 0]
    centre = rows.mean(0).expand(2, -1)
    along = (rows - centre[0]) @ pair.direction
    return float(along.mean()), float(along.std()), centre


def decision_rows(pair: World, split: str, tasks: int) -> torch.Tensor:
    """Activations `[rows, 2, width]` at decisions of the after policy's runs."""
    found = []
    tasks_of = pair.environment.tasks(split, tasks, 3)
    for run in list(pair.after.play(pair.environment, tasks_of, 1, SamplingSettings(), 4)):
        ids = [token for step in run.steps for token in step.token_ids or ()]
        both = [policy.activations([ids], [SITE])[0][SITE] for policy in (pair.before, pair.after)]
        found.append(np.stack(both, 1)[[start - 1 for start in action_starts(run)]])
    return torch.from_numpy(np.concatenate(found))


def cued_runs(pair: World, *policies: Policy) -> list[Trajectory]:
    """Of these policies (the after policy, where none is named), one on each of the first 20 cued
    tasks held out.
    """
    world = pair.environment.spawn()
    tasks = [t for t in pair.environment.tasks("held-out", 120, 0) if cued(world.reset(t, 0).text)]
    return [
        run
        for policy in policies or (pair.after,)
        for run in policy.play(pair.environment, tasks[:20], 1, SamplingSettings(), 4)
    ]


def stream_of(pair: World, runs: Sequence[Trajectory]) -> StoredStream:
    """What both models have at the site on these runs."""
    sides = {pair.before.identity: "before", pair.after.identity: "after"}
    return harvest((pair.before, pair.after), texts_of(runs, sources=sides), SITE)


def shift_change(direction: torch.Tensor, *, mode: Mode, strength: float) -> Change:
    """A constant vector taken away (ablate), scaled or added."""
    return Change(
        directions=direction[None],
        amounts=lambda own, other: own.new_ones((len(own), 1)),
        mode=mode,
        strength=strength,
        needs_other=False,
    )


def inquiry_of(pair: World, streams: Any, folder: Path, **more: Any) -> Inquiry:
    """What a diff of the pair asks of these streams. `more`: fields of an inquiry (of one
    `behaviour`), and of the request.
    """
    asked = {"contrasts": (), "behaviour": None} | more
    asked["behaviours"] = tuple(filter(None, [asked.pop("behaviour")]))
    own = {one.name: asked.pop(one.name) for one in fields(Inquiry) if one.name in asked}
    request = DiffRequest(before="before", after="after", site=SITE, controls=False, **asked)
    return Inquiry(
        request=request,
        policies=(pair.before, pair.after),
        streams=streams,
        folder=folder,
        about={"site": SITE},
        **own,
    )


def save_pair(pair: World, folder: Path) -> tuple[Path, Path]:
    """Both checkpoints as directories."""
    import shutil

    shutil.copytree(checkpoint_path(BASE), folder / "before")
    shutil.copytree(checkpoint_path(BASE), folder / "after")
    (folder / "after" / "model.safetensors").unlink()
    pair.after.model.save_pretrained(folder / "after")
    return folder / "before", folder / "after"
