"""Many workers give the rollouts of one process, and a worker that is killed loses nothing."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics import UserError, load_policy
from forensics.protocols import SamplingSettings
from resampling.samplers.local_sampler import LocalSampler
from resampling.samplers.ray_sampler import FromCheckpoint, RayConfig, RaySampler
from resampling.trace_rollouts import Request, Rollout
from tests.resampling.fragile import POTENTIALS, Table
from tests.resampling.table_sampler import TableSampler
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'policy-forensics[ray]'")
pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
NICENESS = "RAY_worker_niceness"  # as Ray spells it
REQUESTS = [
    Request(trace=name, kept=kept, n=20, first=kept) for name in POTENTIALS for kept in (0, 4)
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A cluster of two workers on this machine, never one that is there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(
            NICENESS, "0"
        )  # Ray's workers step back for others, and other tests run beside them
        ended = signal.getsignal(signal.SIGTERM)
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=100 * 2**20,
            _node_ip_address="127.0.0.1",
        )
        yield
        ray.shutdown()
        signal.signal(signal.SIGTERM, ended)


def ordered(rollouts: list[Rollout]) -> list[Rollout]:
    return sorted(rollouts, key=lambda r: (r.trace, r.kept, r.append, r.avoid, r.number))


def one_process() -> list[Rollout]:
    return ordered(list(TableSampler(POTENTIALS, 5).draw(REQUESTS)))


def test_a_killed_worker_loses_nothing_and_its_work_is_done_again(tmp_path: Path) -> None:
    build = Table(folder=str(tmp_path), kill_at=7)
    sampler = RaySampler(build, RayConfig(workers=2, task_rollouts=8), identity="table")
    assert ordered(list(sampler.draw(REQUESTS))) == one_process()
    assert (tmp_path / "died").exists()
    assert (
        len(list(tmp_path.glob("pid-*"))) >= 2
    )  # two workers, and one that took the dead one's place


def test_work_that_always_kills_its_worker_is_missing_and_stops_nothing_else(
    tmp_path: Path,
) -> None:
    build = Table(folder=str(tmp_path), kill_at=7, once=False)
    sampler = RaySampler(
        build, RayConfig(workers=2, task_rollouts=4, task_tries=2), identity="table"
    )
    requests = [
        request for request in REQUESTS if (request.trace, request.kept) != ("b", 4)
    ]  # one such task is enough
    rollouts = ordered(list(sampler.draw(requests)))
    missing = [r for r in rollouts if r.outcome is None]
    assert len(rollouts) == sum(request.n for request in requests)
    assert (
        {r.trace for r in missing} == {"b"}
        and 7 in {r.number for r in missing}
        and len(missing) <= 8
    )
    assert all(r.end == "errored" and "died, 2 times" in (r.end_reason or "") for r in missing)
    whole = {(r.trace, r.kept, r.number): r for r in one_process()}
    assert all(r == whole[r.trace, r.kept, r.number] for r in rollouts if r.outcome is not None)


def test_a_policy_over_two_workers_is_the_policy_in_one_process() -> None:
    checkpoint, world = checkpoint_path("bundled:leak"), MiniRepo()
    settings, policy = SamplingSettings(), load_policy(checkpoint, device="cpu", dtype="float32")
    runs = tuple(policy.play(world, world.tasks("held-out", 2, 1), 1, settings, 3))
    requests = [Request(trace=run.id, kept=kept, n=6) for run in runs for kept in (0, 5)]
    requests.append(Request(trace=runs[0].id, kept=3, n=4, avoid=True))
    build = FromCheckpoint(
        checkpoint=str(checkpoint),
        environment=world,
        trajectories=runs,
        settings=settings,
        seed=7,
        device="cpu",
        dtype="float32",
    )
    alone = LocalSampler(policy, world, runs, settings, 7)
    spread = RaySampler(build, RayConfig(workers=2, task_rollouts=6), alone.identity)
    assert ordered(list(spread.draw(requests))) == ordered(list(alone.draw(requests)))
    with pytest.raises(UserError, match="there is no trace none to continue"):
        list(spread.draw([*requests, Request(trace="none", kept=0, n=1)]))
    assert {spread.fingerprint(run.id) for run in runs} == {
        alone.fingerprint(run.id) for run in runs
    }
