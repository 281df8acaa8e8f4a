"""What an investigation costs, said before the first episode, and closer later.

1. Of each instrument that plays, and all together: how much is *likely*, where its
   first look settles what it asks, and at *most*, whatever it finds. An instrument
   that cannot tell names its bound alone, which then counts as likely too. A
   likely figure is no promise: a gain that is a shortcut is looked at longer. Where
   the world declares channels, also what is played if no gain survives scrubbing.
2. Time is told once some were played, at the pace of the run's own episodes so far.
   A continuation counts as an episode; replays are played by no policy.
3. When the policies' own runs are there, what is to come is known closer, and said
   again.

What lies in the folder already is not played again: how much that is, is said too, and
taken off the time. On the logger `forensics` as information, which the command line shows on
stderr.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import Instrument, Plays
from forensics.phrases import plural, printable
from forensics.records.tables import open_whole
from forensics.runs import Condition

BY_A_POLICY = ("episode", "continuation")
LENGTHS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
logger = logging.getLogger("forensics")


class Costs:
    """What is still to be played of a case, and the saying of it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._left, self._counted_at = Plays(0, 0), 0
        self._there = episodes_in(case.folder)
        case.pace.told = self.say_time

    def say(self, tools: Sequence[Instrument]) -> bool:
        """What these play. Whether the runs in the open and in the scrubbed world were
        there, so that there is nothing closer to say.
        """
        if not self._case.runs_models:
            return True
        known = own_runs_are_there(self._case)
        plays, units = plays_of(self._case, tools), {tool.name: tool.unit for tool in tools}
        if plays and known:
            logger.info("The policies' own runs are there, which makes the figures closer:")
        for line in cost_lines(plays, units):
            logger.info("%s", line)
        if self._case.channels and not known:
            self._say_without_a_gain(plays, tools, units)
        by_unit = together(plays, units)
        left = _sum(by_unit.get(unit, Plays(0, 0)) for unit in BY_A_POLICY)
        if plays and self._there:
            there = plural(self._there, "episode")
            logger.info("%s lie in the folder already and are not played again.", there)
        self._left = Plays(*(max(number - self._there, 0) for number in left))
        self._there, self._counted_at = 0, self._case.pace.episodes  # of what follows none is there
        self.say_time()
        return known

    def _say_without_a_gain(
        self, plays: Mapping[str, Plays], tools: Sequence[Instrument], units: Mapping[str, str]
    ) -> None:
        """The sum without what is played on the part of the gain that survives scrubbing."""
        rest = {
            tool.name: plays[tool.name]
            for tool in tools
            if tool.name in plays and all(test.kind == "declared" for test in tool.gain_tests)
        }
        if rest and len(rest) < len(plays):
            logger.info("If no gain survives scrubbing: %s", _sums(rest, units))

    def say_time(self) -> None:
        """How long that takes; nothing while no pace is known, or nothing is left."""
        pace, played = self._case.pace, self._case.pace.episodes - self._counted_at
        left = Plays(*(max(number - played, 0) for number in self._left))
        if pace.a_second and left.most:
            logger.info("%s", time_line(pace.a_second, left))


def episodes_in(folder: Path) -> int:
    """How many episodes a case folder holds, of both sides and in all worlds."""
    number = 0
    for path in (folder / "trajectories").glob("*.parquet"):
        with open_whole(path) as file:
            number += file.metadata.num_rows
    return number


def own_runs_are_there(case: Case) -> bool:
    """Whether both policies played the open world and the one without any channel."""
    channels = tuple(channel.name for channel in case.channels)
    return all(case.has_played(Condition(scrubbed=world)) for world in ((), channels))


def plays_of(case: Case, tools: Sequence[Instrument]) -> dict[str, Plays]:
    """What each instrument plays (in its unit), in their order; none that plays none."""
    found = {}
    for tool in tools:
        try:
            told = 0 if tool.episodes is None else tool.episodes(case, tool.config)
        except MissingInput:  # it will say so itself, and plays nothing
            continue
        plays = told if isinstance(told, Plays) else Plays(told, told)
        if plays.most > 0:
            found[tool.name] = Plays(min(plays.likely, plays.most), plays.most)
    return found


def together(plays: Mapping[str, Plays], units: Mapping[str, str]) -> dict[str, Plays]:
    """The sums, by what is counted."""
    found: dict[str, Plays] = {}
    for name, one in plays.items():
        unit = units.get(name, "episode")
        found[unit] = _sum((found.get(unit, Plays(0, 0)), one))
    return found


def _sum(plays: Iterable[Plays]) -> Plays:
    likely, most = map(sum, zip((0, 0), *plays, strict=True))
    return Plays(likely, most)


def cost_lines(plays: Mapping[str, Plays], units: Mapping[str, str]) -> Iterator[str]:
    """`renaming: likely some 600, at most 2,400 episodes`, and the sum by what is counted."""
    for name, one in plays.items():
        yield f"{printable(name)}: {_told(one, units.get(name, 'episode'))}"
    if plays:
        yield f"All together: {_sums(plays, units)}"


def _sums(plays: Mapping[str, Plays], units: Mapping[str, str]) -> str:
    return "; ".join(_told(one, unit) for unit, one in together(plays, units).items())


def _told(plays: Plays, unit: str) -> str:
    most = f"at most {plural(plays.most, unit)}"
    if plays.likely == plays.most:
        return most
    some = min(round(plays.likely, 2 - len(str(plays.likely))), plays.most)
    return f"likely {f'some {some:,}' if some else 'none'}, {most}"


def time_line(a_second: float, left: Plays) -> str:
    """How long it takes to play what is left."""
    likely, most = (_length(number / a_second) for number in left)
    pace = f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.2g}"
    takes = (
        f"likely takes some {likely}, at most {most}" if likely != most else f"takes at most {most}"
    )
    episodes = "episode" if pace == "1" else "episodes"
    return f"At {pace} {episodes} a second so far, what is left to play {takes}."


def _length(seconds: float) -> str:
    """`40 minutes`, in the largest unit of which it is two."""
    size, unit = next((one for one in LENGTHS if seconds >= 2 * one[0]), LENGTHS[-1])
    return plural(max(round(seconds / size), 1), unit)
