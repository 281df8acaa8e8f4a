"""The recorder: writes a training record off the training path.

1. `submit` hands a step's rows to one background thread through a bounded queue and returns. With `WAITING` steps
   waiting it blocks, so memory stays bounded where the disk is slower than the training.
2. The thread writes each step's shard, then its marker (`forensics.records.training_tables`).
3. An error of the thread (a full disk) is raised by the next `submit`, `flush` or `close`, as one `UserError`. Later
   steps are not written, so what is on disk has no hole and stays readable.

The recorder draws no random number and changes nothing that it is given: weights do not depend on it. Call `flush`
before a state is saved, so that the record is never behind the state that a killed run resumes from.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Any, Self

from forensics.errors import UserError
from forensics.records import canonical_json
from forensics.records.files import read_json, write_json
from forensics.records.training import TrainingRow, TrainingRun
from forensics.records.training_tables import FOLDER, marker_path, warm_up, write_shard

Rows = Iterable[TrainingRow] | Callable[[], Iterable[TrainingRow]]
WAITING = 2  # steps
IDENTITY = ("start", "tokenizer", "seed", "environment")


class Recorder:
    """Write the record of one run to `folder/record`. A context manager: leaving it flushes and closes.

    Raises `UserError` where the folder holds the record of another run (another start, tokenizer, seed or
    environment), or cannot be written.
    """

    def __init__(self, folder: Path, run: TrainingRun) -> None:
        self.folder = Path(folder)
        self.run = run
        self._queue: Queue[tuple[int, Rows, Mapping[str, Any]] | None] = Queue(maxsize=WAITING)
        self._error: BaseException | None = None
        self._begin()
        warm_up()  # once, before any step
        self._thread = threading.Thread(target=self._work, name="training-recorder", daemon=True)
        self._thread.start()

    def submit(self, step: int, rows: Rows, report: Mapping[str, Any]) -> None:
        """Hand over a step. `rows` may be a function that makes them, which then runs in the writer's thread and
        must read only what no later step changes. `report` must be plain data without NaN (`ValueError` otherwise).
        """
        self._raise()
        if not self._thread.is_alive():
            raise ValueError("the recorder is closed; make a new one for this folder")
        canonical_json(dict(report))
        self._queue.put((step, rows if callable(rows) else tuple(rows), dict(report)))

    def flush(self) -> None:
        """Wait until everything handed over is on disk."""
        self._queue.join()
        self._raise()

    def resume(self, step: int) -> None:
        """Drop the shards at or beyond `step`, which a resumed run writes again, and every unfinished draft."""
        self.flush()
        record = self.folder / FOLDER
        for path in sorted(record.glob("step-*")):  # .json sorts before .parquet: the marker goes first
            if _number(path) >= step or not marker_path(self.folder, _number(path)).exists():
                path.unlink()
        for draft in record.glob(".*.draft"):
            draft.unlink()

    def close(self) -> None:
        """Write what is waiting and stop the thread; closing twice does nothing."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
            self._raise()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:  # what ended the run is told, not what followed from it
                raise

    def _begin(self) -> None:
        path = self.folder / FOLDER / "run.json"
        if path.exists():
            earlier = read_json(path)
            for name in IDENTITY:
                if earlier.get(name) != self.run.model_dump(mode="json")[name]:
                    raise UserError(
                        f"{path.parent} is the record of another run (its {name} differs); "
                        "choose another folder with --out, or start over with --force"
                    )
        write_json(path, self.run.model_dump(mode="json"))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if self._error is None:
                    step, rows, report = item
                    made = rows() if callable(rows) else rows
                    write_shard(self.folder, step, tuple(made), dict(report), self.run.code)
            except BaseException as error:
                self._error = error
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def _raise(self) -> None:
        if self._error is None:
            return
        if isinstance(self._error, OSError):
            raise UserError(
                f"the training record in {self.folder} cannot be written ({self._error.strerror or self._error}); "
                "mend the disk and go on with --resume"
            ) from self._error
        raise self._error


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
