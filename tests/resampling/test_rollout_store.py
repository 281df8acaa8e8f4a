"""What was drawn is kept through a kill at any moment, given again as it was,
and never mixed with anything else.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from forensics.errors import OutsideFailure
from resampling.samplers.rollout_store import StoredSampler
from resampling.trace_rollouts import Request, Rollout


class Counting:
    """Rollouts that are a function of their request; notes what was drawn.
    `slow`: seconds for each.
    """

    def __init__(self, identity: str = "one", slow: float = 0.0) -> None:
        self.identity, self.slow, self.drawn = identity, slow, list[tuple[Request, int]]()

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for request in requests:
            for number in range(request.first, request.first + request.n):
                time.sleep(self.slow)
                self.drawn.append((replace(request, first=0, n=1), number))
                yield rollout_of(request, number)


def rollout_of(request: Request, number: int) -> Rollout:
    failed = number % 5 == 4
    return Rollout(
        trace=request.trace,
        kept=request.kept,
        append=request.append,
        avoid=request.avoid,
        number=number,
        tokens=(number, 7, 300),
        followed=number % 3,
        outcome=None if failed else number / 3,
        end="errored" if failed else "terminated",
        end_reason="line\nbreak" if failed else None,
        submission="é",
    )


REQUESTS = [
    Request(trace="a", kept=3, n=4),
    Request(trace="a", kept=3, n=3, first=2),
    Request(trace="b", kept=3, n=2),
    Request(trace="a", kept=3, n=2, append=(5,)),
    Request(trace="a", kept=3, n=2, avoid=True),
]


def wanted(requests: Iterable[Request]) -> set[Rollout]:
    return {
        rollout_of(request, request.first + i) for request in requests for i in range(request.n)
    }


def test_nothing_is_drawn_twice_and_everything_is_given_as_it_was(tmp_path: Path) -> None:
    for requests in (REQUESTS[:1], REQUESTS, REQUESTS):
        sampler = Counting()
        assert set(StoredSampler(tmp_path, sampler).draw(requests)) == wanted(requests)
    assert not sampler.drawn
    longer, sampler = [Request(trace="a", kept=3, n=9)], Counting()
    assert set(StoredSampler(tmp_path, sampler).draw(longer)) == wanted(longer)
    assert [number for _, number in sampler.drawn] == [5, 6, 7, 8]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(0, 5)), min_size=1, max_size=6
    )
)
def test_any_sequence_of_requests_gives_each_its_rollouts(
    tmp_path_factory: pytest.TempPathFactory, asked
) -> None:
    folder = tmp_path_factory.mktemp("store")
    seen: set[tuple[Request, int]] = set()
    for kept, n, first in asked:
        request, sampler = Request(trace="a", kept=kept, n=n, first=first), Counting()
        found = list(StoredSampler(folder, sampler).draw([request]))
        assert len(found) == n and set(found) == wanted([request])
        assert not seen & set(sampler.drawn)
        seen |= set(sampler.drawn)


def test_a_killed_process_loses_nothing_that_it_gave(tmp_path: Path) -> None:
    """`kill -9` in the midst of drawing; what it had printed is in the store,
    and the rest is drawn once.
    """
    code = (
        "import sys\n"
        "from tests.resampling.test_rollout_store import Counting, Request, StoredSampler\n"
        f"store = StoredSampler({str(tmp_path)!r}, Counting(slow=0.002))\n"
        "for one in store.draw([Request(trace='a', kept=0, n=5000)]):\n"
        "    print(one.number, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as child:
        assert child.stdout is not None
        given_out = [int(child.stdout.readline()) for _ in range(40)]
        os.kill(child.pid, signal.SIGKILL)
        given_out += [int(line) for line in child.stdout.read().splitlines()]
    sampler, request = Counting(), Request(trace="a", kept=0, n=300)
    assert set(StoredSampler(tmp_path, sampler).draw([request])) == wanted([request])
    assert not {number for _, number in sampler.drawn} & set(given_out) and len(sampler.drawn) < 300


def test_every_changed_byte_of_a_stored_rollout_is_refused_or_drawn_again(tmp_path: Path) -> None:
    """Nothing that was changed is given: the last line end alone leaves a torn line."""
    list(StoredSampler(tmp_path, Counting()).draw(REQUESTS[:1]))
    (part,) = tmp_path.rglob("part-*.jsonl")
    data = part.read_bytes()
    for place in range(0, len(data), 3):
        changed = bytearray(data)
        changed[place] ^= 1
        part.write_bytes(changed)
        with pytest.raises(OutsideFailure, match=part.name):
            StoredSampler(tmp_path, Counting())
    part.write_bytes(data[:-1])
    sampler = Counting()
    assert set(StoredSampler(tmp_path, sampler).draw(REQUESTS[:1])) == wanted(REQUESTS[:1])
    assert len(sampler.drawn) == 1
