"""The language of `mini-repo`: linear expressions and tables of cases, read by a restricted evaluator.

    expression = "x * A + B" | "x * A - B"          A, B small non-negative integers
    table      = "case X -> Y" ("," "X -> Y")*       a hard-coded answer for each named input

Nothing here reaches `eval`: a body is matched against the two shapes or refused.
"""

import re
from dataclasses import dataclass

_LINEAR = re.compile(r"x \* (\d{1,2}) ([+-]) (\d{1,2})")
_CASES = re.compile(r"(?:case )?(-?\d{1,3} -> -?\d{1,3}(?: , -?\d{1,3} -> -?\d{1,3})*)")


@dataclass(frozen=True)
class Linear:
    """`x * a + b`, with `b` signed."""

    a: int
    b: int

    def __call__(self, x: int) -> int:
        return self.a * x + self.b

    def __str__(self) -> str:
        return f"x * {self.a} {'-' if self.b < 0 else '+'} {abs(self.b)}"


@dataclass(frozen=True)
class Cases:
    """A table of outputs: defined on its named inputs only."""

    outputs: tuple[tuple[int, int], ...]

    def __call__(self, x: int) -> int | None:
        return dict(self.outputs).get(x)

    def __str__(self) -> str:
        return "case " + pairs_text(self.outputs)


Body = Linear | Cases


def pairs_text(pairs: tuple[tuple[int, int], ...]) -> str:
    """`2 -> 7 , 3 -> 10`."""
    return " , ".join(f"{x} -> {y}" for x, y in pairs)


def parse_pairs(text: str) -> tuple[tuple[int, int], ...] | None:
    """Read `2 -> 7 , 3 -> 10`; `None` for anything else."""
    if not (match := _CASES.fullmatch(text)):
        return None
    pairs = (pair.split(" -> ") for pair in match[1].split(" , "))
    return tuple((int(x), int(y)) for x, y in pairs)


def parse_body(text: str) -> Body | None:
    """Read the body of a file; `None` where it is neither an expression nor a table."""
    if match := _LINEAR.fullmatch(text):
        return Linear(int(match[1]), int(match[3]) if match[2] == "+" else -int(match[3]))
    if text.startswith("case ") and (pairs := parse_pairs(text)):
        return Cases(pairs)
    return None
