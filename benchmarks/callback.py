"""What audits cost a training run: time inside the callback's hooks against the
time of the run without them.

Both are measured in the same run (the `leak` recipe, two default intervals
long), so that a busy machine slows both alike; the start and both audits are
inside, so a longer run pays a smaller share. On a CPU the ratio is also given
in CPU time, which other processes disturb less. The policy has learned the leak
early in the run; from there on most groups are dead and its steps are cheap, so
audits weigh more than in a run that goes on learning. The half-widths of the
intervals that the default budget gives are printed beside the cost.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.live import AuditSettings, ForensicsCallback, read_reports

LIMIT = 0.10


class Timed:
    """A callback with a clock around each hook."""

    def __init__(self, settings: AuditSettings) -> None:
        self._inner, self.seconds, self.cpu = ForensicsCallback(settings), 0.0, 0.0

    @contextmanager
    def _clock(self) -> Iterator[ForensicsCallback]:
        began, worked = time.perf_counter(), time.process_time()
        yield self._inner
        self.seconds += time.perf_counter() - began
        self.cpu += time.process_time() - worked

    def on_start(self, view: Any) -> None:
        with self._clock() as inner:
            inner.on_start(view)

    def on_step_end(self, view: Any, step_report: Any) -> None:
        with self._clock() as inner:
            inner.on_step_end(view, step_report)

    def on_save(self, view: Any, folder: Path) -> None:
        with self._clock() as inner:
            inner.on_save(view, folder)

    def on_end(self, view: Any) -> None:
        with self._clock() as inner:
            inner.on_end(view)


def _one(folder: Path, seed: int, device: str, settings: AuditSettings) -> dict[str, float]:
    """Seconds of one audited run, in and outside the hooks, and the mean
    half-widths of its audits in points.
    """
    from forensics import load_policy
    from forensics.plugins import load_plugin
    from training import checkpoint_path, grpo, read_recipe
    from training.organisms import RECIPES

    recipe = read_recipe(RECIPES / "leak.toml")
    recipe = recipe.model_copy(
        update={"grpo": recipe.grpo.model_copy(update={"steps": 2 * settings.every})}
    )
    policy = load_policy(checkpoint_path(recipe.policy.checkpoint), device=device, dtype="float32")
    world = load_plugin("forensics.environments", recipe.environment.name)(
        **recipe.environment.options
    )
    callback = Timed(settings)
    began, worked = time.perf_counter(), time.process_time()
    grpo(policy, world, recipe, seed, folder, callbacks=[callback])
    total, cpu = time.perf_counter() - began, time.process_time() - worked
    reports = read_reports(folder)
    widths = {
        name: statistics.mean(
            50 * (part.high - part.low) for r in reports if (part := getattr(r, name)) is not None
        )
        for name in ("gain", "genuine", "phantom")
    }
    return {
        "audits": len(reports),
        "outside": total - callback.seconds,
        "ratio": callback.seconds / (total - callback.seconds),
        "ratio_cpu": callback.cpu / (cpu - callback.cpu),
    } | widths


def run(
    device: str = "cpu", repeats: int = 3, settings: AuditSettings | None = None
) -> dict[str, Any]:
    """`repeats` audited runs of the leak recipe at the default interval and budget."""
    settings = settings or AuditSettings()
    rows = []
    for seed in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_one(Path(folder), seed, device, settings))
    return {
        "benchmark": (
            f"audits every {settings.every} of {2 * settings.every} steps, {settings.tasks} tasks x"
            f" {settings.samples} in two worlds"
        ),
        "limit": LIMIT,
        "ratio": _spread([row["ratio"] for row in rows]),
        "ratio_of_cpu_time": _spread([row["ratio_cpu"] for row in rows]),
        "seconds_without": _spread([row["outside"] for row in rows]),
        "audits": rows[0]["audits"],
        "half_width_points": {
            n: _spread([row[n] for row in rows]) for n in ("gain", "genuine", "phantom")
        },
        "device": device,
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }
