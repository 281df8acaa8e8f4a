"""The recorder: writes a training record off the training path.

1. `submit` hands a step's rows to one background thread through a bounded queue
   and returns. With `WAITING` steps waiting it blocks, so memory stays bounded
   where the disk is slower than the training.
2. The thread writes each step's shard, then its marker
   (`forensics.records.train_tables`).
3. An error of the thread (a full disk) is raised by the next `submit`, `flush`
   or `close`, as one `UserError`. Later steps are not written, so what is on
   disk has no hole and stays readable.

The recorder draws no random number and changes nothing that it is given:
weights do not depend on it. Call `flush` before a state is saved, so that the
record is never behind the state that a killed run resumes from.

What the trainer hands to the recorder: rows of a step, and what holds for the
whole run.

What a run says of itself while it trains: `metrics.jsonl`, and TensorBoard
where it is installed.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any, Self

from forensics.errors import UserError
from forensics.policies import tokenizer_identity
from forensics.protocols import Environment
from forensics.records import (
    RECORD_FOLDER as FOLDER,
    TrainingRow,
    TrainingRun,
    canonical_json,
    marker_path,
    read_json,
    warm_up,
    write_atomically,
    write_json,
    write_shard,
)
from forensics.version import code_version
from training.advantages import TrainedGroup
from training.groups import estimator_named
from training.live.audit_report import tensorboard_writer
from training.recipe import Recipe
from training.rewards import Rewards
from training.run_state import reward_identities
from training.trackers import Trackers

WAITING = 2  # steps
Step = tuple[int, tuple[TrainingRow, ...], dict[str, Any]]  # number, rows, report
IDENTITY = ("start", "tokenizer", "seed", "environment")


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one step did, plain data. `dead` and `filtered` map each reason to
    its number of groups.

    `losses`: diagnostics of the loss, means over tokens. `components`: mean of
    each named reward. `seconds` by stage. `loss`, `gradient_norm`,
    `optimizer_steps` and `skipped` as of `UpdateReport`: the loss of the first
    pass over the rows, as `replay` computes it, and the mean norm over all
    optimizer steps; both `None` where there was none that was finite.
    `learning_rate`: of this step; a resumed run may have changed it.
    `reward`, `success` and `components` are `None` where nothing could be
    measured.
    """

    step: int
    reward: float | None
    success: float | None
    components: dict[str, float | None]
    turns: float
    tokens: int
    groups: int
    kept: int
    dropped: dict[str, int]
    errored: int
    truncated: int
    loss: float | None
    gradient_norm: float | None
    optimizer_steps: int
    skipped: int = 0
    learning_rate: float | None = None
    losses: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Recorder:
    """Write the record of one run to `folder/record`. A context manager:
    leaving it flushes and closes.

    Raises `UserError` where the folder holds the record of another run (another
    start, tokenizer, seed or environment), or cannot be written.
    """

    def __init__(self, folder: Path, run: TrainingRun) -> None:
        self.folder = Path(folder)
        self.run = run
        self._queue: Queue[tuple[int, tuple[TrainingRow, ...], dict[str, Any]] | None] = Queue(
            maxsize=WAITING
        )
        self._error: BaseException | None = None
        self._begin()
        warm_up()  # once, before any step
        self._thread = threading.Thread(target=self._work, name="training-recorder", daemon=True)
        self._thread.start()

    def submit(self, step: int, rows: Iterable[TrainingRow], report: Mapping[str, Any]) -> None:
        """Hand over a step. `report` must be plain data without NaN (`ValueError`
        otherwise).
        """
        self._raise()
        if not self._thread.is_alive():
            raise ValueError("the recorder is closed; make a new one for this folder")
        canonical_json(dict(report))
        self._queue.put((step, tuple(rows), dict(report)))

    def flush(self) -> None:
        """Wait until everything handed over is on disk."""
        self._queue.join()
        self._raise()

    def resume(self, step: int) -> None:
        """Drop the shards at or beyond `step`, which a resumed run writes
        again, and every unfinished draft.
        """
        self.flush()
        record = self.folder / FOLDER
        for path in sorted(
            record.glob("step-*")
        ):  # .json sorts before .parquet: the marker goes first
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

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self.close()
        except Exception:
            if error is None:  # what ended the run is told, not what followed from it
                raise

    def _begin(self) -> None:
        path, mine = self.folder / FOLDER / "run.json", self.run.model_dump(mode="json")
        if path.exists():
            earlier = read_json(path)
            for name in IDENTITY:
                if earlier.get(name) != mine[name]:
                    raise UserError(
                        f"{path.parent} is the record of another run (its {name} differs); "
                        "choose another folder with --out, or start over with --force"
                    )
        write_json(path, mine)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if self._error is None:
                    write_shard(self.folder, *item, self.run.code)
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
                f"the training record in {self.folder} cannot be written"
                f" ({self._error.strerror or self._error}); mend the disk and go on with --resume"
            ) from self._error
        raise self._error


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def record_rows(
    step: int,
    groups: Sequence[TrainedGroup],
    notes: Mapping[str, Sequence[tuple[float, ...] | None]],
    mask_truncated: bool,
) -> list[TrainingRow]:
    """Every episode of a step, dropped ones with their reason. `notes` are of
    the trained rows, in order (`UpdateReport`); of a masked row only that no
    token of it counted.
    """
    rows, trained = [], count()
    for number, group in enumerate(groups):
        played = group.played
        for sample, trajectory in enumerate(played.trajectories):
            advantage = group.advantages.values[sample]
            missing = played.missing.get(sample) or ("no reward" if advantage is None else None)
            used: dict[str, Any] = {"dropped": missing or group.dropped}
            if used["dropped"] is None:
                used["advantage"], place = advantage, next(trained)
                if mask_truncated and trajectory.end == "truncated":
                    used["token_weights"] = (0.0,) * (trajectory.sampled_tokens or 0)
                else:
                    used |= {name: values[place] for name, values in notes.items()}
            rows.append(
                TrainingRow.of(
                    trajectory,
                    step=step,
                    group=f"{step}-{number}",
                    rewards=played.components[sample],
                    reward=played.totals[sample],
                    **used,
                )
            )
    return rows


