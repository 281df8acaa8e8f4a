"""A sampler whose success probability from every prefix is written down in a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from resampling.trace_rollouts import Request, Rollout


class TableSampler:
    """`potentials[trace][kept]` is the chance of success; `appended` that of
    prefixes with something appended.

    Every draw is noted in `asked`. Rollouts whose number is in `lost` come back
    without a score.
    """

    identity = "table"

    def __init__(
        self,
        potentials: Mapping[str, Sequence[float]],
        seed: int = 0,
        lost: frozenset[int] = frozenset(),
        appended: Mapping[tuple[str, int, tuple[int, ...]], float] | None = None,
    ) -> None:
        self.potentials, self.seed, self.lost, self.appended = (
            potentials,
            seed,
            lost,
            appended or {},
        )
        self.asked: list[Request] = []

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        for request in requests:
            self.asked.append(request)
            chance = self.appended.get(
                (request.trace, request.kept, request.append),
                self.potentials[request.trace][request.kept],
            )
            for number in range(request.first, request.first + request.n):
                key = [
                    self.seed,
                    *request.trace.encode(),
                    request.kept,
                    number,
                    request.avoid,
                    *request.append,
                ]
                won = float(np.random.default_rng(key).random() < chance)
                yield Rollout(
                    trace=request.trace,
                    kept=request.kept,
                    number=number,
                    append=request.append,
                    avoid=request.avoid,
                    tokens=(0,),
                    followed=0,
                    outcome=None if number in self.lost else won,
                    end="terminated",
                )
