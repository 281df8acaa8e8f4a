"""What a run says of itself while it trains: `metrics.jsonl`, and TensorBoard where it is installed."""

from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forensics.records import canonical_json
from forensics.records.files import write_atomically
from training.preference_trainer import PreferenceStep
from training.trainer import StepReport

CURVES = ("reward", "success", "turns", "tokens", "kept", "loss", "gradient_norm")


class Metrics:
    """One line a step in `folder/metrics.jsonl` (a resumed run writes its steps anew); scalars by name."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"
        self._rows = self._path.read_text().splitlines() if self._path.exists() else []
        self._folder = folder / "tensorboard"

    def step(self, report: StepReport | PreferenceStep) -> None:
        """Add a step's report."""
        del self._rows[report.step :]
        row = asdict(report)
        self._rows.append(canonical_json(row))
        write_atomically(self._path, "\n".join(self._rows) + "\n")
        for name in CURVES:
            if row.get(name) is not None:
                self.scalar(f"train/{name}", float(row[name]), report.step)
        for name, value in report.losses.items():
            self.scalar(f"train/{name}", value, report.step)

    def scalar(self, name: str, value: float, step: int) -> None:
        """One point of a TensorBoard curve; without TensorBoard it is dropped."""
        if self._board is not None:
            self._board.add_scalar(name, value, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if board := vars(self).get("_board"):
            board.close()

    @cached_property
    def _board(self) -> Any:
        """Made with the first point: a run that is refused leaves no folder."""
        return _tensorboard(self._folder)


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
