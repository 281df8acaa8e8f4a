"""A case folder as the report reads it: no model, no torch, and only a bounded
number of runs in memory.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from forensics.errors import UserError
from forensics.phrases import printable
from forensics.records import Evidence, Spans, Undefined, Verdict
from forensics.records.case_checksum import sealed
from forensics.records.case_file import IntegrityRow, LoopRow
from forensics.records.evidence import EvidenceRow
from forensics.records.files import as_user_error, read_findings, read_json, write_json
from forensics.records.record import first_error
from forensics.report.below_findings import read_integrity, read_loops
from forensics.report.case_logs import find_logs
from forensics.report.findings import Findings, read_findings_of
from forensics.report.first_screen import Opening, opening_of
from forensics.report.rows import ChainIndex, index_chains
from forensics.report.shown_runs import Browser, browse
from forensics.verdict import (
    Rule,
    decide,
    is_current,
    not_installed,
    require_gain_tests,
    rule_of_case,
    standard_rule_of,
)
from forensics.verdict.rule import MOST
from forensics.verdict.sentences import TRAPS

SECTIONS: Final = ("score", "signal", "behaviour")  # shown first, others by name
FEW: Final = 8  # lines of a list
LEADING: Final = (  # questions that are shown first within their section
    "gain.total",
    "gain.genuine",
    "gain.phantom",
    "score.before",
    "score.after",
    "score.before_scrubbed",
    "score.after_scrubbed",
    "gain.channel",
    "behaviour.channel_wins",
    "behaviour.channel_attempts",
    "behaviour.echo_trap",
    "behaviour.collapse",
    "behaviour.degenerate_runs",
)


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything a report says.

    `inputs` and `provenance` are those of `case.json`, which lies in `folder`.
    `findings` are in the order in which they are shown. `loops`: the runs of logs that loop.
    `opening`: the first screen of a case from logs.
    """

    verdict: Verdict
    findings: tuple[EvidenceRow, ...]
    inputs: dict[str, Any]
    provenance: dict[str, Any]
    chains: ChainIndex
    browser: Browser
    folder: Path = Path()
    loops: tuple[LoopRow, ...] = ()
    integrity: tuple[IntegrityRow, ...] = ()
    opening: Opening | None = None

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The findings that are numbers."""
        return tuple(finding for finding in self.findings if isinstance(finding, Evidence))

    @property
    def undefined(self) -> tuple[Undefined, ...]:
        """The questions that have no answer."""
        return tuple(finding for finding in self.findings if isinstance(finding, Undefined))

    @property
    def sections(self) -> dict[str, tuple[Evidence, ...]]:
        """The evidence of each section (the layer of an instrument) that may be shown, in order."""
        shown = [*shown_evidence(self)]
        names = dict.fromkeys(evidence.layer for evidence in shown)
        return {name: tuple(e for e in shown if e.layer == name) for name in names}

    @cached_property
    def found(self) -> Findings | None:
        """What was found in a case made of logs, with the runs that reach furthest."""
        return read_findings_of(self.folder) if self.verdict.basis == "logs" else None

    @property
    def seeds(self) -> int:
        """How many checkpoints after training the case compares (0: it does not say)."""
        after = self.inputs.get("after")
        if isinstance(after, list):
            return len(after)
        return len({side for side, world in self.browser.totals if side != "before" and not world})

    def answer(self, question: str) -> Evidence | None:
        """The evidence on a question, about nothing in particular."""
        return next((e for e in self.evidence if e.question == question and e.about is None), None)


def load_case(folder: Path) -> ReportData:
    """Read a case folder. Raises `UserError` where it is not one, or has no verdict yet."""
    content, verdict = read_verdict(folder)
    stated = {
        name: value if isinstance(value := content.get(name), dict) else {}
        for name in ("inputs", "provenance")
    }
    findings = tuple(sorted(_findings(folder), key=_order))
    artifacts = (a for found in findings if isinstance(found, Evidence) for a in found.artifacts)
    spans = [artifact for artifact in artifacts if isinstance(artifact, Spans)]
    chains = index_chains(folder)
    data = ReportData(
        folder=folder,
        verdict=verdict,
        findings=findings,
        inputs=stated["inputs"],
        provenance=stated["provenance"],
        chains=chains,
        loops=read_loops(folder),
        integrity=read_integrity(folder),
        browser=browse(folder, find_logs(folder), chains, spans),
    )
    if "logs" not in data.inputs:
        return data
    first = opening_of(folder, stated, verdict, findings, data)
    return replace(data, opening=first)


def shown_evidence(data: ReportData) -> Iterator[Evidence]:
    """The numbers that may be shown: of logs no share over runs that could not be checked, and no
    trap that there is not.
    """
    opening = data.opening
    for one in data.evidence:
        none = one.question in TRAPS and one.estimate < MOST
        if opening is None or (opening.tells(one.question) and not none):
            yield one


def shown_reasons(data: ReportData) -> tuple[str, ...]:
    """The verdict's reasons, as far as they may be told; of logs a few."""
    reasons = data.verdict.reasons
    if data.opening is None:
        return reasons
    return tuple(few(data.opening.reasons(reasons), "evidence.jsonl"))


