"""Settings for every test: a slow machine is not a failure.

`--cpu N` lists the N files and the N tests that took the most processor time.
"""

import gc
import multiprocessing
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: the last bits of a float hang on it
os.environ["SOURCE_DATE_EPOCH"] = "1000000000"  # the same day in every page
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # no test calls home, by a thread that stays
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("patient", **PATIENT)
settings.register_profile("quick", max_examples=25, **PATIENT)  # `make test`
settings.load_profile("patient")
LEFT_OPEN = (
    ResourceWarning,
    pytest.PytestUnraisableExceptionWarning,
    pytest.PytestUnhandledThreadExceptionWarning,
)
SOON = 60.0  # seconds for a server to stop that was told to; waited only where one lives
LASTING = ("tqdm_monitor",)  # threads that a library keeps until the process ends
TOLD: list[Any] = [*threading.enumerate()]  # before any test: of xdist
# of a test, its fixtures and its finished child processes; hardly depends on what else
# runs
CPU = "cpu seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu", type=int, default=0, metavar="N", help="list what took most processor time"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu"):
        config.pluginmanager.register(Account(), "processor-time")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """The collector runs between tests alone, and leaves what was imported alone: no
    verdict hangs on when it runs, and looking through all that again and again took a
    quarter of the processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[Any]:
    """Whatever a test opens it closes, also where its own mark ignores warnings."""
    for kind in LEFT_OPEN:
        warnings.simplefilter("error", kind)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    """What the test left open is collected here, and pytest's own hook fails the test.
    Since nothing else collects, the youngest generation is what the test made, and the
    two younger ones are what its file made.
    """
    try:
        return (yield)
    finally:
        file_ends = nextitem is None or nextitem.path != item.path
        gc.collect(2 if nextitem is None else int(file_ends))
        hooks = item.config.pluginmanager.get_plugin("unraisableexception")
        hooks.pytest_runtest_teardown(item)
        if file_ends and (left := list(left_running())):
            pytest.fail(f"{item.path.name} leaves {left} running", pytrace=False)


def left_running() -> Iterator[threading.Thread | multiprocessing.process.BaseProcess]:
    """Threads and processes that do not end soon, each once."""
    for one in (*threading.enumerate(), *multiprocessing.active_children()):
        if one is not threading.current_thread() and one not in TOLD and one.name not in LASTING:
            one.join(SOON)
            if one.is_alive():
                TOLD.append(one)
                yield one


class Account:
    """Each phase's report carries the processor time since the last one."""

    last = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[Any]:
        self.last = sum(os.times()[:4])
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[Any]:
        now = sum(os.times()[:4])
        item.user_properties[:] = [(CPU, now - self.last)]
        self.last = now
        return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not (most := config.getoption("--cpu")):
        return
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            tests[getattr(report, "nodeid", "")] += dict(
                getattr(report, "user_properties", ())
            ).get(CPU, 0.0)
    files: Counter[str] = Counter()
    for test, seconds in tests.items():
        files[test.split("::")[0]] += seconds
    for title, counts in (("files", files), ("tests", tests)):
        terminalreporter.section(f"processor seconds of {title}, {sum(counts.values()):.0f} in all")
        for name, seconds in counts.most_common(most):
            terminalreporter.write_line(f"{seconds:8.1f}  {name}")
