"""From findings to a verdict, for re-runs and for logs. Pure: the same findings
in any order give the same bytes.

1. Take the rule, the standard one or one's own: as it is for a re-run, or the
   same clauses as logs can answer them.
2. Walk the clauses on the plain decomposition and again on its twin (breakage
   imputed; from logs: the rival assumption). One label from both is the label;
   two different ones are `undetermined`, with that gap.
3. Say why in a code where it is undetermined, in a sentence, in reasons with
   their numbers; list every source that was tested and every gain test that was
   not made; name every gap with what would close it.

What the reader takes upon themselves changes the findings that count (`View`)
and is written into the verdict: `allowed` kinds of action are part of the job,
`accepted` gain tests need not have been made.

Gaps (`gaps.toml`): what could not be told apart, which measurement would tell, and what it would
cost. First what the answers leave open and what a gain runs through that nobody allowed, then
what the runs do: training noise that one run does not show, runs that were lost or silent, terms
that nothing touched.
"""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from forensics.layers.one_line_rules import RULE
from forensics.phrases import (
    allow_flags,
    capital,
    joined,
    percent,
    plural,
    point_range,
    points,
    printable,
)
from forensics.records import Evidence, Undefined, Verdict
from forensics.records.gain_test import GainTest
from forensics.records.verdict import Gap, ReasonCode, Source
from forensics.verdict.parts import parts
from forensics.verdict.rule import (
    ASSUMED,
    G0,
    MOST,
    OVER,
    PLACEBO,
    REFUSED,
    REGRADED,
    SHORTCUT,
    THROUGH,
    WINS,
    G,
    P,
    Rule,
    for_logs,
    standard_rule,
)
from forensics.verdict.sentences import (
    IN_WORDS,
    LOST_SHARE,
    RESTS_ON_ASSUMPTION,
    lost_shares,
    reasons,
    sentence,
    stated,
)
from forensics.verdict.sources import (
    NAMED,
    clearing_cost,
    cost,
    cure_of,
    held_of,
    in_points,
    more_runs,
    smallest,
    sources,
    sources_of,
    widths_to,
)
from forensics.verdict.view import (
    CARRIED,
    JOINED,
    Judgement,
    Ruling,
    Terms,
    View,
    all_of,
    as_scrubbed,
    estimate_of,
    judge,
    scrubbed,
    standing,
    statistic,
    walk,
)


def rest_open(judged: Judgement) -> Iterator[Gap]:
    """What is surely phantom by a needless test, while it is open
    whether the rest is genuine.
    """
    if judged.ruling.clause.id != "rest-open":
        return
    view = judged.view
    for choice in judged.ruling.clause.when:
        test = judged.rule.test_of(choice[0].question)
        if test is None or not all_of(judge(one, view) for one in choice):
            continue
        least = statistic(view.evidence(test.asked), "carried_low", view.level)
        assert least is not None, "the clause asks for it"
        yield told_gap(
            "rest-open",
            least=points(least, 1).lstrip("+"),
            held=held_of(test),
            test=test.name,
            **_would_tell(judged, test),
        )


def _would_tell(judged: Judgement, test: GainTest) -> dict[str, str]:
    """What says of the rest that there is next to nothing, or that it is genuine:
    the cheaper of the two.
    """
    sides = (("phantom_over_bar", 0.0), ("left", judged.rule.margin))
    known = [
        (evidence, evidence.estimate - bar)
        for name, bar in sides
        if (evidence := judged.view.evidence(f"{test.name}.{name}")) is not None
    ]
    evidence, distance = min(known, key=lambda one: widths_to(*one))
    total = judged.view.evidence(G)
    wanted = cost(evidence, distance, total.clusters if total else 0)
    return {"more": more_runs(evidence), "cost": wanted}


