"""The seam: an instrument is one function from a case to findings, and one
entry point.

1. Write a frozen, keyword-only dataclass of settings and a generator
   `measure(case, config)` that yields `Evidence` or `Undefined`, decorated with
   `@instrument(...)`.
2. Name it under the entry-point group `forensics.instruments`.
3. One whose answers the rule weighs declares a `GainTest` with its words (`@gain_test(...)` in
   place of `@instrument(...)`), and is named under `forensics.gain_tests` instead.

The runner gives every declared question an answer: one that the instrument did
not reach because the case lacks something becomes `Undefined` with the reason.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from forensics.case import Case
from forensics.errors import MissingInput, ModelsMissing, UserError, stop_outside
from forensics.phrases import printable
from forensics.plugins import code_of, load_point, package_of, plugin_points
from forensics.records import Evidence, Provenance, Undefined
from forensics.records.gain_test import GainTest as GainTest
from forensics.statistics import Estimate
from forensics.version import PACKAGE

Measure = Callable[[Case, Any], Iterator[Evidence | Undefined]]


class Plays(NamedTuple):
    """How many episodes an instrument plays: `likely`, where its first look settles
    what it asks, and at `most`, whatever it finds.
    """

    likely: int
    most: int

    def times(self, number: int) -> "Plays":
        """So many times as many."""
        return Plays(self.likely * number, self.most * number)


Cost = Callable[[Case, Any], int | Plays]
GROUPS = ("forensics.instruments", "forensics.gain_tests")  # of entry points
QUICK = ("audit", "behaviour", "exchange", "score", "sufficiency")  # a first answer in minutes
LAYERS = (  # sections of a report
    "score",
    "signal",
    "behaviour",
    "ablation",
    "sources",
    "features",
    "cliffs",
)


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """A named measurement: the layer it belongs to (one of `LAYERS`), the
    questions it answers, its settings, its function. `episodes`: how many it
    plays, for a case and its settings: `Plays`, or a number where nothing but the bound
    is known (`None`: it plays none); `unit`: what is counted there, where it is no whole
    episode of a policy. `gain_tests`: what the rule weighs of its answers. `usual`: measured
    where nobody names it.
    """

    name: str
    layer: str
    questions: tuple[str, ...]
    config: Any
    measure: Measure
    episodes: Cost | None = None
    unit: str = "episode"
    gain_tests: tuple[GainTest, ...] = ()
    usual: bool = True

    def __post_init__(self) -> None:
        if self.layer not in LAYERS:
            raise UserError(
                f"the instrument {printable(self.name)} names the layer '{printable(self.layer)}',"
                f" which does not exist; give one of: {', '.join(LAYERS)}"
            )
        for test in self.gain_tests:
            if not re.fullmatch(r"[a-z0-9-]+", test.name) or not set(test.answers) <= {
                *self.questions
            }:
                raise UserError(
                    f"the gain test '{printable(test.name)}' needs a name of small letters, digits"
                    f" and dashes, and an instrument that answers {', '.join(test.answers)}"
                )

    def configured(self, **changes: Any) -> "Instrument":
        """The same instrument with changed settings; an unknown setting is refused."""
        return replace(self, config=replace(self.config, **changes))

    def provenance(self, case: Case) -> Provenance:
        """Of its answers; `code` is its own distribution, where that is not ours."""
        code = code_of(getattr(self.measure, "func", self.measure).__module__)
        return Provenance(
            instrument=self.name,
            config=plain_config(self.config),
            seed=case.seed,
            inputs=case.input_hashes(),
            code=case.code_version if code.startswith(f"{PACKAGE} ") else code,
        )

    def answers(self, case: Case, config: Any, method: str) -> "AnswerMaker":
        """What makes its answers to a case, under the settings that it was given."""
        provenance = replace(self, config=config).provenance(case)
        return AnswerMaker(layer=self.layer, method=method, provenance=provenance)


@dataclass(frozen=True, kw_only=True)
class AnswerMaker:
    """Makes answers that share their layer, method and provenance."""

    layer: str
    method: str
    provenance: Provenance

    def evidence(self, question: str, estimate: float | Estimate, **fields: Any) -> Evidence:
        """`estimate`: a number, or one with its interval, observations and clusters."""
        known: dict[str, Any] = vars(self) | {"question": question, "estimate": estimate}
        if isinstance(estimate, Estimate):
            known["estimate"], known["interval"] = estimate.estimate, estimate.interval
            known |= {"n": int(estimate.n), "clusters": estimate.clusters}
        return Evidence(**known | fields)

    def undefined(
        self, question: str, missing: MissingInput, about: str | None = None
    ) -> Undefined:
        """Why there is no answer, and what would give one. Raises the `OutsideFailure` that
        an input is missing for.
        """
        stop_outside(missing)
        return Undefined(
            **vars(self), question=question, about=about, reason=missing.reason, cure=missing.cure
        )

    def answer(
        self, question: str, measure: Callable[[], Evidence], about: str | None = None
    ) -> Evidence | Undefined:
        """The measured answer, or `Undefined` with the reason where its input is missing."""
        try:
            return measure()
        except MissingInput as missing:
            return self.undefined(question, missing, about)


def plain_config(config: Any) -> dict[str, Any]:
    """A settings dataclass as scalars and lists, for provenance."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}


def instrument(
    *,
    name: str,
    layer: str,
    questions: tuple[str, ...],
    config: Any,
    episodes: Cost | None = None,
    unit: str = "episode",
    gain_tests: tuple[GainTest, ...] = (),
    usual: bool = True,
) -> Callable[[Measure], Instrument]:
    """Make an `Instrument` of a measuring function."""

    def wrap(measure: Measure) -> Instrument:
        return Instrument(
            name=name,
            layer=layer,
            questions=questions,
            config=config,
            measure=measure,
            episodes=episodes,
            unit=unit,
            gain_tests=gain_tests,
            usual=usual,
        )

    return wrap


