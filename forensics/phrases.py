"""Numbers and foreign names in plain sentences. Whatever a log or a model wrote
is data: made printable, cut short.
"""

from collections.abc import Iterable, Sequence
from shlex import quote

MINUS = "\N{MINUS SIGN}"
LONGEST_NAME = 80
ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)


def percent(share: float, decimals: int = 0) -> str:
    """`0.364` as `36 %`, with a decimal near the ends. Only 1 reads as 100 %, and only 0 as 0 %."""
    value = round(100 * share, 9)  # a sum of parts that make up the whole is the whole
    if 99.95 <= value < 100:
        return "more than 99.9 %"
    if 0 < value < 0.05:
        return "less than 0.1 %"
    return f"{_signed(value, 1 if 0 < value < 1 or 99 < value < 100 else decimals, plus=False)} %"


def share_of_change(share: float, low: float | None = None, high: float | None = None) -> str:
    """A share of what changed, with the ends of its interval: beyond all of it, either way, a
    percentage would say nothing, so there it is words.
    """

    def told(one: float) -> str:
        if abs(one) <= 1.005:  # which reads as 100 %
            return percent(one)
        return "more than all" if one > 0 else "the other way by more than all"

    if low is None or high is None:
        return told(share)
    ends = (told(low), told(high))
    said = told(share)
    return said if ends == (said, said) and abs(share) > 1 else f"{said} [{', '.join(ends)}]"


def capital(text: str) -> str:
    """The beginning of a sentence."""
    return text[:1].upper() + text[1:]


def points(difference: float, decimals: int = 0) -> str:
    """A difference of shares with its sign: `0.64` as `+64`."""
    return _signed(100 * difference, decimals, plus=True)


def point_range(low: float, high: float, decimals: int = 0) -> str:
    """Interval ends in points: `60 to 67`."""
    return (
        f"{_signed(100 * low, decimals, plus=False)} to {_signed(100 * high, decimals, plus=False)}"
    )


def _signed(value: float, decimals: int, *, plus: bool) -> str:
    text = f"{abs(value):.{decimals}f}"
    if float(text) == 0:
        return text
    return f"{MINUS if value < 0 else '+' if plus else ''}{text}"


def moved(change: float, sure: bool, ends: Sequence[float] | None = None) -> str:
    """What a score did, by its change: `rose from 43 % to 77 %`, `stayed at 43 %`, `fell`; it
    `went` where the change may be chance.
    """
    verb = "went" if not sure else "rose" if change > 0 else "fell"
    if ends is None:
        return verb
    first, last = map(percent, ends)
    return f"stayed at {last}" if first == last else f"{verb} from {first} to {last}"


def plural(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `1,200 tasks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def joined(names: Sequence[str], empty: str = "", last: str = "and") -> str:
    """`a, b and c`."""
    *most, end = names or (empty,)
    return f"{', '.join(most)} {last} {end}" if most else end


def ordinal(number: int) -> str:
    """`first`, `second`, ... `11th`."""
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 // 10 != 1 else 0, "th")
    return ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}{last}"


def printable(text: str, longest: int = LONGEST_NAME) -> str:
    """A foreign name without control or direction marks, on one line, at most
    `longest` characters.
    """
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def middle_cut(text: str, longest: int) -> str:
    """A foreign text on one line; of a long one the middle goes."""
    clean, half = printable(text, len(text) + 1), longest // 2
    return clean if len(clean) <= longest else f"{clean[:half]} […] {clean[-half:]}"


def allow_flags(kinds: Iterable[str]) -> str:
    """`--allow KIND` for each, quoted where a shell would read it as something else."""
    return " ".join(f"--allow {quote(printable(kind))}" for kind in kinds)
