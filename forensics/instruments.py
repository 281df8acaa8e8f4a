"""The seam: an instrument is one function from a case to findings, and one entry point.

1. Write a frozen, keyword-only dataclass of settings and a generator `measure(case, config)` that
   yields `Evidence` or `Undefined`, decorated with `@instrument(...)`.
2. Name it under the entry-point group `forensics.instruments`.

The runner gives every declared question an answer: one that the instrument did not reach because
the case lacks something becomes `Undefined` with the reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import entry_points
from typing import Any

from forensics.case import Case
from forensics.errors import MissingInput, UserError
from forensics.records import Evidence, Provenance, Undefined

Measure = Callable[[Case, Any], Iterator[Evidence | Undefined]]


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """A named measurement: the layer it belongs to, the questions it answers, its settings, its function."""

    name: str
    layer: str
    questions: tuple[str, ...]
    config: Any
    measure: Measure

    def configured(self, **changes: Any) -> "Instrument":
        """The same instrument with changed settings; an unknown setting is refused."""
        return replace(self, config=replace(self.config, **changes))

    def provenance(self, case: Case) -> Provenance:
        return Provenance(
            instrument=self.name, config=plain_config(self.config), seed=case.seed, inputs=case.input_hashes(),
            code=case.code_version,
        )


def plain_config(config: Any) -> dict[str, Any]:
    """A settings dataclass as scalars and lists, for provenance."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


def instrument(*, name: str, layer: str, questions: tuple[str, ...], config: Any) -> Callable[[Measure], Instrument]:
    """Make an `Instrument` of a measuring function."""

    def wrap(measure: Measure) -> Instrument:
        return Instrument(name=name, layer=layer, questions=questions, config=config, measure=measure)

    return wrap


def run_instrument(tool: Instrument, case: Case) -> Iterator[Evidence | Undefined]:
    """Run one instrument on a case; what the case cannot supply becomes `Undefined`."""
    answered: set[str] = set()
    try:
        for finding in tool.measure(case, tool.config):
            answered.add(finding.question)
            yield finding
    except MissingInput as missing:
        reason, cure = missing.reason, missing.cure
    else:
        reason, cure = "The instrument gave no answer.", f"Report it to the author of the instrument `{tool.name}`."
    for question in tool.questions:
        if question not in answered:
            yield Undefined(
                question=question, layer=tool.layer, method=tool.name, provenance=tool.provenance(case),
                reason=reason, cure=cure,
            )


def load_plugin(group: str, name: str) -> Any:
    """The object that an entry point of `group` names; unknown names are refused with the known ones."""
    found = {point.name: point for point in entry_points(group=group)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none installed"
        raise UserError(f"unknown {group.removeprefix('forensics.').rstrip('s')} '{name}'; known: {known}")
    return found[name].load()


def installed_instruments() -> tuple[Instrument, ...]:
    """Every installed instrument, sorted by name so that the order of installation does not matter."""
    points = sorted(entry_points(group="forensics.instruments"), key=lambda point: point.name)
    return tuple(point.load() for point in points)