def not_allowed(judged: Judgement) -> Iterator[Gap]:
    """What more than a fifth of the surviving gain runs through, without
    anybody having allowed it.
    """
    view = judged.view
    shortcuts = [kind for kind in answered_yes(view, SHORTCUT) if not _by_regrading(view, kind)]
    carrying = [
        about
        for about, e in view.all_evidence(CARRIED).items()
        if e.diagnostics.get("carries") is True
    ]
    for kind in dict.fromkeys(
        (*shortcuts, *answered_yes(view, THROUGH), *(kind or "" for kind in carrying))
    ):
        name, allow = printable(kind), allow_flags(kind.split(JOINED))
        held = ", whose output held the answer" if kind in shortcuts else ""
        yield told_gap("not-allowed", name=name, held=held, allow=allow)
    lost = view.evidence(REGRADED)
    if lost is not None and lost.interval is not None and lost.interval.low > 0:
        bent = [
            printable(kind) for kind in answered_yes(view, SHORTCUT) if _by_regrading(view, kind)
        ]
        used = f" ({', '.join(bent)})" if bent else ""
        yield told_gap("regraded", used=used)


def found_elsewhere(judged: Judgement) -> Iterator[Gap]:
    """What the tests beside refusal and regrading found, where it did not
    decide the label.
    """
    view = judged.view
    for test in judged.rule.gain_tests:
        name, needless = test.name, test.kind == "needless"
        decided = needless and judged.label in ("phantom", "mixed")
        elsewhere = test.kind in ("declared", "aside") or test.asked == REGRADED
        if elsewhere or decided or standing(test, view) != "found":
            continue
        rows = [row for row in sources_of(test, view) if row.todo]
        named = smallest([row.source for row in rows])
        if test.asked == REFUSED and named:
            continue  # `not_allowed` names them
        if not named and (since := _allowed_since(name, view)):
            yield told_gap(
                "allowed-since",
                kinds=", ".join(map(printable, since)),
                test=name,
                allow=allow_flags(view.terms.allowed),
            )
            continue
        known = {
            row.source: f"{row.said}, {row.source}" if row.said else row.source for row in rows
        }
        listed = ", ".join(str(known[one]) for one in named)
        cure, free = cure_of(test, *named), "no new runs to say so"
        if needless:
            cure += _harm_of(name, view)
            free = "one more world for both sides"
        told = test.found or f"runs through {test.excludes}{{names}}"
        asks = told.endswith("?")
        names = (listed or "actions") if asks else f" ({listed})" if listed else ""
        yield told_gap(
            "found-elsewhere",
            told=f"{told.format(names=names)}{'' if asks else '.'}{_by_rules(rows)}",
            cure=capital(cure),
            cost=free,
        )


def _by_rules(rows: Sequence[Source]) -> str:
    """What is known of the lines of code among these sources, a sentence each. A kind of action
    may be called `rule` too; it has no words.
    """
    rules = (row for row in rows if row.said and (row.source or "").startswith(RULE))
    told = (row.reason.rpartition(": ")[0] for row in rules)
    return "".join(f" {one}." for one in told)


def _allowed_since(name: str, view: View) -> tuple[str, ...]:
    """What is allowed by now, and was not left out when this was measured."""
    terms = view.terms
    about = (
        one.about.split(JOINED)
        for one in view.findings
        if one.question.startswith(f"{name}.") and one.about and terms.exempt(one)
    )
    kinds = {kind for kinds in about for kind in kinds if kind in terms.allowed}
    return tuple(sorted(kinds)) if name in terms.on_terms else ()


def _harm_of(name: str, view: View) -> str:
    """What keeps a find from being an accusation: the alteration may do harm."""
    placebo = view.evidence(f"{name}.placebo_over_bar")
    if placebo is None or not reaches_above_zero(placebo):
        return ""
    return (
        f"; that {name} does harm by itself is not excluded: what it takes from the policy"
        f" before training, minus a fifth of the gain, is {in_points(placebo)}"
    )


def _by_regrading(view: View, kind: str) -> bool:
    """Whether a shortcut is one because its wins do not stand: nothing that could be allowed."""
    answer = view.all_evidence(SHORTCUT).get(kind)
    return answer is not None and "wins_lost" in answer.diagnostics


