"""How a server that failed is asked again: one rule for all that ask servers.

1. A refused or broken connection, silence, status 408, 409, 425, 429 or 5xx and an answer that
   cannot be read may pass, so they are tried again; any other status is final.
2. The pause before another try doubles from try to try. After a 429 it starts longer (`busy`),
   since whoever keeps the server busy goes on doing so.
3. Where the server says for how many seconds to wait (`Retry-After`), that takes the place of
   `busy`, and the pause is no shorter. None is longer than `longest`.
"""

import re
from collections.abc import Mapping
from typing import Final

LONGEST_PAUSE: Final = 30.0  # seconds
PASSING: Final = frozenset({408, 409, 425, 429})  # statuses below 500 that another try may mend
BUSY: Final = 429


class Broken(Exception):
    """An answer that is not what was asked for. Tried again, then `Unanswered`.

    `asked`: seconds that the server wants to be left alone, 0 where it says none; `busy`: it
    had too much to do.
    """

    def __init__(self, message: str, asked: float = 0.0, busy: bool = False) -> None:
        super().__init__(message)
        self.asked, self.busy = asked, busy


def passing(status: int, headers: Mapping[str, str], words: str) -> Broken | None:
    """A status that another try may mend; `None` for any other. `words`: the server's."""
    if status < 500 and status not in PASSING:
        return None
    told = headers.get("retry-after", "")
    asked = float(told) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", told) else 0.0
    return Broken(f"status {status}: {words}", asked, busy=status == BUSY)


def pause_before(
    number: int, error: Exception, *, pause: float, busy: float, longest: float = LONGEST_PAUSE
) -> float:
    """Seconds to wait before try `number` (the first is 0) after `error`."""
    met = error if isinstance(error, Broken) else Broken("")
    first = busy if met.busy and not met.asked else pause
    return min(max(met.asked, first * 2.0 ** (number - 1)), longest)
