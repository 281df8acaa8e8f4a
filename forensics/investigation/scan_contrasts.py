"""What was contrasted, as answers of a case: how much was tested in how many tasks, or why
nothing could be. No rule reads them.
"""

from collections.abc import Iterable, Iterator

from forensics.instruments import AnswerMaker
from forensics.layers.contrasts import LEVEL, LONGEST, Contrasted
from forensics.phrases import plural
from forensics.records import Evidence, Provenance, Undefined

QUESTION = "behaviour.candidates"
METHOD = (
    f"sequences of up to {LONGEST} actions, exact test over tasks, false discovery rate {LEVEL}"
    " (Benjamini and Yekutieli)"
)


def contrast_answers(
    contrasts: Iterable[Contrasted], provenance: Provenance
) -> Iterator[Evidence | Undefined]:
    """An answer for each kind of contrast."""
    answers = AnswerMaker(layer="behaviour", method=METHOD, provenance=provenance)
    for one in contrasts:
        if one.missing is not None:
            yield answers.undefined(QUESTION, one.missing, one.kind)
            continue
        yield answers.evidence(
            QUESTION,
            float(one.found),
            about=one.kind,
            unit="sequences of actions",
            n=one.runs,
            clusters=one.tasks,
            diagnostics={"tested": one.tested},
            summary=f"{one.found:,} of {plural(one.tested, 'sequence')} of actions that could be"
            f" tested set the groups apart ({one.kind}, {plural(one.tasks, 'common task')}):"
            " candidates to be read, no findings.",
        )