def loosely_carried(judged: Judgement) -> Iterator[Gap]:
    """What other sources carry, known too loosely to say that it is at most a fifth."""
    if judged.ruling.clause.id != "carried-too-wide":
        return
    for test in judged.rule.gain_tests:
        evidence = judged.view.evidence(test.asked)
        if evidence is None or standing(test, judged.view) != "loose":
            continue
        if test.kind != "declared":
            yield told_gap(
                "loosely-carried",
                what=test.loose or test.excludes,
                test=test.name,
                told=in_points(evidence),
                more=more_runs(evidence),
                cost=clearing_cost(evidence, judged.view),
            )


def answered_yes(view: View, question: str) -> list[str]:
    """What a yes-or-no question is answered with yes about."""
    return sorted(
        about or "an action"
        for about, e in view.all_evidence(question).items()
        if e.estimate >= MOST
    )


def reaches_above_zero(evidence: Evidence) -> bool:
    """Whether the interval holds a number above zero."""
    return evidence.interval is not None and evidence.interval.high > 0


GAPS = tomllib.loads((files(__package__) / "gaps.toml").read_text(encoding="utf-8"))
APART = ("prompt", "rule")  # what stands before a field of the prompt, or a line of code
LONGEST_REASON = 300


def told_gap(name: str, /, **words: Any) -> Gap:
    """The gap of this name in `gaps.toml`, with what its sentences leave open."""
    return Gap(**{field: text.format(**words) for field, text in GAPS[name].items()})


def named_gaps(judged: Judgement) -> tuple[Gap, ...]:
    """Everything that could not be told apart, the most pressing first, nothing twice."""
    first: dict[str, Gap] = {}
    for tell in FROM_LOGS if judged.bounded else FROM_RUNS:
        for gap in tell(judged):
            first.setdefault(gap.text, gap)
    return tuple(first.values())


def closed(judged: Judgement) -> Iterator[Gap]:
    """A settled phantom: what a person measures next is no more of the same."""
    if judged.label != "phantom":
        return
    found = (one for test in judged.rule.gain_tests for one in sources_of(test, judged.view))
    rows = {one.source: one for one in found if one.todo and one.status == "tested"}
    named = [rows[one].told for one in smallest(rows)][:NAMED]
    yield told_gap("closed", carriers=joined(named, "what carries the gain"))


def missing(
    judged: Judgement, view: View | None = None, ruling: Ruling | None = None
) -> Iterator[Gap]:
    """What nobody measured, with the cure that the instrument itself named, and
    how to accept it.
    """
    view, ruling = view or judged.view, ruling or judged.ruling
    for question in dict.fromkeys(condition.question for condition in ruling.unknown):
        waivable = ruling.clause.label == "genuine"
        yield _unanswered(view, question, judged.rule.test_of(question) if waivable else None)


def _unanswered(view: View, question: str, test: GainTest | None) -> Gap:
    name, answers = view.name(question), view.answers(question)
    accept = f" Or accept that it is not tested: `--accept {test.name}`." if test else ""
    for answer in answers.values():
        if isinstance(answer, Undefined):
            reason, cure = (
                printable(text, LONGEST_REASON) for text in (answer.reason, answer.cure)
            )
            return Gap(text=reason, measurement=cure + accept, cost=f"one answer to `{name}`")
    if answers:
        return told_gap("not-at-level", name=name, level=100 * view.level)
    if question == REFUSED and view.terms.allowed:
        return told_gap(
            "not-refused",
            kinds=printable(view.terms.key or ""),
            allow=allow_flags(view.terms.allowed),
            accept=accept,
        )
    left_out = test is not None and not any(map(view.answers, test.questions))
    what = (
        f"The gain test {test.name} was left out."
        if test and left_out
        else f"`{name}` was not measured."
    )
    return told_gap("left-out", what=what, accept=accept)


