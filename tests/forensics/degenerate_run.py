"""The measures of degeneracy of one run, against the limits of a scan."""

from forensics.investigation.scan_run import above
from forensics.layers.actions import acted_in
from forensics.layers.degeneracy import degeneracy
from forensics.layers.tally import Loop, loop_in, share_looped
from forensics.records import Trajectory


def degenerate(run: Trajectory) -> tuple[tuple[str, ...], dict[str, float | None], Loop | None]:
    """The names of those above their limit, all measures, and the longest loop."""
    acted = acted_in(run)
    loop = loop_in(acted.turns)
    measures = degeneracy(run, acted) | {"loop": share_looped(loop, acted.turns)}
    return above(measures, run.turns), measures, loop