def few(lines: Sequence[str], where: str) -> list[str]:
    """The first lines, and how many more stand `where`."""
    left = len(lines) - FEW
    return [*lines[:FEW], *([f"{left:,} more in {where}"] if left > 0 else [])]


def read_verdict(folder: Path) -> tuple[dict[str, Any], Verdict]:
    """`case.json` and the verdict on its evidence: the one in it, or one by the
    case's rule as it is today if another gave that.
    """
    content, stored = stored_verdict(folder)
    rule = rule_of_case(content)
    current = is_current(stored, rule) and not not_installed(rule)
    return content, stored if current else judged_again(folder, stored, rule)


def judge_case(folder: Path, rule: str | None = None) -> Verdict:
    """The verdict on a case's evidence, worked out anew: the label in
    `case.json` is not taken on trust. By the standard rule, whatever rule the
    case was decided by, unless `rule` is the name of that one.
    """
    content, stored = stored_verdict(folder)
    own = rule_of_case(content)
    if rule is not None and rule != str(own.version):
        raise UserError(
            f"this case was not decided by a rule '{printable(rule)}' but by {own.title}; leave"
            " --rule out to judge it by the standard rule"
        )
    return judged_again(folder, stored, standard_rule_of(content) if rule is None else own)


def judged_again(
    folder: Path,
    stored: Verdict,
    rule: Rule,
    allowed: Sequence[str] | None = None,
    accepted: Sequence[str] | None = None,
) -> Verdict:
    """The verdict on a case's evidence by this rule and these terms (`None`: as
    they were): `stored` itself where it says the same.

    Raises `UserError` without the evidence.
    """
    allowed = stored.allowed if allowed is None else allowed
    accepted = stored.accepted if accepted is None else accepted
    require_gain_tests(accepted, rule.gain_tests)
    verdict = decide(_findings(folder), rule, allowed=allowed, accepted=accepted)
    if absent := not_installed(rule):
        return verdict.model_copy(update={"sentence": f"{verdict.sentence} {absent}"})
    if verdict.model_copy(update={"reasons": stored.reasons}) == stored:
        return stored
    same_rule = is_current(stored, rule)
    same_terms = (verdict.allowed, verdict.accepted) == (stored.allowed, stored.accepted)
    if same_rule and not same_terms:
        return verdict
    who = "case.json" if same_rule else f"another rule ({printable(stored.rule)})"
    told = f"Judged again on the same evidence; {who} said {stored.label}."
    return verdict.model_copy(update={"reasons": (told, *verdict.reasons)})


def settle(
    folder: Path, allowed: Sequence[str] | None, accepted: Sequence[str] | None
) -> Verdict | None:
    """Judge a case again, on other terms where they are given (`None`: as they
    are).

    Another verdict than the stored one goes into `case.json`. `None` where it
    is the same.
    """
    content, stored = stored_verdict(folder)
    verdict = judged_again(folder, stored, rule_of_case(content), allowed, accepted)
    if verdict is stored:
        return None
    try:
        said = {**content, "verdict": verdict.model_dump(mode="json")}
        write_json(folder / "case.json", sealed(said))
    except OSError as error:
        raise as_user_error(error, folder / "case.json") from error
    return verdict


def stored_verdict(folder: Path) -> tuple[dict[str, Any], Verdict]:
    """`case.json` and the verdict in it."""
    content = read_json(folder / "case.json")
    if not isinstance(content, dict) or "verdict" not in content:
        raise UserError(
            f"{folder / 'case.json'} is not of a case; give a folder that `forensics investigate`"
            " wrote"
        )
    if content["verdict"] is None:
        raise UserError(
            f"there is no verdict yet in {folder}; finish it with `forensics investigate ..."
            " --resume`"
        )
    try:
        return content, Verdict.model_validate_json(json.dumps(content["verdict"]))
    except ValidationError as error:
        raise UserError(
            f"the verdict in {folder / 'case.json'} cannot be read ({first_error(error)}); run the"
            " investigation again"
        ) from None


def _findings(folder: Path) -> Iterator[EvidenceRow]:
    try:
        yield from read_findings(folder / "evidence.jsonl")
    except FileNotFoundError:
        raise UserError(
            f"{folder / 'evidence.jsonl'} does not exist; give a folder that `forensics"
            " investigate` finished"
        ) from None
    except UnicodeDecodeError:
        raise UserError(
            f"{folder / 'evidence.jsonl'} is not UTF-8 text; run the investigation again"
        ) from None


def _order(finding: EvidenceRow) -> tuple[int, str, int, str, str]:
    """By section, then the questions that the verdict rests on, then by name."""
    section = (*SECTIONS, finding.layer).index(finding.layer)
    place = (*LEADING, finding.question).index(finding.question)
    return section, finding.layer, place, finding.question, finding.about or ""