def too_wide(judged: Judgement) -> Iterator[Gap]:
    """The gain or its genuine part (from logs: under the assumption) known too loosely."""
    if judged.label != "undetermined":  # every value in the intervals gives that label
        return
    view, widest = judged.view, judged.rule.widest
    looked_at = (
        {G: "The gain", ASSUMED[G0]: "The genuine part under the assumption"}
        if judged.bounded
        else {G: IN_WORDS[G], G0: IN_WORDS[G0]}
    )
    for question, name in looked_at.items():
        evidence = scrubbed(view, question)
        width = statistic(evidence, "half_width", view.level)
        if evidence is not None and width is not None and width > widest:
            yield told_gap(
                "too-wide",
                name=name,
                width=100 * width,
                widest=100 * widest,
                more="Logs of more tasks." if judged.bounded else more_runs(evidence),
                cost=cost(evidence, widest),
            )


def unsettled(judged: Judgement) -> Iterator[Gap]:
    """Comparisons of the rule whose outcome the intervals leave open, the cheapest first."""
    if judged.ruling.clause.id != "unsettled":
        return
    straddling = []
    for question, value in judged.rule.boundaries:
        evidence = judged.view.evidence(question)
        interval = evidence and evidence.interval
        if evidence and interval and interval.low < value < interval.high:
            distance = abs(evidence.estimate - value)
            ratio = interval.half_width / max(distance, 1e-12)
            straddling.append((ratio, question, value, evidence, distance))
    for _, question, value, evidence, distance in sorted(straddling, key=lambda row: row[:3]):
        yield told_gap(
            "unsettled",
            name=IN_WORDS[question],
            told=in_points(evidence),
            value=100 * value,
            more=more_runs(evidence),
            cost=cost(evidence, distance),
        )


def broken(judged: Judgement) -> Iterator[Gap]:
    """The label turns on whether broken scrubbed runs count as failures."""
    view, ruling, second = judged.view, judged.ruling, judged.second
    if ruling.label == second.label:
        return
    twins = View(view.findings, judged.rule.level, dict(judged.rule.imputed), view.terms)
    unanswered = list(missing(judged, twins, second))
    yield from unanswered
    if unanswered:
        return
    breakage = view.evidence("breakage")
    how_often = (
        f" ({points(breakage.estimate, 1)} points more after training than before)"
        if breakage
        else ""
    )
    yield told_gap(
        "broken",
        how_often=how_often,
        first=ruling.label,
        second=second.label,
        cost=f"about {plural(breakage.n, 'episode')}" if breakage else "one run of both sides",
    )


def harm(judged: Judgement) -> Iterator[Gap]:
    """What vanishes on scrubbing may be harm that scrubbing does: its placebo
    lost something too.
    """
    over, placebo = _surely_over(judged.view), judged.view.evidence(PLACEBO)
    if over and judged.ruling.label != "phantom" and placebo and reaches_above_zero(placebo):
        yield told_gap(
            "harm", placebo=in_points(placebo), cost=cost(placebo, max(-placebo.estimate, 0.0))
        )


def unexplained(judged: Judgement) -> Iterator[Gap]:
    """What scrubbing shows but no chain of evidence explains."""
    shares = judged.view.all_evidence(WINS)
    if _surely_over(judged.view) and judged.ruling.clause.id in ("mixed", "unsettled"):
        yield told_gap("unexplained", credited=percent(sum(e.estimate for e in shares.values())))


def _surely_over(view: View) -> bool:
    """Whether at least four fifths of the gain surely vanish on scrubbing."""
    low = statistic(view.evidence(OVER), "low", view.level)
    return low is not None and low >= 0


def rivals(judged: Judgement) -> Iterator[Gap]:
    """From logs: the label turns on what a credited win would have been worth
    without the shortcut.
    """
    if judged.ruling.label != judged.second.label:
        yield told_gap("rivals", first=judged.ruling.label, second=judged.second.label)


