"""A sampler over many workers: requests mapped by Ray Data over a pool of
actors that each hold a policy.

1. Requests are cut into tasks of at most `task_rollouts` rollouts, those of one
   trace together, so that a worker reads a trace once and a dead worker costs
   little.
2. Each worker builds the sampler that it is given (`build`) once, policy and
   environment included, and works on one task at a time. Rollouts stream back
   as tasks finish; a rollout depends on its request and its number only, so
   they are those of one process.
3. A worker that dies (killed, out of memory, its machine gone) is started
   again, and its task done again, `task_tries` times in all. What is not done
   then is recorded as missing, with the reason, never as a failure of the
   policy. Put a store around the sampler and a run can be stopped and gone on
   with.
4. An error that a worker can name is no death: bad input comes back as the one
   sentence that it is.

There is no scheduler of ours: which machine, restarts and back-pressure are
Ray's. A cluster that is already connected is used; else one is started on this
machine.
"""

import json
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from forensics.errors import OutsideFailure, UserError, outside_failure
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from resampling.trace_rollouts import (
    Request,
    Rollout,
    Sampler,
    by_trace,
    fingerprint_of,
    rollout_of,
    unscored_trace,
)

DIED: Final = "its worker died, {} times in all"


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """`workers`: actors, each with `cpus` and `gpus`. `task_rollouts`: rollouts
    of one task at most.

    `task_tries`: how often a task is started before its rollouts are missing.
    """

    workers: int = 2
    cpus: float = 1.0
    gpus: float = 0.0
    task_rollouts: int = 256
    task_tries: int = 4

    def __post_init__(self) -> None:
        whole = min(self.workers, self.task_rollouts, self.task_tries)
        if whole < 1 or min(self.cpus, self.gpus) < 0:
            raise UserError(
                "workers, task_rollouts and task_tries must be at least 1, cpus and gpus at least 0"
            )


@dataclass(frozen=True, kw_only=True)
class FromCheckpoint:
    """Builds a worker's sampler: the policy of a checkpoint directory that
    every worker can read.
    """

    checkpoint: str
    environment: Environment
    trajectories: tuple[Trajectory, ...]
    settings: SamplingSettings
    seed: int
    device: str = "auto"
    dtype: str | None = None

    def fingerprint(self, trace: str) -> str:
        """A content hash of a trace's text, for a store; that of the local sampler."""
        run = next(run for run in self.trajectories if run.id == trace)
        return unscored_trace(run).fingerprint

    def __call__(self) -> Sampler:
        from forensics.policies import load_policy
        from resampling.samplers.local_sampler import LocalSampler

        policy = load_policy(self.checkpoint, device=self.device, dtype=self.dtype)
        return LocalSampler(policy, self.environment, self.trajectories, self.settings, self.seed)


