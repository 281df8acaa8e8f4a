"""Draws that are handed on in order, and some asked for ahead of the one that is waited for.

A policy that is nearly sure of what is refused has to be asked often: 150 times an answer on
the leak pair. One by one that is 150 times the server's latency; a server that draws many at once
answers them in about a fifth of the rounds. Each draw has the seed of its place, so which one is
handed on does not depend on how many were ahead.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
MOST_AHEAD: Final = 16  # requests at once


async def in_order(
    draw: Callable[[int], Coroutine[Any, Any, T]], number: int
) -> AsyncGenerator[tuple[int, T]]:
    """`draw(0)` to `draw(number - 1)`, each with its place. A quarter as many as were handed on
    are under way at once, so that what is drawn in vain stays a quarter; left are those under way
    where nobody asks on.
    """
    under_way, asked = deque[asyncio.Task[T]](), 0
    try:
        for place in range(number):
            ahead = min(max(place // 4, 1), MOST_AHEAD, number - place)
            while asked < place + ahead:
                under_way.append(asyncio.create_task(draw(asked)))
                asked += 1
            yield place, await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
