"""Somebody else's agent, played by its own command, as `harness.toml` says."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.harness.commanded import (
        Commands as Commands,
        Handed as Handed,
        cleaned as cleaned,
        handed_out as handed_out,
    )
    from forensics.harness.harness_file import (
        Harness as Harness,
        HarnessChannel as HarnessChannel,
        HarnessTask as HarnessTask,
        HarnessWorld as HarnessWorld,
        read_harness as read_harness,
        tasks_of as tasks_of,
    )

__getattr__, __dir__ = lazy_names(__name__)
