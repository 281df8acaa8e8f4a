"""Instruments of the behaviour layer."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.layers.evidence_chain import (
        attempt_steps as attempt_steps,
        showing_steps as showing_steps,
    )
    from forensics.layers.signal_changes import (
        LINES as LINES,
        AlertLine as AlertLine,
        parse_line as parse_line,
    )
    from forensics.layers.train_columns import StepNumbers as StepNumbers, read_step as read_step

__getattr__, __dir__ = lazy_names(__name__)
