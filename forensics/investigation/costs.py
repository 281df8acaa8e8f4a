"""What an investigation plays at most, said before it starts: one line for each
instrument that plays, and their sum.

A bound, not a forecast: most instruments play less, where nothing is there to
test or a certificate without play settles it. What an interrupted run played
already is not played again and not taken off. When the policies' own runs are
there, the bounds of what is to come are closer, and said again. On the logger
`forensics` as information, which the command line shows on stderr.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import Instrument
from forensics.phrases import plural, printable


def most_episodes(case: Case, tools: Sequence[Instrument]) -> dict[str, int]:
    """What each instrument plays at most (in its unit), in their order; none that plays none."""
    found = {}
    for tool in tools:
        try:
            number = 0 if tool.episodes is None else tool.episodes(case, tool.config)
        except MissingInput:  # it will say so itself, and plays nothing
            number = 0
        if number > 0:
            found[tool.name] = number
    return found


def cost_lines(most: Mapping[str, int], units: Mapping[str, str]) -> Iterator[str]:
    """`renaming: at most 2,400 episodes`, and the sum by what is counted."""
    together: Counter[str] = Counter()
    for name, number in most.items():
        together[units.get(name, "episode")] += number
        yield f"{printable(name)}: at most {plural(number, units.get(name, 'episode'))}"
    if most:
        told = (plural(number, unit) for unit, number in together.items())
        yield f"All together: at most {', '.join(told)}"


def say_costs(case: Case, tools: Sequence[Instrument]) -> bool:
    """Before the first episode, and again. Whether the runs in the open and in the
    scrubbed world were there, so that there is nothing closer to say.
    """
    if not case.policies:
        return True
    log = logging.getLogger("forensics")
    known = own_runs_are_there(case)
    lines = list(cost_lines(most_episodes(case, tools), {tool.name: tool.unit for tool in tools}))
    if lines and known:
        log.info("The policies' own runs are there, which makes the bounds closer:")
    for line in lines:
        log.info("%s", line)
    return known


def own_runs_are_there(case: Case) -> bool:
    """Whether both policies played the open world and the one without any channel."""
    channels = tuple(channel.name for channel in case.channels)
    return all(map(case.has_played, {(), channels}))
