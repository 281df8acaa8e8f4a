"""A case folder as the report reads it: no model, no torch, and only a bounded
number of runs in memory.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from forensics.errors import UserError
from forensics.phrases import printable
from forensics.records import Evidence, Spans, Undefined, Verdict
from forensics.records.files import as_user_error, read_findings, read_json, write_json
from forensics.records.record import first_error
from forensics.report.chains import ChainIndex, index_chains
from forensics.report.logs import find_logs
from forensics.report.shown_runs import Browser, browse
from forensics.verdict import RULE_2, Rule, decide, is_current, require_families, rule_of_case

LAYERS: Final = ("score", "signal", "behaviour")  # shown first, others by name
LEADING: Final = (  # questions that are shown first within their layer
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
Finding = Evidence | Undefined


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything a report says.

    `inputs` and `provenance` are those of `case.json`, which lies in `folder`.
    `findings` are in the order in which they are shown.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    inputs: dict[str, Any]
    provenance: dict[str, Any]
    chains: ChainIndex
    browser: Browser
    folder: Path = Path()

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The findings that are numbers."""
        return tuple(finding for finding in self.findings if isinstance(finding, Evidence))

    @property
    def undefined(self) -> tuple[Undefined, ...]:
        """The questions that have no answer."""
        return tuple(finding for finding in self.findings if isinstance(finding, Undefined))

    @property
    def layers(self) -> dict[str, tuple[Evidence, ...]]:
        """The evidence of each layer, in order."""
        found = dict.fromkeys(evidence.layer for evidence in self.evidence)
        return {layer: tuple(e for e in self.evidence if e.layer == layer) for layer in found}

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
    findings = tuple(sorted(_findings(folder), key=_order))
    chains = index_chains(folder)
    return ReportData(
        folder=folder,
        verdict=verdict,
        findings=findings,
        inputs=_table(content, "inputs"),
        provenance=_table(content, "provenance"),
        chains=chains,
        browser=browse(folder, find_logs(folder), chains, list(_spans(findings))),
    )


def read_verdict(folder: Path) -> tuple[dict[str, Any], Verdict]:
    """`case.json` and the verdict on its evidence: the one in it, or one by the
    case's rule as it is today if another gave that.
    """
    content, stored = _stored_verdict(folder)
    rule = rule_of_case(content)
    return content, (
        stored
        if is_current(stored, rule)
        else judged_again(folder, stored, stored.allowed, stored.accepted, rule)
    )


def judge_case(folder: Path, rule: str | None = None) -> Verdict:
    """The verdict on a case's evidence, worked out anew: the label in
    `case.json` is not taken on trust. By the standard rule, whatever rule the
    case was decided by, unless `rule` is the name of that one.
    """
    content, stored = _stored_verdict(folder)
    own = rule_of_case(content)
    if rule is not None and rule != str(own.version):
        raise UserError(
            f"this case was not decided by a rule '{printable(rule)}' but by {own.title}; leave"
            " --rule out to judge it by the standard rule"
        )
    judge = RULE_2 if rule is None else own
    return judged_again(folder, stored, stored.allowed, stored.accepted, judge)


def judged_again(
    folder: Path, stored: Verdict, allowed: Sequence[str], accepted: Sequence[str], rule: Rule
) -> Verdict:
    """The verdict on a case's evidence by this rule and these terms: `stored`
    itself where it says the same.

    Raises `UserError` without the evidence.
    """
    require_families(accepted)
    verdict = decide(_findings(folder), rule, allowed=allowed, accepted=accepted)
    if verdict.model_copy(update={"reasons": stored.reasons}) == stored:
        return stored
    if is_current(stored, rule):
        if (verdict.allowed, verdict.accepted) != (stored.allowed, stored.accepted):
            return verdict
        told = f"Judged again on the same evidence; case.json said {stored.label}."
    else:
        told = (
            f"Judged again on the same evidence; another rule ({printable(stored.rule)}) said"
            f" {stored.label}."
        )
    return verdict.model_copy(update={"reasons": (told, *verdict.reasons)})


def settle(
    folder: Path, allowed: Sequence[str] | None, accepted: Sequence[str] | None
) -> Verdict | None:
    """Judge a case again, on other terms where they are given (`None`: as they
    are).

    Another verdict than the stored one goes into `case.json`. `None` where it
    is the same.
    """
    content, stored = _stored_verdict(folder)
    verdict = judged_again(
        folder,
        stored,
        stored.allowed if allowed is None else allowed,
        stored.accepted if accepted is None else accepted,
        rule_of_case(content),
    )
    if verdict is stored:
        return None
    try:
        write_json(folder / "case.json", {**content, "verdict": verdict.model_dump(mode="json")})
    except OSError as error:
        raise as_user_error(error, folder / "case.json") from error
    return verdict


def _stored_verdict(folder: Path) -> tuple[dict[str, Any], Verdict]:
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


def _findings(folder: Path) -> Iterator[Finding]:
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


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}


def _order(finding: Finding) -> tuple[int, str, int, str, str]:
    """By layer, then the questions that the verdict rests on, then by name."""
    layer = LAYERS.index(finding.layer) if finding.layer in LAYERS else len(LAYERS)
    place = LEADING.index(finding.question) if finding.question in LEADING else len(LEADING)
    return layer, finding.layer, place, finding.question, finding.about or ""


def _spans(findings: Sequence[Finding]) -> Iterator[Spans]:
    for finding in findings:
        if isinstance(finding, Evidence):
            yield from (artifact for artifact in finding.artifacts if isinstance(artifact, Spans))
