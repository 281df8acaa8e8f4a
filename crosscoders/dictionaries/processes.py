"""Several processes of one training, by data: each has its share of every batch's rows, and
all hold the same weights, moments and counters.

1. Every process reads the whole stream, so that order, scale and first centres are those of
   one process, and takes its share of each batch.
2. Sums over a batch are added up: losses over the whole batch's rows, gradients before Adam's
   step, counters after it. What is chosen by rank over a batch is chosen among all processes'
   pairs; among equal values lower ranks come first.
3. Alone none of this does anything: the bits are those of a training without it.

The first process writes; a checkpoint is that of one process and goes on with any number.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from forensics.errors import UserError

PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class Processes:
    """This process among `size`."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch. Raises `UserError` where there are too few for all."""
        if len(batch) < self.size:
            raise UserError(
                f"{self.size} processes cannot share a batch of {len(batch)} rows; give larger"
                " batches or fewer processes"
            )
        return batch.tensor_split(self.size)[self.rank] if self.size > 1 else batch

    def total(self, value: Tensor) -> Tensor:
        """Summed over the processes."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def least(self, value: Tensor) -> Tensor:
        return self._reduced(value, dist.ReduceOp.MIN)

    def count(self, pairs: Tensor) -> int:
        """How many all processes have."""
        number = len(pairs)
        return number if self.size == 1 else int(self.total(torch.tensor(number).to(pairs)))

    def any(self, value: Tensor) -> Tensor:
        """Of truth values, whether one process has it."""
        return self._reduced(value.byte(), dist.ReduceOp.MAX).bool() if self.size > 1 else value

    def totals(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each summed over the processes, in one message, in double precision."""
        if self.size == 1:
            return {name: each.double() for name, each in values.items()}
        flat = self.total(torch.cat([each.double().flatten() for each in values.values()]))
        parts = flat.split([each.numel() for each in values.values()])
        return {
            name: part.view(each.shape).clone()
            for (name, each), part in zip(values.items(), parts, strict=True)
        }

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sum every gradient over the processes, in place."""
        if self.size == 1:
            return
        for each in parameters:
            if each.grad is not None:
                self._reduce_(each.grad, dist.ReduceOp.SUM)

    def largest(self, values: Tensor, number: int) -> Tensor:
        """Which of this process's `values` are among the `number` largest of all processes', of
        which there are at least as many.
        """
        kept = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        if self.size == 1:
            kept[values.topk(number, sorted=False).indices] = True
            return kept
        longest = int(self._reduced(torch.tensor(len(values)).to(values.device), dist.ReduceOp.MAX))
        rows = values.new_zeros((self.size, longest))
        rows[self.rank] = -torch.inf
        rows[self.rank, : len(values)] = values
        self._reduce_(rows, dist.ReduceOp.SUM)
        least = rows.flatten().topk(number, sorted=False).values.min()
        taken = int((rows > least).sum() + (rows[: self.rank] == least).sum())
        ties = (values == least).nonzero().squeeze(-1)[: max(0, number - taken)]
        kept[ties] = True
        return kept | (values > least)

    def _reduced(self, value: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size == 1:
            return value
        value = value.detach().clone()
        self._reduce_(value, how)
        return value

    def _reduce_(self, value: Tensor, how: dist.ReduceOp.RedOpType) -> None:
        dist.all_reduce(value, how)


ALONE = Processes()


@contextmanager
def joined(wanted: int, device: torch.device) -> Iterator[tuple[Processes, torch.device]]:
    """This process among those that `torchrun` started, and its own device. Raises `UserError`
    unless there are exactly `wanted`; one process stays alone whatever runs beside it.
    """
    if wanted == 1:
        yield ALONE, device
        return
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != wanted:
        raise UserError(
            f"this training wants {wanted} processes and {started} runs; start your script with"
            f" `torchrun --nproc-per-node {wanted} SCRIPT`, or give processes={started}"
        )
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(rank=dist.get_rank(), size=dist.get_world_size()), device
    finally:
        if own:
            dist.destroy_process_group()
