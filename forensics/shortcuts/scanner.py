"""The shortcut scanner: one run, its actions, and every family's chain of
evidence.

1. Each family's patterns find the actions that try it (`patterns`). A match alone
   is an attempt, never a verdict.
2. The family's rule decides what was obtained and whether it was used (`links`,
   `git_history`, or an environment's own). It sees the run without its score.
3. Only then is the score looked at: a used shortcut is *credited* where the run
   was scored a win, unless its own named rewards (`benefit`) say that it would have won
   without. Where a hidden grader puts the tests back (families with
   `credit = "benefit"`), a win does not show a benefit: it is credited only
   where these rewards do, else it stays open.
4. Of every other family the scanner says whether it could look (`looks`). A rule that fails on
   a run could not; the others go on.

Departs from published scanners, which stop at 1 (F1 of about 5 % on labelled
real runs).
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import NamedTuple

from forensics.actions import Action
from forensics.errors import UserError
from forensics.layers.channels import RULE_BROKEN
from forensics.layers.evidence_chain import ChainRule, cite
from forensics.phrases import printable
from forensics.records import Trajectory
from forensics.records.finding import Coverage, Finding
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.code_links import code
from forensics.shortcuts.family import Family, installed_families
from forensics.shortcuts.git_history import history
from forensics.shortcuts.grader_words import grader_words
from forensics.shortcuts.instructions import with_instructions
from forensics.shortcuts.libraries import library
from forensics.shortcuts.links import PLAIN, Attempt, ChainLinks, LinkRule
from forensics.shortcuts.looks import DOUBTFUL_BAN, looks_of
from forensics.shortcuts.patterns import Matcher
from forensics.shortcuts.shown import shown

LONGEST = 2000  # characters of an explanation
BROKEN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
FAILED_ON = (
    "the family %s failed on the run %s (%s: %s); it counts as one that could not be looked at;"
    " please report it"
)
logger = logging.getLogger("forensics")
RULES: Mapping[str, LinkRule] = {
    **PLAIN,
    "code": code,
    "grader words": grader_words,
    "history": history,
    "library": library,
    "shown": shown,
}


RULE = ChainRule()


def scan_trajectory(
    trajectory: Trajectory,
    actions: Sequence[Action],
    families: Sequence[Family] | None = None,
) -> tuple[Finding, ...]:
    """Every family's finding in one run, families in the order of their names;
    `()` for one without any.

    `actions`: of the same run (`actions_of`). `families`: instead of those that are
    installed. Pure: the same run gives the same findings, and the
    score changes nothing but `credited`.
    """
    return look_at(trajectory, actions, families).findings


class Looked(NamedTuple):
    """What was found in a run, and what could be looked at."""

    findings: tuple[Finding, ...]
    looks: Coverage


def look_at(
    trajectory: Trajectory,
    actions: Sequence[Action],
    families: Sequence[Family] | None = None,
) -> Looked:
    """The findings of `scan_trajectory`, and the status of every family (`looks`)."""
    blind = BlindRun(trajectory, tuple(actions))
    found, failed = [], set()
    usual = matchers() if families is None else {"": Matcher(families)}
    matcher = usual.get(trajectory.environment, usual[""])
    for family, hits in zip(matcher.families, matcher.hits(blind), strict=True):
        rule = rule_named(family.rule)
        try:
            links = rule(Attempt(blind, family, hits, RULE))
        except BROKEN as error:  # one run is not worth the others
            logger.warning(FAILED_ON, family.id, trajectory.id, type(error).__name__, error)
            failed.add(family.id)
            continue
        if links is not None:
            found.append(_finding(trajectory, family, links, RULE))
    ids = {finding.family for finding in found}
    looks = looks_of(blind, matcher.families, ids, failed)
    told, doubtful = with_instructions(blind, found)
    if doubtful:
        missed = {**looks.could_not_look, RULE_BROKEN: DOUBTFUL_BAN}
        looks = looks.model_copy(update={"could_not_look": missed})
    return Looked(told, looks)


@cache
def rule_named(name: str) -> LinkRule:
    """A rule of ours by its name, or one of a stranger's as `package.module:function`."""
    if name in RULES:
        return RULES[name]
    try:
        rule: LinkRule = resolve_name(name) if ":" in name else RULES[name]
    except (KeyError, ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"there is no rule '{name}' ({error}); known: {', '.join(sorted(RULES))}, or"
            " 'package.module:function'"
        ) from None
    return rule


@cache
def matchers() -> dict[str, Matcher]:
    """Of each environment the matcher of its installed families."""
    return {name: Matcher(there) for name, there in installed_families().items()}


def _finding(trajectory: Trajectory, family: Family, links: ChainLinks, rule: ChainRule) -> Finding:
    credited, why = _credited(trajectory, family, links.used, rule)
    parts = (
        f"{family.channel} was tried at {cite(links.attempt_steps)} ({', '.join(links.patterns)})",
        links.reason,
        links.unresolved or "",
        why,
    )
    return Finding(
        **trajectory.origin,
        family=family.id,
        channel=family.channel,
        credited=credited,
        explanation=printable("; ".join(filter(None, parts)), LONGEST) + ".",
        **{name: value for name, value in vars(links).items() if name != "reason"},
    )


def _credited(
    trajectory: Trajectory, family: Family, used: bool | None, rule: ChainRule
) -> tuple[bool | None, str]:
    """Whether a used shortcut was scored as a win, and in words; the only look at a score."""
    if used is False:
        return False, ""
    if trajectory.outcome is None:
        return None, "the run has no score"
    if trajectory.outcome < rule.win:
        return False, "the run was not scored a win"
    if family.credit == "alone":
        return True, "the run was scored a win"
    if used is None:
        return None, "the run was scored a win"
    bent, honest = (trajectory.rewards.get(name) for name in (family.benefit or ("", "")))
    if bent is None or honest is None:
        if family.credit == "win":
            return True, "the run was scored a win"
        return None, "the run was scored a win, but the log does not show that it profited"
    profited = bent >= rule.win > honest
    return (
        profited,
        "the run was scored a win for it" if profited else "the run would have won without it",
    )
