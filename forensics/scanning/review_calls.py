"""Several calls under way at a time, in threads that hold nobody up: an interrupted run ends at once.

The threads of a pool are waited for when the interpreter goes, and a call may take minutes; these are not.
"""

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import TypeVar

C = TypeVar("C")
A = TypeVar("A")


def each(calls: Sequence[C], answer: Callable[[C], A], at_once: int) -> Iterator[tuple[C, A]]:
    """Every call with its answer, as they come. What `answer` raises is raised here; then no further call begins."""
    done: SimpleQueue[tuple[C, A] | BaseException] = SimpleQueue()
    waiting, lock, over = iter(calls), Lock(), Event()

    def work() -> None:
        while not over.is_set():
            with lock:
                call = next(waiting, None)
            if call is None:
                return
            try:
                done.put((call, answer(call)))
            except BaseException as error:
                done.put(error)
                return

    for _ in range(min(at_once, len(calls))):
        Thread(target=work, daemon=True).start()
    try:
        for _ in calls:
            told = done.get()
            if isinstance(told, BaseException):
                raise told
            yield told
    finally:
        over.set()
