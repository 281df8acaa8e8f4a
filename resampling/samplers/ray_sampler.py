"""A sampler over many workers: actors of Ray that each hold a policy.

1. Requests go trace by trace into tasks of at most `task_rollouts` rollouts.
2. A worker builds its sampler (`build`) once, and does one task at a time. A rollout depends on
   its request and its number only, so rollouts are those of one process.
3. A worker that dies is started again, and its task done again, `task_tries` times in all. What
   is not done then is recorded as missing, with the reason, never as a failure of the policy.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from resampling.trace_rollouts import Request, Rollout, Sampler, by_trace, unscored_trace


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """How many actors there are, and what each is given."""

    workers: int = 2
    cpus: float = 1.0  # of each
    gpus: float = 0.0  # of each
    task_rollouts: int = 256  # of one task, at most
    task_tries: int = 4  # starts of a task, before its rollouts are missing


@dataclass(frozen=True, kw_only=True)
class FromCheckpoint:
    """Builds a worker's sampler: the policy of a checkpoint that every worker can read."""

    checkpoint: str
    environment: Environment
    trajectories: tuple[Trajectory, ...]
    settings: SamplingSettings
    seed: int
    device: str = "auto"
    dtype: str | None = None

    def fingerprint(self, trace: str) -> str:
        """A content hash of a trace's text, for a store; that of the local sampler."""
        return unscored_trace(next(r for r in self.trajectories if r.id == trace)).fingerprint

    def __call__(self) -> Sampler:
        from forensics.policies import load_policy
        from resampling.samplers.local_sampler import LocalSampler

        policy = load_policy(self.checkpoint, device=self.device, dtype=self.dtype)
        return LocalSampler(policy, self.environment, self.trajectories, self.settings, self.seed)


class RaySampler:
    """A `Sampler` on the connected Ray cluster, else on one of this machine. `build` is pickled,
    and makes a worker's sampler there; `identity` is that sampler's (without it a worker is asked).
    """

    def __init__(
        self, build: Callable[[], Sampler], config: RayConfig, identity: str | None = None
    ) -> None:
        self._new, self._config = _workers(build, config), config
        self._free: list[Any] = [] if identity else [self._new()]
        self.identity: str = identity or _answer(self._free[0].identity.remote())
        self.fingerprint: Callable[[str], str] = getattr(build, "fingerprint", lambda trace: "")

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as tasks finish; all requests are read first."""
        import ray

        tries, running = self._config.task_tries, dict[Any, Any]()
        waiting = tasks(requests, self._config.task_rollouts)[::-1]
        try:
            while waiting or running:
                while waiting and len(running) < self._config.workers:
                    worker, task = self._free.pop() if self._free else self._new(), waiting.pop()
                    running[worker.draw.remote(task)] = worker, task
                [done], _ = ray.wait(list(running), num_returns=1)
                worker, task = running.pop(done)
                try:
                    rollouts = _answer(done)
                    self._free.append(worker)
                except ray.exceptions.RayError:  # died as often as it may: another takes its place
                    why = f"its worker died, {tries} times in all"
                    places = [(one.branch._asdict(), n) for one in task for n in one.numbers]
                    rollouts = [Rollout(**place, number=n, end_reason=why) for place, n in places]
                yield from rollouts
        finally:
            for worker, _ in running.values():  # nobody waits for these
                ray.kill(worker)


class _Worker:
    """One actor. Its sampler is built by the first question, whose answer tells a failure."""

    def __init__(self, build: Callable[[], Sampler]) -> None:
        self._sampler = cache(build)

    def identity(self) -> str:
        return self._sampler().identity

    def draw(self, task: list[Request]) -> list[Rollout]:
        return list(self._sampler().draw(task))


def _answer(asked: Any) -> Any:
    """What a worker answers. Raises what it raised, and `RayError` where it died."""
    import ray

    try:
        return ray.get(asked)
    except ray.exceptions.RayTaskError as error:
        sent = not isinstance(error.cause, ray.exceptions.RayError)  # else it could not be pickled
        raise (error.cause if sent else RuntimeError(str(error))) from error


def tasks(requests: Iterable[Request], most: int) -> list[list[Request]]:
    """Requests in tasks of at most `most` rollouts, trace by trace in the order of prefixes."""
    done: list[list[Request]] = []
    for request in chain.from_iterable(by_trace(requests).values()):
        for first in range(0, request.n, most):
            part = replace(request, first=request.first + first, n=min(most, request.n - first))
            if not done or sum(one.n for one in done[-1]) + part.n > most:
                done.append([])
            done[-1].append(part)
    return done


def _workers(build: Callable[[], Sampler], config: RayConfig) -> Callable[[], Any]:
    """What starts a worker. Raises `UserError` where Ray is missing or the cluster too small."""
    if min(config.workers, config.task_rollouts, config.task_tries) < 1:
        raise UserError("workers, task_rollouts and task_tries must be at least 1")
    try:
        import ray
    except ImportError as error:
        raise UserError("many workers need Ray: pip install 'policy-forensics[ray]'") from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for name, each in (("CPU", config.cpus), ("GPU", config.gpus)):
        if each * config.workers > (there := ray.cluster_resources().get(name, 0)):
            need = f"{config.workers} workers of {each:g} {name} each need more than the cluster's"
            raise UserError(f"{need} {there:g}; ask for fewer, or give each of them less")
    again = {"max_restarts": -1, "max_task_retries": config.task_tries - 1}
    actor = ray.remote(num_cpus=config.cpus, num_gpus=config.gpus, **again)(_Worker)
    return lambda: actor.remote(build)
