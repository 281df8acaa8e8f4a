"""What an investigation plays at most, said before it starts: one line for each
instrument that plays, and their sum.

A bound, not a forecast: most instruments play less, where nothing is there to
test or a certificate without play settles it. What an interrupted run played
already is not played again and not taken off. On the logger `forensics` as
information, which the command line shows on stderr.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import Instrument
from forensics.phrases import plural, printable


def most_episodes(case: Case, tools: Sequence[Instrument]) -> dict[str, int]:
    """Episodes that each instrument plays at most, in their order; none that plays none."""
    found = {}
    for tool in tools:
        try:
            number = 0 if tool.episodes is None else tool.episodes(case, tool.config)
        except MissingInput:  # it will say so itself, and plays nothing
            number = 0
        if number > 0:
            found[tool.name] = number
    return found


def cost_lines(most: Mapping[str, int]) -> Iterator[str]:
    """`renaming: at most 2,400 episodes`, and the sum."""
    yield from (
        f"{printable(name)}: at most {plural(number, 'episode')}" for name, number in most.items()
    )
    if most:
        yield f"All together: at most {plural(sum(most.values()), 'episode')}"


def say_costs(case: Case, tools: Sequence[Instrument]) -> None:
    """Before the first episode."""
    if case.policies:
        for line in cost_lines(most_episodes(case, tools)):
            logging.getLogger("forensics").info("%s", line)
