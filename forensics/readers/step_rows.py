"""A file that a trainer dumped, row by row, and a run that it tells of as a row of a training
record: what every format of dumps shares.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from forensics.readers.content import Unreadable, UnreadableContent
from forensics.readers.json_rows import MALFORMED, Row, in_words
from forensics.readers.values import prompt_of
from forensics.records import TrainingRow, Trajectory

T = TypeVar("T")
Broken = Callable[[Unreadable], None]
Found = tuple[TrainingRow, str | None]  # a row, and the text of its prompt


def each_row(
    rows: Iterable[Row | Unreadable], path: Path, broken: Broken, make: Callable[[Row], T | None]
) -> Iterator[T]:
    """What `make` makes of each row of a file, unless that is nothing; what cannot be read, and
    rows of which nothing can be made, are handed to `broken`.
    """
    for row in rows:
        if isinstance(row, Unreadable):
            broken(row)
            continue
        try:
            made = make(Row(row.where, row.value, path))
        except (UnreadableContent, *MALFORMED) as error:
            broken(Unreadable(path, in_words(error), row.where))
            continue
        if made is not None:
            yield made


def row_of(
    run: Trajectory,
    *,
    step: int,
    group: str,
    sample: int,
    reward: float | None,
    policy_steps: tuple[int | None, int | None] = (None, None),
    **told: Any,
) -> Found:
    """The row of a run. `told`: other columns that the dump has, or lacks (`None`),
    whatever the reader of its format made of them.
    """
    name = f"{step}-{group}"
    row = TrainingRow.of(
        run,
        step=step,
        group=name,
        rewards=run.rewards,
        reward=reward,
        policy_steps=policy_steps,
        **{"sample": sample, "trajectory": f"{name}-{sample}"} | told,
    )
    return row, "\n".join(text for _, text in prompt_of(run.steps))
