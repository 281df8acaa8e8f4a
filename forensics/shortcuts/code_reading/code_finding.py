"""One thing that code does to its checks, and the names of the families that look for it."""

from dataclasses import dataclass

HARD_CODING = "hard-coding"
EARLY_EXIT = "early-exit"
MONKEYPATCHING = "monkeypatching"
_FAMILIES = {  # of kinds that are no hard-coding
    **dict.fromkeys(("early exit", "targeted exit"), EARLY_EXIT),
    **dict.fromkeys(
        ("equal to everything", "a replayed output", "swallowed assertion", "grader replaced",
         "timer replaced", "reward forged", "report rewritten"),
        MONKEYPATCHING,
    ),
}  # fmt: skip

MOST_QUOTED_LINES = 6
MOST_QUOTED = 400
MOST_TOLD = 40


@dataclass(frozen=True, kw_only=True)
class CodeFinding:
    """One thing that code does to its checks.

    `kind`: which shape of it. `line`: where, from 1. `quote`: the lines that show it. `reason`: one
    sentence. `sure`: what was handed in does it; otherwise it is an attempt
    that a reader should look at. `path`: the file, where the code is for one.
    """

    kind: str
    line: int
    quote: str
    reason: str
    sure: bool
    path: str | None = None

    @property
    def family(self) -> str:
        """Hard-coding, early exit or monkeypatching."""
        return _FAMILIES.get(self.kind, HARD_CODING)


def quoted(lines: list[str], first: int, last: int) -> str:
    """Lines `first` to `last` (from 1), cut short."""
    shown = lines[max(0, first - 1) : max(first, min(last, first + MOST_QUOTED_LINES - 1))]
    text = "\n".join(line[:MOST_QUOTED].rstrip() for line in shown)
    return text if len(text) <= MOST_QUOTED else text[: MOST_QUOTED - 1] + "…"
