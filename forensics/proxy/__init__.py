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
        read_record as read_record,
    )
    from forensics.proxy.episode_run import trajectory_of as trajectory_of
    from forensics.proxy.loopback import RecordingProxy as RecordingProxy
    from forensics.proxy.open_episode import answer_kinds as answer_kinds
    from forensics.proxy.ticket import Patience as Patience, Ticket as Ticket

__getattr__, __dir__ = lazy_names(__name__)
