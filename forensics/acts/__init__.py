"""Actions in one normal form, whatever harness wrote the log."""

from forensics.acts.act import Act, Kind
from forensics.acts.line import CUT
from forensics.acts.normal import acts_of

__all__ = ["CUT", "Act", "Kind", "acts_of"]