class RaySampler:
    """A `Sampler` on a Ray cluster. `build` makes the sampler of one worker,
    there: it and what it holds is pickled.

    `identity`: that of the sampler which `build` makes; without it, a worker is
    asked.
    """

    def __init__(
        self, build: Callable[[], Sampler], config: RayConfig, identity: str | None = None
    ) -> None:
        connect(config)
        self._build, self._config = build, config
        self.identity = identity or self._asked_identity()

    def fingerprint(self, trace: str) -> str:
        """What `build` says of a trace's text, for a store; nothing where it says nothing."""
        return fingerprint_of(self._build, trace)

    def _asked_identity(self) -> str:
        """What a worker's sampler calls itself. Raises `UserError` where it cannot be built."""
        import ray

        build = self._build

        def ask() -> tuple[bool, str]:
            try:
                return True, build().identity
            except UserError as error:
                return False, str(error)

        worker = ray.remote(num_cpus=self._config.cpus, num_gpus=self._config.gpus)(ask)
        built, words = ray.get(worker.remote())
        if not built:
            raise UserError(words)
        return str(words)

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as tasks finish. All requests are
        read first.

        Raises `UserError` where a worker met bad input, `RuntimeError` where it
        failed otherwise.
        """
        wanted = tasks(requests, self._config.task_rollouts)
        missing = Counter(
            (request.branch, number)
            for task in wanted
            for request in task
            for number in request.numbers
        )
        for line in self._lines(wanted) if wanted else ():
            [(kind, row)] = json.loads(line).items()
            if kind == "refusal":
                raise UserError(row)
            if kind == "outside":
                raise OutsideFailure(row)
            if kind == "failure":
                raise RuntimeError(f"a worker failed:\n{row}")
            rollout = rollout_of(row)
            if missing[single := (rollout.branch, rollout.number)] > 0:
                missing[single] -= 1
                yield rollout
        for branch, number in missing.elements():
            yield Rollout(
                **branch._asdict(),
                number=number,
                end_reason=DIED.format(self._config.task_tries),
            )

    def _lines(self, wanted: Sequence[Sequence[Request]]) -> Iterator[str]:
        import ray.data

        config = self._config
        rows = [{"requests": json.dumps([asdict(request) for request in task])} for task in wanted]
        data = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Worker,
            batch_size=1,
            # one task at a time: what waits on a worker that dies would be counted as tried
            compute=ray.data.ActorPoolStrategy(
                size=config.workers, max_tasks_in_flight_per_actor=1
            ),
            fn_constructor_args=(self._build,),
            num_cpus=config.cpus,
            num_gpus=config.gpus,
            max_restarts=-1,
            max_task_retries=config.task_tries - 1,
        )
        data.context.enable_progress_bars = False  # progress is the caller's to show
        # a task whose worker keeps dying is missing, not the end of the others
        data.context.max_errored_blocks = -1
        for row in data.iter_rows():
            yield row["line"]


class _Worker:
    """One actor. A task's rollouts come back whole and in order, so that a task
    done again gives the same block.
    """

    def __init__(self, build: Callable[[], Sampler]) -> None:
        self._sampler: Sampler | None = None
        self._build = build

    def __call__(self, batch: Any) -> dict[str, list[str]]:
        rows = [row for task in batch["requests"] for row in json.loads(task)]
        try:
            self._sampler = self._sampler or self._build()
            rollouts = self._sampler.draw(
                [Request(**row | {"append": tuple(row["append"])}) for row in rows]
            )
            answers: list[dict[str, Any]] = [{"rollout": asdict(rollout)} for rollout in rollouts]
        except Exception as error:
            answers = [_told(error)]
        return {"line": sorted(json.dumps(answer, sort_keys=True) for answer in answers)}


def _told(error: Exception) -> dict[str, Any]:
    """What ended a task, as a line that goes back; exceptions lose their kind on the way."""
    if (failure := outside_failure(error)) is not None:
        return {"outside": str(failure)}
    if isinstance(error, UserError):
        return {"refusal": str(error)}
    return {"failure": "".join(traceback.format_exception(error))}


def tasks(requests: Iterable[Request], most: int) -> list[list[Request]]:
    """Requests in tasks of at most `most` rollouts: a trace's together, in the
    order of their prefixes.
    """
    done: list[list[Request]] = []
    for group in by_trace(requests).values():
        room = 0
        for request in group:
            for first in range(0, request.n, most):
                part = replace(request, first=request.first + first, n=min(most, request.n - first))
                if part.n > room:
                    done.append([])
                    room = most
                done[-1].append(part)
                room -= part.n
    return done


def connect(config: RayConfig) -> None:
    """Use the cluster that is connected, or start one here. Raises `UserError`
    where it is missing or too small.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "many workers need Ray, which is not installed; pip install 'policy-forensics[ray]'"
        ) from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    there = ray.cluster_resources()
    for name, each in (("CPU", config.cpus), ("GPU", config.gpus)):
        if each * config.workers > there.get(name, 0):
            raise UserError(
                f"{config.workers} workers of {each:g} {name} each need more than the cluster's "
                f"{there.get(name, 0):g}; ask for fewer, or give each of them less"
            )
