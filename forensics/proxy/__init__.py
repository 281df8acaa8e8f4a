"""A recording proxy for agents that cannot be opened: they get an address on loopback and a key
that *is* the episode; every call is sampled as the case says and kept.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.proxy.call_record import (
        Call as Call,
        Draw as Draw,
        EpisodeRecord as EpisodeRecord,
        Patience as Patience,
        Ticket as Ticket,
        read_record as read_record,
        trajectory_of as trajectory_of,
    )
    from forensics.proxy.loopback import RecordingProxy as RecordingProxy
    from forensics.proxy.open_episode import answer_kinds as answer_kinds

__getattr__, __dir__ = lazy_names(__name__)
