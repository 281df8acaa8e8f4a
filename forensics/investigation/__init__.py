"""The main job, from two checkpoints and a world to a verdict in a case folder."""

from forensics.investigation.run import investigate

__all__ = ["investigate"]
