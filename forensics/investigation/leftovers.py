"""Do runs that somebody else made in a scrubbed world show a shortcut all the same?

1. The runs of the world without any channel are scanned like those of the open world.
2. Where shortcuts surely carry more than `BAR` of the wins after training there, beyond their
   share of the wins before, the world was not scrubbed of them: every answer that rests on it is
   `Undefined`, so that a leaky copy clears no gain.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from forensics.case import Case, Rollouts
from forensics.investigation.scan_findings import SETTINGS, SideMarks, scan_runs
from forensics.investigation.scan_run import channel_shares
from forensics.layers.channels import WINS
from forensics.layers.evidence_chain import survey
from forensics.phrases import percent, printable
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.evidence import EvidenceRow
from forensics.runs import Condition

BAR: Final = 0.2  # the fifth that the rule goes by
OPEN_ONLY: Final = ("gain.total", "score.before", "score.after")
CURE: Final = (
    "Take the shortcut out of the scrubbed world (`forensics scrub-git` for a history), check it"
    " (`forensics twin`), and play those runs again."
)


def withhold_leaky(found: Sequence[EvidenceRow], case: Case) -> list[EvidenceRow]:
    """The answers, those that rest on a scrubbed world `Undefined` where it shows a shortcut."""
    provenance = Provenance(
        instrument="scan", seed=case.seed, inputs=case.input_hashes(), code=case.code_version
    )
    shown = [*_carried(case, provenance)]
    if not shown:
        return [*found]
    told = " and ".join(
        f"{printable(one.about or 'a shortcut')} ({percent(one.estimate)} of the wins)"
        for one in shown
    )
    reason = f"The scrubbed runs after training win by a shortcut all the same: {told}."
    logging.getLogger("forensics").warning("%s %s", reason, CURE)
    return [_withheld(one, reason) if _rests_on_scrubbed(one) else one for one in found]


def _carried(case: Case, provenance: Provenance) -> Iterator[Evidence]:
    """Shortcuts that carry more than the bar of the scrubbed wins."""
    scrubbed = Condition(scrubbed=tuple(sorted(channel.name for channel in case.channels)))
    if not case.channels or not case.has_played(scrubbed):
        return
    runs: dict[tuple[str, tuple[str, ...]], Rollouts] = {
        (side, ()): case.rollouts(side, scrubbed) for side in ("before", *case.afters)
    }
    world = replace(case, environment=None, stored=runs)
    known = survey(world, [side for side, _ in runs], tasks=SETTINGS.control_tasks)
    told: dict[str, SideMarks] = {}
    for number, ((side, _), log) in enumerate(sorted(runs.items())):
        case.progress("scanning the scrubbed runs", number, len(runs))
        told[side] = scan_runs(side, log, known).marks
    case.progress("scanning the scrubbed runs", 1, 1)
    for answer in channel_shares(told, provenance):
        if answer.question == WINS and answer.about is not None and isinstance(answer, Evidence):
            before = answer.control and answer.control.estimate
            if answer.interval and answer.interval.low - (before or 0.0) > BAR:
                yield answer


def _rests_on_scrubbed(one: EvidenceRow) -> bool:
    return isinstance(one, Evidence) and one.layer == "score" and one.question not in OPEN_ONLY


def _withheld(one: EvidenceRow, reason: str) -> Undefined:
    return Undefined(
        question=one.question,
        about=one.about,
        layer=one.layer,
        method=one.method,
        provenance=one.provenance,
        reason=reason,
        cure=CURE,
    )
