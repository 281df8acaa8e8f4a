"""What an episode may draw, from whom, and where it is kept: `Ticket`."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from forensics.errors import UserError
from forensics.policies.completions import LONGEST_PAUSE
from forensics.protocols import Constraint, SamplingSettings


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """One episode. `upstream_url`: the server's address up to and with `/v1`; `model`: the name
    that it serves; `upstream_key` is sent to it and stands nowhere else.

    `settings`: of every call, whatever the agent asks; `max_turn_tokens` bounds a call,
    `max_tokens` the conversation that it extends. `seed`: the episode's; each draw has one of its
    own (`draw_seed`). `record`: the file to write, which must not be there yet. `environment`:
    whose language the actions are read in (entry points `forensics.languages`), where a
    `constraint` judges them. Raises `UserError` for an address that is none.
    """

    upstream_url: str
    model: str
    settings: SamplingSettings
    seed: int
    record: Path
    upstream_key: str | None = field(default=None, repr=False)
    constraint: Constraint | None = None
    environment: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.upstream_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"the server's address must be http://HOST/v1 or https://HOST/v1, not"
                f" '{self.upstream_url}'"
            )

    def draw_seed(self, call: int, redraw: int) -> int:
        """The seed of a draw, in [0, 2**31), by episode, call and redraw."""
        told = f"{self.seed} {call} {redraw}".encode()
        return int.from_bytes(hashlib.sha256(told).digest()[:4]) >> 1


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a server is waited for. `timeout`: seconds for one answer, `silence`: for its next
    piece; `tries`: times a request is sent; `pause`: seconds before the second try (`busy`: after
    a 429 that names no time), doubled for each further one, `longest_pause` at most (`retries`).
    """

    timeout: float = 600.0
    silence: float = 300.0
    tries: int = 4
    pause: float = 0.5
    busy: float = 5.0
    longest_pause: float = LONGEST_PAUSE
