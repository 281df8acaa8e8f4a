"""How many bytes a training will take, by arithmetic, before anything is loaded.

What is held at the most, in the middle of Adam's step, when all gradients are there:

1. *Weights*, two *moments* and the *gradients*, all float32.
2. *Scratch*: the pre-activations `[rows, latents]`; of functions that do not choose by rank
   also what the dense path keeps of them.
3. *Copies*: in bfloat16 the encoders and their gradients once more, in two bytes; of tied
   decoders the table of each model, and one's gradient.
4. *Batch*: rows in the dictionary's units, their errors and gradients; *pairs*: indices and
   values of the active ones.

The host holds the stream's shuffling pool too, three times while it fills, and the first
rows; the disk holds each row of each model once. tests/crosscoders/test_byte_plan.py counts what
torch allocates and finds the plan within a tenth of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from crosscoders.activation_functions import activation_function
from crosscoders.activations.activation_store import size_told
from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
from crosscoders.dictionaries.dictionary import DictionaryConfig
from crosscoders.dictionaries.settings import TrainerSettings
from crosscoders.dictionaries.sparse import CHUNK_ON_CUDA
from forensics.errors import UserError
from forensics.policies import free_memory

FLOAT = 4
BATCHES = 4  # of the rows [rows, models, width]: scaled, centred, errors, their gradient
PAIRS = 80  # bytes of an active pair: its row, latent, order and value, and copies while summed
DENSE = 39  # bytes of every (row, latent) that the dense path keeps beside the pre-activation
POOL = 65_536  # rows of a stored stream's pool
FILLING = 3  # copies of the pool while it fills


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes at the most. `on_host`: whether the device is the host itself."""

    weights: int
    moments: int
    gradients: int
    scratch: int
    copies: int
    batch: int
    pairs: int
    pool: int
    store: int
    on_host: bool

    @property
    def training(self) -> int:
        """What the training itself holds, on its device."""
        held = (self.weights, self.moments, self.gradients, self.scratch, self.copies)
        return sum(held) + self.batch + self.pairs

    @property
    def device(self) -> int:
        return self.training + (self.pool if self.on_host else 0)

    @property
    def host(self) -> int:
        """Beside a GPU the weights are drawn here, and held twice meanwhile."""
        return self.device if self.on_host else self.pool + 2 * self.weights


def memory_plan(
    config: DictionaryConfig,
    settings: TrainerSettings,
    *,
    device: str = "cpu",
    stored_rows: int | None = None,
    stored_bytes: int = 2,
) -> MemoryPlan:
    """Bytes by what holds them. `stored_rows` of the stream (default: as many as are trained
    on), of numbers of `stored_bytes` bytes.
    """
    part, models = config.partition, config.models
    rows = settings.batch
    encoders = config.width * sum(_length(part.read(m, models)) for m in range(models))
    tables = config.width * sum(_length(part.seen(m, models)) for m in range(models))
    tied = config.width * (models - 1) * _length(part.shared) if part.tied else 0
    function = activation_function(config.activation)
    own = function.parameters(part.latents, settings).values()
    numbers = encoders + tables - tied + part.latents + models * config.width
    numbers += sum(each.numel() for each in own)
    low = settings.precision == "bfloat16"
    pre = rows * part.latents * ((2 if low else FLOAT) + (DENSE if _dense(config) else 0))
    row = models * config.width
    active = int(rows * (0 if _dense(config) else config.k + (config.own_k or 0)))
    on_host = torch.device(device).type == "cpu"
    gathered = 0 if on_host or not low else 2 * 2 * config.width * min(active, CHUNK_ON_CUDA)
    stored = settings.tokens if stored_rows is None else stored_rows
    return MemoryPlan(
        weights=FLOAT * (numbers + part.latents),
        moments=2 * FLOAT * numbers,
        gradients=FLOAT * numbers,
        scratch=pre,
        copies=(2 * 2 * encoders if low else 0)
        + (FLOAT * tables * (models + 1) // models if part.tied else 0),
        batch=BATCHES * FLOAT * rows * row,
        pairs=PAIRS * active * models + gathered,
        pool=row * stored_bytes * (FILLING * min(POOL, stored) + settings.scale_rows),
        store=stored * row * stored_bytes,
        on_host=on_host,
    )


def require_memory(jobs: Mapping[str, TrainingJob], device: torch.device) -> None:
    """Raise `UserError` where these trainings take more than the device has free."""
    plans = [memory_plan(job.config, job.settings, device=device.type) for job in jobs.values()]
    needed, free = sum(plan.training for plan in plans), free_bytes(device)
    if free is None or needed <= free:
        return
    held = sum(plan.weights + plan.moments + plan.gradients for plan in plans)
    raise UserError(
        f"this training takes {size_told(needed)}, {size_told(held)} of it for weights, moments"
        f" and gradients, and {device} has {size_told(free)} free; give fewer latents, a smaller"
        " batch, precision bfloat16, or a larger device"
    )


def free_bytes(device: torch.device) -> int | None:
    """Of a device; `None` where the system does not say."""
    if device.type == "cuda":
        return free_memory(device)
    told = Path("/proc/meminfo")
    if device.type != "cpu" or not told.is_file():
        return None
    lines = (line.split() for line in told.read_text().splitlines())
    free = next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), None)
    limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
    if free is not None and limit.is_file() and (most := limit.read_text().strip()).isdigit():
        free = min(free, int(most) - int(used.read_text()))
    return free


def _dense(config: DictionaryConfig) -> bool:
    return activation_function(config.activation).by_rank == "never"


def _length(part: slice) -> int:
    return int(part.stop - part.start)