def run_metadata(
    recipe: Recipe, seed: int, start: str, tokenizer: Any, world: Environment, rewards: Rewards
) -> TrainingRun:
    """Recipe, estimator, seed, and what the run started from."""
    config = recipe.grpo
    own = "scaling" in estimator_named(config.advantages).idle
    return TrainingRun(
        code=code_version(),
        recipe=recipe.model_dump(mode="json"),
        seed=seed,
        start=start,
        rewards=reward_identities(rewards),
        tokenizer=tokenizer_identity(tokenizer),
        environment={
            "name": world.name,
            "options": dict(world.options),
            "without": list(world.scrubbed),
        },
        estimator={
            "scaling": config.advantages if own else config.scaling,
            "dead_tolerance": config.dead_tolerance,
            "filter": config.filter,
            "samples": config.samples,
            "baseline": "group mean" if config.advantages == "group" else config.advantages,
        },
    )


CURVES = ("reward", "success", "turns", "tokens", "kept", "loss", "gradient_norm")


class Metrics:
    """One line a step in `folder/metrics.jsonl` (a resumed run writes its steps
    anew); scalars by name, in TensorBoard and in the `trackers` that were asked for.
    """

    def __init__(self, folder: Path, trackers: Trackers | None = None) -> None:
        self._path = folder / "metrics.jsonl"
        self._rows = self._path.read_text().splitlines() if self._path.exists() else []
        self._folder, self._trackers = folder, trackers

    def step(self, report: StepReport) -> None:
        """Add a step's report."""
        del self._rows[report.step :]
        row = asdict(report)
        self._rows.append(canonical_json(row))
        write_atomically(self._path, "\n".join(self._rows) + "\n")
        known = {name: float(row[name]) for name in CURVES if row.get(name) is not None}
        self._scalars(
            {f"train/{name}": value for name, value in (known | report.losses).items()}, report.step
        )

    def scalar(self, name: str, value: float, step: int) -> None:
        """One point of a curve; without TensorBoard and trackers it is dropped."""
        self._scalars({name: value}, step)

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            if self._board is not None:
                self._board.add_scalar(name, value, step)
        if self._trackers:
            self._trackers.log(values, step)

    def close(self) -> None:
        if self._trackers:
            self._trackers.close()
        if board := vars(self).get("_board"):
            board.close()

    @cached_property
    def _board(self) -> Any:
        """Made with the first point: a run that is refused leaves no folder."""
        return tensorboard_writer(self._folder)