def gain_test(
    declared: GainTest,
    *,
    config: Any,
    episodes: Cost | None = None,
    unit: str = "episode",
    further: tuple[str, ...] = (),
) -> Callable[[Measure], Instrument]:
    """Make a gain test of a measuring function: an instrument that answers what the rule
    weighs, and `further` questions.
    """
    return instrument(
        name=declared.name,
        layer="sources",
        questions=(*declared.answers, *further),
        config=config,
        episodes=episodes,
        unit=unit,
        gain_tests=(declared,),
    )


def run_instrument(tool: Instrument, case: Case) -> Iterator[Evidence | Undefined]:
    """Run one instrument on a case; what the case cannot supply becomes `Undefined`.

    Raises `UserError` for an answer to a question that it does not declare, and the
    `OutsideFailure` of the machine or of an environment, which is no answer.
    """
    answered: set[str] = set()
    try:
        for finding in tool.measure(case, tool.config):
            if finding.question not in tool.questions:
                raise UserError(
                    f"the instrument {tool.name} answers {printable(finding.question)}, which is"
                    " not among its questions; declare it there"
                )
            answered.add(finding.question)
            yield finding
    except MissingInput as missing:
        stop_outside(missing)
        reason, cure = missing.reason, missing.cure
    else:
        reason = f"`{tool.name}` gave no answer to this question, and no reason."
        cure = "See what else it answered; a bug report with the case folder helps."
    for question in tool.questions:
        if question not in answered:
            yield Undefined(
                question=question,
                layer=tool.layer,
                method=tool.name,
                provenance=tool.provenance(case),
                reason=reason,
                cure=cure,
            )


def installed_instruments() -> tuple[Instrument, ...]:
    """Every installed instrument, sorted by name so that the order of
    installation does not matter. Raises `UserError` for an object that is none,
    and where two answer the same question: a stranger's answer could decide a
    label without a word.
    """
    found = [tool for group in GROUPS for _, tool in _installed(group)]
    owners: dict[str, str] = {}
    for tool in found:
        for question in tool.questions:
            if (owner := owners.setdefault(question, tool.name)) != tool.name:
                raise UserError(
                    f"the instruments {owner} and {tool.name} both answer {question}; begin the"
                    " questions of your own with its name"
                )
    return tuple(sorted(found, key=lambda tool: str(tool.name)))


@cache
def installed_gain_tests() -> tuple[GainTest, ...]:
    """What the rule weighs: ours, and after them those of other packages, each with the name of
    its package. Raises `UserError` where two have one name.
    """
    found = [
        replace(test, package="" if package == PACKAGE else package)
        for package, tool in _installed(GROUPS[1])
        for test in tool.gain_tests
    ]
    names = [test.name for test in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two packages bring a gain test '{printable(twice[0])}'; uninstall one")
    if strange := [test.name for test in found if test.package and test.kind == "declared"]:
        raise UserError(f"the gain test {strange[0]} is `declared`, which scrubbing alone is")
    return tuple(sorted(found, key=lambda test: (bool(test.package), test.place, test.name)))


def not_installed() -> list[str]:
    """The names of instruments that need packages which are not there (`ModelsMissing`)."""
    missing = []
    for group in GROUPS:
        for point in plugin_points(group):
            try:
                load_point(group, point)
            except ModelsMissing:
                missing.append(point.name)
    return missing


def _installed(group: str) -> Iterator[tuple[str, Instrument]]:
    """Every instrument of a group, with the package that brings it."""
    for point in plugin_points(group):
        try:
            tool = load_point(group, point)
        except ModelsMissing:  # `not_installed` names it
            continue
        if not isinstance(tool, Instrument):
            raise UserError(
                f"an entry point of '{group}' names {printable(repr(tool)[:80])},"
                " which is no instrument; decorate the function with `@instrument`"
            )
        yield package_of(point), tool


def chosen_instruments(chosen: Sequence[str | Instrument] | None) -> tuple[Instrument, ...]:
    """The instruments to measure with, sorted by name; `None` or nothing chosen
    takes the usual ones of all installed.

    `NAME` takes this one and others that are named only, `-NAME` leaves one out, `+NAME` adds
    one. `QUICK` names those of a first answer.
    An `Instrument` is measured with too. It may not be called like an installed
    one: other settings could loosen a test that a label rests on; under a name of
    its own, the more careful of two answers counts. Raises `UserError` for that,
    for a name that is not installed, and where none is left.
    """
    tools = {tool.name: tool for tool in installed_instruments()}
    own = {one.name: one for one in chosen or () if isinstance(one, Instrument)}
    if taken := sorted(set(own) & set(tools)):
        raise UserError(
            f"the instrument {taken[0]} is installed, and verdicts rest on its own settings; give"
            " yours another name"
        )
    names = [one for one in chosen or () if isinstance(one, str)]
    for name in names:
        if name[name.startswith(("-", "+")) :] not in tools:
            raise UserError(f"there is no instrument {printable(name)}; known: {', '.join(tools)}")
    wanted = {name for name in names if not name.startswith(("-", "+"))} | set(own)
    wanted = wanted or {name for name, tool in tools.items() if tool.usual}
    kept = wanted | {name[1:] for name in names if name.startswith("+")}
    left = tuple((tools | own)[name] for name in sorted(kept) if f"-{name}" not in names)
    if not left:
        raise UserError("no instrument is left to measure with; name at least one")
    return left
