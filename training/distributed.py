"""Several processes of one run (`torchrun`): who am I, what do the others have,
and is it really so.

A run says in its recipe how many processes it wants and how weights are spread.
Both are *asserted* at the start instead of trusting a launcher: some launchers
silently start one process, or leave weights unsharded.

    ddp    every process holds all weights; gradients are averaged by DistributedDataParallel
    fsdp   weights, gradients and optimizer state are sharded (FSDP2, `fully_shard`)

Episodes are shared out by task and gathered again, so that every process sees
the whole step: advantages, filters and curricula are computed from the same
numbers everywhere, and equal those of one process.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed as dist

from forensics.errors import UserError
from forensics.policies import decoder_layers

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

Strategy = Literal["ddp", "fsdp"]
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process among `size`."""

    rank: int = 0
    size: int = 1
    strategy: Strategy = "ddp"

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[Value]) -> list[Value]:
        """The part of `items` that is this process's."""
        return list(items[self.rank :: self.size])

    def all(self, value: Value) -> list[Value]:
        """Every process's value, by rank."""
        if self.size == 1:
            return [value]
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, value)
        return parts

    def to_first(self, value: Value) -> list[Value]:
        """Every process's value, by rank, on the first one; nothing on the others."""
        if self.size == 1:
            return [value]
        parts: list[Any] | None = [None] * self.size if self.first else None
        dist.gather_object(value, parts)
        return parts or []

    def gather(self, mine: list[Value]) -> list[Value]:
        """What `share` dealt out, whole again and in order, on every process."""
        parts = self.all(mine)
        whole: list[Any] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            whole[rank :: self.size] = part
        return whole

    def from_first(self, value: Value) -> Value:
        """The first process's value, on every process."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


def joined() -> Process:
    """This process among those that a launcher has joined, or alone."""
    if not dist.is_available() or not dist.is_initialized():
        return Process()
    return Process(rank=dist.get_rank(), size=dist.get_world_size())


def first_process() -> bool:
    """Whether this process is the one that writes, before the others are joined."""
    return int(os.environ.get("RANK", "0")) == 0


def own_device(device: str) -> str:
    """`cuda` as the card that `torchrun` gave this process."""
    return (
        f"cuda:{os.environ['LOCAL_RANK']}"
        if device == "cuda" and "LOCAL_RANK" in os.environ
        else device
    )


def check_launch(wanted: int) -> int:
    """How many processes were started. Raises `UserError` unless that is `wanted`."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size != wanted:
        raise UserError(
            f"the recipe wants {wanted} processes and {size} runs; start it with `torchrun"
            f" --nproc-per-node {wanted} -m forensics train ...`, or set processes = {size} under"
            " [parallel]"
        )
    return size


def join(wanted: int, strategy: Strategy, device: str) -> Process:
    """Join the processes that `torchrun` started. Raises `UserError` unless
    there are exactly `wanted`.
    """
    size = check_launch(wanted)
    if size == 1:
        return Process(strategy=strategy)
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(minutes=30))
    if dist.get_world_size() != wanted:
        raise UserError(
            f"{dist.get_world_size()} processes joined instead of {wanted}; check the launcher"
        )
    return replace(joined(), strategy=strategy)


def leave(process: Process) -> None:
    """Take the process group down. Nothing may hold it any more (`Machine.close`)."""
    if process.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def spread_weights(root: Any, model: Any, process: Process) -> None:
    """Under `fsdp`, shard the model's layers and then `root`, which holds it,
    in place; then check that it is so.
    """
    if process.size == 1:
        return
    if process.strategy == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(model.device.type, (process.size,))
        for layer in decoder_layers(model):
            fully_shard(layer, mesh=mesh)
        fully_shard(root, mesh=mesh)
    assert_spread(model, process)


def sharded_modules(root: Any) -> "list[FSDPModule]":
    """The parts of `root` whose weights FSDP2 holds in pieces."""
    from torch.distributed.fsdp import FSDPModule

    return [module for module in root.modules() if isinstance(module, FSDPModule)]


def forget_group(root: Any) -> None:
    """Make the sharded layers under `root` let go of the process group; no
    forward pass can follow.
    """
    for layer in sharded_modules(root):
        group = layer._get_fsdp_state()._fsdp_param_group
        if group is not None:
            mesh_info: Any = group.mesh_info
            mesh_info.shard_process_group = None
            getattr(mesh_info.mesh, "_pg_registry", {}).clear()


def assert_spread(model: Any, process: Process) -> None:
    """Raise `UserError` unless weights are spread as the strategy says."""
    from torch.distributed.tensor import DTensor

    parameters = list(model.parameters())
    sharded = [p for p in parameters if isinstance(p, DTensor) and p.to_local().numel() < p.numel()]
    if process.strategy == "fsdp" and 2 * len(sharded) < len(parameters):
        raise UserError(
            f"only {len(sharded)} of {len(parameters)} weights are sharded; fsdp did not take hold"
        )
    if process.strategy == "ddp":
        checksum = float(sum(parameter.detach().double().sum() for parameter in parameters))
        if len(set(process.all(checksum))) > 1:
            raise UserError(
                "the processes hold different weights; under ddp they must be the same at every"
                " step"
            )