def doubt(judged: Judgement) -> Iterator[Gap]:
    """From logs: attempts that leave open whether the gain is genuine, where the
    credited wins alone would not.
    """
    outer, inner = judged.view.evidence(G0), judged.view.evidence(f"{G0}_inner")
    if judged.ruling.clause.id != "unsettled" or not (outer and inner):
        return
    if outer.interval and inner.interval and outer.interval.low < inner.interval.low:
        yield told_gap(
            "doubt",
            inner=point_range(inner.interval.low, inner.interval.high, 1),
            outer=point_range(outer.interval.low, outer.interval.high, 1),
        )


def not_run(judged: Judgement) -> Iterator[Gap]:
    """From logs: a label that rests on an assumption, which a re-run would test."""
    rests = judged.label in (*RESTS_ON_ASSUMPTION, "undetermined")
    if rests and judged.view.evidence(G) is not None:
        yield told_gap("not-run")


def unused_terms(judged: Judgement) -> Iterator[Gap]:
    """An allowed kind that no run tried: mistyped, or out of place. Of a field
    (`prompt:hint`, `look:paper:price`) only the kind before it is known.
    """
    joint = judged.view.answers(REFUSED).get(None)
    tried = joint.diagnostics.get("tried") if isinstance(joint, Evidence) else None
    if isinstance(tried, str):
        known = {*tried.split(", "), *APART}
        for kind in judged.view.terms.allowed:
            parts = {part.split(":")[0] for part in kind.split(JOINED) if ":" in part} or {kind}
            if not parts <= known:
                yield told_gap(
                    "unused-term", kind=printable(kind), tried=printable(tried, LONGEST_REASON)
                )


def seeds(judged: Judgement) -> Iterator[Gap]:
    """One training run says nothing about the next."""
    gain = judged.view.evidence(G)
    if gain is not None and gain.diagnostics.get("seeds") == 1:
        yield told_gap("seeds")


def lost_runs(judged: Judgement) -> Iterator[Gap]:
    """Many runs without a score."""
    gain = judged.view.evidence(G)
    lost = None if gain is None else gain.diagnostics.get("runs_dropped")
    if gain is None or not isinstance(lost, int):
        return
    if max(lost / max(gain.n + lost, 1), *lost_shares(judged.view)) > LOST_SHARE:
        yield told_gap("lost-runs", runs=plural(lost, "run"), cost=plural(lost, "episode"))


def silent_runs(judged: Judgement) -> Iterator[Gap]:
    """Runs that the token budget kept from acting or cut off; where there are
    too many the gain is not measured.
    """
    before, after = (stated(judged.view, f"never_acted_{side}") for side in ("before", "after"))
    if before or after:
        yield told_gap("never-acted", before=percent(before), after=percent(after))
    before, after = (stated(judged.view, f"cut_off_{side}") for side in ("before", "after"))
    if max(before, after) > LOST_SHARE:
        yield told_gap("cut-off", before=percent(before), after=percent(after))


FROM_RUNS = (
    closed,
    rest_open,
    not_allowed,
    found_elsewhere,
    harm,
    missing,
    lost_runs,
    too_wide,
    loosely_carried,
    unsettled,
    broken,
    unexplained,
    unused_terms,
    seeds,
    silent_runs,
)
FROM_LOGS = (rivals, missing, lost_runs, too_wide, doubt, not_run, seeds)


WEIGHED = ("score", "gain", "breakage", "behaviour", "ablation")  # beside the gain tests


