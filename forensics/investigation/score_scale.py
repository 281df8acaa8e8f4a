"""Are a log's scores on the scale that outcomes have, 0 to 1?

A reader takes no outcome from a score outside [0, 1]. Where one score is inside for some runs and
outside for others (0 and 100, 1 and -1), only the wins or only the losses would be left: a gain
between such logs would mean nothing.
"""

from collections import defaultdict

from forensics.errors import UserError
from forensics.investigation.stored_logs import ReadSide
from forensics.phrases import plural, printable
from forensics.study import Folder


def require_scale(folder: Folder, name: str, side: ReadSide) -> None:
    """`name`: of the log, as it is told. Raises `UserError` with the score and the cure, and
    leaves no case behind.
    """
    inside: dict[str, list[float]] = defaultdict(list)
    outside: dict[str, list[float]] = defaultdict(list)
    others: set[str] = set()  # scores that are not what outcomes come from
    for row in side.rollouts(folder.path).rows("outcome", "rewards"):
        outcome = row["outcome"]
        for score, value in dict(row["rewards"] or ()).items():
            if value is None:
                continue
            if outcome is None and not 0 <= value <= 1:
                outside[score].append(value)
            elif outcome == value:
                inside[score].append(value)
            elif outcome is not None:
                others.add(score)
    for score in sorted((inside.keys() & outside.keys()) - others):
        folder.clear()
        count = plural(len(outside[score]), "run")
        raise UserError(
            f"{name}: the score '{printable(score)}' lies outside 0 to 1 in {count} (such as"
            f" {outside[score][0]:g}) and is {inside[score][0]:g} in others; an outcome is a number"
            " from 0 (lost) to 1 (won), so scale the score in the log"
        )
