"""The plan of memory against what torch allocates, counted by its profiler; and the one
sentence where it is more than there is, before anything is read.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from crosscoders.dictionaries import (
    DictionaryConfig,
    Partition,
    TrainerSettings,
    TrainingJob,
    crosscoder_run,
    memory_plan,
    train_crosscoder,
)
from crosscoders.dictionaries.crosscoder_trainer import Trainer
from forensics.errors import UserError

TOLERANCE = 0.1
PARTITIONS = {
    "plain": Partition(latents=4096),
    "dedicated": Partition(latents=4096, before_only=200, after_only=100),
    "tied": Partition(latents=4096, before_only=200, after_only=200, tied=True),
}


def job(partition: str = "plain", rows: int = 128, width: int = 64, **given: Any) -> TrainingJob:
    settings = {"precision": given.pop("precision")} if "precision" in given else {}
    return TrainingJob(
        config=DictionaryConfig(width=width, partition=PARTITIONS[partition], k=8, **given),
        settings=TrainerSettings(tokens=10 * rows, batch=rows, scale_rows=rows, **settings),
    )


def peak(asked: TrainingJob) -> int:
    """Bytes that tensors hold at the most while a dictionary is made and takes two steps."""
    config, rows = asked.config, asked.settings.batch
    given = torch.randn((rows, config.models, config.width), generator=torch.Generator())

    def train() -> None:
        trainer = Trainer(asked, given, torch.device("cpu"))
        trainer.step(given)
        trainer.step(given)

    return allocated(train)


def of_the_product(rows: int, width: int, latents: int) -> int:
    """Bytes that a product in bfloat16 takes beside its result, on a processor that has none."""
    one, other = torch.ones(rows, width).bfloat16(), torch.ones(width, latents).bfloat16()
    return allocated(lambda: one @ other) - 2 * rows * latents


def allocated(work: Callable[[], Any]) -> int:
    """Bytes that tensors hold at the most meanwhile."""
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as profiler:
        kept = work()
    events: Any = profiler.profiler
    changes = [
        (event.start_ns(), event.nbytes())
        for event in events.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = most = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        most = max(most, held)
    del kept
    return most


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"partition": "dedicated"},
        {"partition": "tied"},
        {"rows": 1024, "width": 128},
        {"activation": "topk"},
        {"activation": "relu"},
        {"activation": "jumprelu"},
    ],
    ids=lambda given: "-".join(map(str, given.values())) or "plain",
)
def test_the_plan_is_within_a_tenth_of_what_is_allocated(
    given: dict[str, Any], precision: str
) -> None:
    asked = job(**given, precision=precision)
    plan = memory_plan(asked.config, asked.settings)
    more, shape = 0, (asked.settings.batch, 2 * asked.config.width, 4096)
    if precision == "bfloat16":
        more = of_the_product(*shape)
    assert plan.training * (1 - TOLERANCE) <= peak(asked) <= plan.training * (1 + TOLERANCE) + more


def test_the_figures_of_the_docs_by_hand() -> None:
    """65,536 latents x 2 models x 2,048: 2^29 numbers of encoders and decoders."""
    config = DictionaryConfig(width=2048, partition=Partition(latents=2**16), k=64)
    settings = TrainerSettings(tokens=100_000_000, batch=4096, precision="bfloat16")
    plan = memory_plan(config, settings, device="cuda")
    assert plan.weights == pytest.approx(4 * 2**29, rel=0.001)
    assert (plan.moments, plan.gradients) == pytest.approx((8 * 2**29, 4 * 2**29), rel=0.001)
    assert plan.scratch == 2 * 4096 * 2**16 and plan.copies == 4 * 2**28
    assert plan.store == 100_000_000 * 2 * 2048 * 2
    assert plan.host == plan.pool + 2 * plan.weights
    own = memory_plan(config, settings)
    assert own.host == own.device == own.training + own.pool


def test_what_does_not_fit_is_one_sentence_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = job()
    needed = memory_plan(asked.config, asked.settings).training
    monkeypatch.setattr(crosscoder_run, "free_bytes", lambda device: needed - 1)
    with pytest.raises(UserError, match=r"takes 19 MB, .* cpu has 19 MB free; give fewer latents"):
        train_crosscoder(None, asked.config, asked.settings, device="cpu")  # type: ignore[arg-type]
    monkeypatch.setattr(crosscoder_run, "free_bytes", lambda device: needed)
    crosscoder_run.require_memory({"one": asked}, torch.device("cpu"))
    with pytest.raises(UserError, match="takes 39 MB"):
        crosscoder_run.require_memory({"one": asked, "other": asked}, torch.device("cpu"))


def test_free_memory_is_a_number_of_this_machine() -> None:
    free = crosscoder_run.free_bytes(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50