def decide(
    findings: Iterable[Evidence | Undefined],
    rule: Rule | None = None,
    *,
    allowed: Sequence[str] = (),
    accepted: Sequence[str] = (),
) -> Verdict:
    """The verdict on findings. Missing evidence makes it `undetermined` with a
    gap, never an error.
    """
    told, rule = tuple(findings), rule or standard_rule()
    terms = Terms(
        allowed=tuple(sorted(set(allowed))),
        accepted=rule.accepted(accepted),
        on_terms=tuple(test.name for test in rule.gain_tests if test.on_terms),
    )
    weighed = {*WEIGHED, *(test.name for test in rule.gain_tests)}
    judged = _judged(told, rule, terms)
    view, rule, bounded, label = judged.view, judged.rule, judged.bounded, judged.label
    listed, open_gaps = sources(view, rule), named_gaps(judged)
    total = view.evidence(G)
    from_logs = total is not None and total.diagnostics.get("basis") == "logs alone"
    shares = {about: estimate_of(evidence) for about, evidence in view.wins().items()}
    return Verdict(
        label=label,
        reason_code=_reason_code(judged),
        basis="logs" if bounded or from_logs else "re-run",
        gain=estimate_of(total),
        genuine_gain=estimate_of(scrubbed(view, G0)),
        phantom_gain=estimate_of(scrubbed(view, P)),
        parts=parts(view, rule),
        score_before=estimate_of(view.evidence("score.before")),
        score_after=estimate_of(view.evidence("score.after")),
        share_of_wins_via_channel={
            printable(about): share
            for about, share in shares.items()
            if about is not None and share is not None
        },
        sources=listed,
        allowed=terms.allowed,
        accepted=terms.accepted,
        sentence=sentence(judged, open_gaps, listed),
        reasons=reasons(judged),
        gaps=open_gaps,
        decided_by=judged.ruling.clause.id
        if label == judged.ruling.label
        else ("assumptions" if bounded else "breakage"),
        rule=rule.identity_given(terms.allowed, terms.accepted),
        evidence=tuple(
            sorted(
                finding.id
                for finding in told
                if isinstance(finding, Evidence) and finding.question.split(".")[0] in weighed
            )
        ),
    )


def _judged(told: tuple[Evidence | Undefined, ...], rule: Rule, terms: Terms) -> Judgement:
    """The walk on both decompositions."""
    bounded = is_bounded(told)
    rule = for_logs(rule) if bounded else rule
    everything = (*told, *as_scrubbed(told, rule.level))
    view = View(everything, rule.level, terms=terms)
    declared = {test.name for test in rule.gain_tests if test.kind == "declared"}
    whole = {G0: G} if declared & {*terms.accepted} and view.evidence(G0) is None else {}
    return Judgement(
        view=view,
        rule=rule,
        ruling=walk(View(everything, rule.level, whole, terms), rule),
        second=walk(View(everything, rule.level, {**dict(rule.imputed), **whole}, terms), rule),
        bounded=bounded,
    )


def is_current(verdict: Verdict, rule: Rule | None = None) -> bool:
    """Whether a verdict was given by this rule (by default the standard one) as it is now."""
    rule = rule or standard_rule()
    return verdict.rule in {
        one.identity_given(verdict.allowed, verdict.accepted) for one in (rule, for_logs(rule))
    }


def is_bounded(findings: Iterable[Evidence | Undefined]) -> bool:
    """Whether bounds and an assumption stand for a scrubbed world: somebody
    asked logs for the genuine part.
    """
    return any(finding.question == ASSUMED[G0] for finding in findings)


def _reason_code(judged: Judgement) -> ReasonCode | None:
    """Why nothing is settled: something was found, a test is missing, intervals
    are too wide, or none of these, in this order.
    """
    ruling, rule = judged.ruling, judged.rule
    if judged.label != "undetermined":
        return None
    if ruling.clause.id == "source-not-allowed":
        return "source-not-allowed"
    if (ruling.unknown or ruling.clause.id == "too-wide") and _found(judged):
        return "source-not-allowed"  # more tasks would not settle what was found
    if any(
        rule.test_of(condition.question)
        for one in (ruling, judged.second)
        for condition in one.unknown
    ):
        return "family-not-tested"
    return "too-wide" if ruling.clause.id in ("too-wide", "carried-too-wide") else "unsettled"


def _found(judged: Judgement) -> bool:
    """Whether more than a fifth was shown to run through what nobody allowed."""
    return bool(answered_yes(judged.view, THROUGH)) or any(
        standing(test, judged.view) == "found"
        for test in judged.rule.gain_tests
        if test.kind != "declared"
    )
