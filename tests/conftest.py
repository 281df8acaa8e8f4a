"""Settings for every test: a slow machine is not a failure.

`--cpu N` lists the N files and the N tests that took the most processor time.
"""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: the last bits of a float hang on it
PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("patient", **PATIENT)
settings.register_profile("quick", max_examples=25, **PATIENT)  # `make test`
settings.load_profile("patient")
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
    """The collector leaves what was imported alone and runs less often: looking
    through it again and again took a quarter of the processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


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
