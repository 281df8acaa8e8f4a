"""The verdict in words. Names and sentences that come with findings are data:
made printable, cut short.

The headline says, in this order: the label and what it is given, the score,
what survived scrubbing, what was found, what was tested with which limit, how
the wins came about, what is not settled, and what was not excluded.
"""

import re

from forensics.layers.decomposition import GENUINE_BAR
from forensics.phrases import (
    capital,
    joined,
    moved,
    percent,
    plural,
    point_range,
    points,
    printable,
)
from forensics.records import Evidence, GainTest, Undefined
from forensics.records.verdict import Gap, Label, Source
from forensics.verdict.parts import carried_by, shown_phantom
from forensics.verdict.rule import (
    ASSUMED,
    COLLAPSE,
    CUT_OFF,
    ECHO,
    G0,
    INTERVENTIONS,
    MOST,
    OVER,
    PLACEBO,
    SHORTCUT,
    UNDER,
    WINS,
    G,
    P,
    Rule,
)
from forensics.verdict.sources import held_by, open_tests
from forensics.verdict.view import Judgement, View, scrubbed, standing

LONGEST_SENTENCE = 400
HASH = re.compile(r"[0-9a-f]{10,}")
CHANNELS = 4  # at most, in the headline
WORTH_NAMING = 0.05  # share of wins below which a channel is left out of the headline
LOST_SHARE = 0.05  # of a side's runs without a score, beyond which the headline says so
WINS_READ = "logs.wins_read"
HARM = "scrubbing.placebo"
IN_WORDS = {
    G: "Gain",
    G0: "Genuine part (both sides scrubbed)",
    P: "Phantom part (what vanishes)",
    OVER: "Phantom part minus 0.8 of the gain",
    UNDER: "Phantom part minus 0.2 of the gain",
    HARM: "Placebo (what scrubbing takes from the policy before training)",
    PLACEBO: "Placebo minus 0.2 of the gain",
    f"{G0}_imputed": "Genuine part with breakage imputed",
    f"{P}_imputed": "Phantom part with breakage imputed",
    "breakage": "Scrubbed runs that never hand in, after minus before",
}
ASSUMING = (
    "assuming that each win credited to a shortcut would else have gone as the before policy's"
    " other runs of its task"
)
RESTS_ON_ASSUMPTION = ("phantom", "mixed")
DEGENERATE = "behaviour.degenerate_runs"
FROM_LOGS = (
    G,
    G0,
    P,
    f"{G0}_inner",
    f"{P}_inner",
    ASSUMED[G0],
    ASSUMED[P],
    f"{G0}_rival",
    f"{P}_rival",
    WINS,
    ECHO,
    COLLAPSE,
    DEGENERATE,
)
TRAPS = (ECHO, COLLAPSE)
ONE_LOG = "There is no log of the policy before training, so there is no gain."


def sentence(judged: Judgement, named: tuple[Gap, ...], listed: tuple[Source, ...]) -> str:
    """The headline; for `undetermined` the first gap, and no cause."""
    view, label, bounded = judged.view, judged.label, judged.bounded
    settled, profile = label != "undetermined", bounded and is_profile(view)
    rule = judged.rule
    own = "" if rule.is_standard else f" by the rule '{rule.version}', not the standard one"
    cleared = _accepted_and_cleared(judged)
    leads, lead = (None, "") if settled else _lead(view, rule, listed)
    given = _given(judged, cleared)
    parts = [f"Verdict: {label.upper()}{own}{'' if lead else given}.", lead]
    if lead and given:
        parts.append(f"This is{given.removeprefix(',')}.")
    if cleared:
        was = "was" if len(cleared) == 1 else "were"
        parts.append(f"{_joined(cleared)} {was} accepted untested, but {was} tested and cleared.")
    if bounded:
        parts.append("From logs alone.")
    if profile:
        parts.append("There is one set of logs: a profile of what the policy did, without a gain.")
    else:
        parts += [
            score_told(view),
            lost_told(view),
            _bounds(view) if bounded else _split(label, view, rule),
            _tested(view, rule, listed, leads),
        ]
    if not profile:  # of one set the report counts the wins of each channel
        parts.append(channel_told(view))
    if (cut := view.evidence(CUT_OFF)) is not None and cut.estimate >= WORTH_NAMING:
        parts.append(printable(cut.summary, LONGEST_SENTENCE))
    if label == "genuine":
        parts.append(_enough_as_before(view, rule))
    if bounded and label in RESTS_ON_ASSUMPTION:
        parts.append(f"The label {label} rests on that assumption.")
    if not settled and named and not profile:
        parts.append(f"Not settled: {named[0].text}")
    if not profile:
        parts.append(not_excluded(listed, rule))
    return " ".join(part for part in parts if part)


def _accepted_and_cleared(judged: Judgement) -> tuple[str, ...]:
    """The accepted gain tests that were made all the same, and found nothing."""
    return tuple(
        test.name
        for test in judged.rule.gain_tests
        if test.name in judged.view.terms.accepted and standing(test, judged.view) == "cleared"
    )


def _given(judged: Judgement, cleared: tuple[str, ...]) -> str:
    """What the reader took upon themselves."""
    terms, parts = judged.view.terms, []
    untested = tuple(name for name in terms.accepted if name not in cleared)
    if terms.allowed:
        parts.append(
            f"{_joined(terms.allowed)} {'is' if len(terms.allowed) == 1 else 'are'} allowed"
        )
    if untested and untested == judged.rule.accepted([INTERVENTIONS]):
        parts.append("no intervention need be made")
    elif untested:
        parts.append(f"{_joined(untested)} need not be tested")
    return f", given that {' and that '.join(parts)}" if parts else ""


def _joined(names: tuple[str, ...]) -> str:
    return joined([*map(printable, names)])


def not_excluded(listed: tuple[Source, ...], rule: Rule) -> str:
    """What the gain might still be, by the gain tests that were not made."""
    told = _open_names(listed, rule)
    return f"Not excluded: {', '.join(told)}." if told else ""


def _open_names(listed: tuple[Source, ...], rule: Rule) -> list[str]:
    missing = set(open_tests(listed))
    return list(dict.fromkeys(test.excludes for test in rule.gain_tests if test.name in missing))


def is_profile(view: View) -> bool:
    """Whether there is one set of logs only, and so nothing that a rule could judge."""
    answer = view.answers(G).get(None)
    return isinstance(answer, Undefined) and answer.reason == ONE_LOG


def score_told(view: View) -> str:
    """From where to where the score went, with the interval of the gain."""
    gain, before, after = (
        view.evidence(question) for question in (G, "score.before", "score.after")
    )
    if gain is None:
        return "The gain was not measured."
    sure = gain.interval is not None and not gain.interval.contains(0.0)
    ends = (before.estimate, after.estimate) if before and after else None
    told = moved(gain.estimate, sure, ends)
    return f"The score {told} ({points(gain.estimate)} points{_range(gain, named=True)})."


def lost_told(view: View) -> str:
    """Of runs without a score, where they are many."""
    before, after = lost_shares(view)
    if max(before, after) <= LOST_SHARE:
        return ""
    return (
        f"{capital(percent(before))} of the runs before training and {percent(after)} of those"
        " after it errored or have no score; the intervals take each of them as lost and as won."
    )


def lost_shares(view: View) -> tuple[float, float]:
    """The share of runs without a score before and after training, in the world with most."""
    return stated(view, "lost_before"), stated(view, "lost_after")


def stated(view: View, name: str) -> float:
    """A share of runs that the gain states beside itself, 0 where it does not."""
    gain = view.evidence(G)
    value = None if gain is None else gain.diagnostics.get(name)
    return value if isinstance(value, float) else 0.0


def _range(evidence: Evidence, *, named: bool, decimals: int = 0) -> str:
    if evidence.interval is None:
        return ", no interval"
    span = point_range(evidence.interval.low, evidence.interval.high, decimals)
    return f", {100 * evidence.interval.level:g} % interval {span}" if named else f" ({span})"


def _split(label: Label, view: View, rule: Rule) -> str:
    """The gain without its shortcuts. Which share is phantom is said only where
    the label says that some is, and scrubbing alone shows it.
    """
    genuine, total, phantom = (scrubbed(view, question) for question in (G0, G, P))
    if genuine is None:
        return "The world declares no shortcut." if view.evidence(G0) else ""
    names = genuine.diagnostics.get("scrubbed")
    taken = printable(names) if isinstance(names, str) else "every known shortcut"
    if taken == "scrubbed":  # logs whose channels nobody names
        taken = "every known shortcut"
    share = 0.0  # of a gain that is surely a gain
    scrubbing = label in ("phantom", "mixed") and shown_phantom(view, rule) is None
    if scrubbing and phantom and total and total.interval:
        share = phantom.estimate / total.estimate if total.interval.low > 0 else 0.0
    part = "all" if share >= 1 else percent(share)
    return (
        f"With {taken} scrubbed for both, the gain is {points(genuine.estimate)} points"
        f"{_range(genuine, named=False)}{f': {part} of it is phantom' if share > 0 else ''}."
    )


def _bounds(view: View) -> str:
    """From logs: the bounds of the genuine part, and the estimate under the assumption."""
    bounds, assumed = view.evidence(G0), view.evidence(ASSUMED[G0])
    if bounds is None or bounds.interval is None or assumed is None or assumed.interval is None:
        return ""
    ends = point_range(bounds.interval.low, bounds.interval.high).replace(" to ", " and ")
    untold = assumed.diagnostics.get("wins_untold")
    careful = (
        f", counting {plural(untold, 'win')} after training that could not be looked into like"
        " these"
        if isinstance(untold, int) and untold
        else ""
    )
    return (
        f"The genuine part lies between {ends} points; {ASSUMING}{careful}, it is"
        f" {points(assumed.estimate)}"
        f" ({point_range(assumed.interval.low, assumed.interval.high)})."
    )


def _lead(view: View, rule: Rule, listed: tuple[Source, ...]) -> tuple[GainTest | None, str]:
    """The test of which a named source surely carries more than a fifth, the one that carries
    most, and its sentence; `None` where there is none.
    """
    named = {one.family for one in listed if one.source and one.todo}
    found = [
        (carried, test)
        for test in rule.gain_tests
        if test.name in named and test.kind not in ("declared", "aside")
        if standing(test, view) == "found" and (carried := carried_by(test, view)) is not None
    ]
    if not found:
        return None, ""
    (carried, test) = max(found, key=lambda one: one[0][0])
    first, last = view.evidence("score.before"), view.evidence("score.after")
    rise = "gain that survives scrubbing"
    if scrubbed(view, G0) is None:
        rise = "gain"
        if first and last:
            rise = f"rise from {percent(first.estimate)} to {percent(last.estimate)}"
    span = point_range(carried[1], carried[2])
    held = held_by(test, listed)
    return test, f"{_plain(carried[0])} ({span}) of the {rise} {held} ({test.name})."


def _tested(
    view: View, rule: Rule, listed: tuple[Source, ...], told: GainTest | None = None
) -> str:
    """What every gain test but the one already `told` showed of the gain that survives: the
    most that each kind of source may carry, and what was found.
    """
    missing, most = set(_open_names(listed, rule)), dict[str, float]()
    found, unlocked = [], _unlocked(view, rule)
    missing |= {one.excludes for one in rule.gain_tests if standing(one, view) == "found"}
    for test in rule.gain_tests:
        stands = standing(test, view)
        if test.kind in ("declared", "aside"):
            continue
        carried = carried_by(test, view) if stands in ("cleared", "loose", "found") else None
        if carried is None or test == told:
            continue
        if stands == "found":
            span = point_range(carried[1], carried[2])
            held = held_by(test, listed)
            found.append(f"{_plain(carried[0])} of it ({span}) {held} ({test.name})")
        elif test.excludes not in missing:
            most[test.excludes] = max(most.get(test.excludes, 0.0), carried[2])
    limits = [
        f"{_plain(value) if place == 0 else points(value).lstrip('+')} from {what}"
        for place, (what, value) in enumerate(most.items())
    ]
    of_what = "besides" if found or told else "of that"
    parts = [f"{of_what}, at most {', '.join(limits)}"] if limits else []
    return " ".join(f"{capital(part)}." for part in (*found, *parts, *unlocked))


def _enough_as_before(view: View, rule: Rule) -> str:
    """What is shown that is enough to win by alone, for the policy before training as well: it
    clears the test, and only the reader knows whether it is the job.
    """
    whole = view.evidence(G0) or view.evidence(G)
    bar = GENUINE_BAR * max(whole.estimate, 0.0) if whole else 0.0
    told = {
        about: enough
        for test in rule.gain_tests
        for about, one in view.all_evidence(test.shared).items()
        if about and "newly" in one.diagnostics
        if isinstance(enough := one.diagnostics.get("enough"), float) and enough > bar
    }
    if not told:
        return ""
    most = max(told, key=lambda about: told[about])
    more = f" (and of {len(told) - 1:,} more)" if len(told) > 1 else ""
    return (
        f"`{printable(most, 100)}` alone is enough to win by, before training as after; look"
        f" whether that{more} is part of the job, as this verdict takes it to be."
    )


def _plain(value: float) -> str:
    """Points without a sign: `12 points`."""
    told = points(value).lstrip("+")
    return f"{told} point{'' if told == '1' else 's'}"


def _unlocked(view: View, rule: Rule) -> list[str]:
    """Skill that was there before, or that a coin brings as well."""
    told = []
    for test in rule.gain_tests:
        answer = view.evidence(test.shared) if test.unlocked else None
        if answer is not None and answer.interval is not None and answer.interval.low > 0:
            span = point_range(answer.interval.low, answer.interval.high)
            told.append(test.unlocked.format(f"{_plain(answer.estimate)} ({span}) of it"))
    return told


def channel_told(view: View) -> str:
    """How the wins came about, with an example: by re-runs through the channel of most wins, by
    logs through each. No share stands for wins that nobody could look into.
    """
    wins = view.wins()
    shares = sorted(
        ((about, one) for about, one in wins.items() if about is not None),
        key=lambda item: (-item[1].estimate, item[0]),
    )
    if not shares or shares[0][1].estimate < WORTH_NAMING:
        return ""
    if None not in wins:
        (name, top) = shares[0]
        told = f"{capital(percent(top.estimate))} of the wins came through {printable(name)}"
        example = _example(top, "; first seen in task {task}, at step {step}")
        return f"{told}{example}."
    named = [(name, one) for name, one in shares if one.estimate >= WORTH_NAMING][:CHANNELS]
    example = _example(shares[0][1], "; for example in task {task}, at step {step}")
    unread = view.answers(WINS_READ).get(None)
    if isinstance(unread, Undefined):
        through = _joined(tuple(name for name, _ in named))
        return f"Wins came through {through}{example}. No share is told: {unread.reason}"
    told = _joined(tuple(f"{_least(one)} through {printable(name)}" for name, one in named))
    whole = wins[None]
    beside = f", {_least(whole)} in all" if len(shares) > 1 else ""
    return f"{capital(told.replace(' through', ' of the wins came through', 1))}{beside}{example}."


def _least(share: Evidence) -> str:
    """A share of the wins; those of which the log cannot tell come on top."""
    open_ones = share.summary.lower().startswith("at least ")
    return f"{'at least ' if open_ones else ''}{percent(share.estimate)}"


def _example(share: Evidence, words: str) -> str:
    """Where one such win can be looked at, `""` where that is not known, or the task is named by a
    hash, which tells nobody anything.
    """
    step, task = (share.diagnostics.get(f"example_{what}") for what in ("step", "task"))
    if step is None or task is None or HASH.search(str(task)):
        return ""
    return words.format(step=step, task=printable(str(task)))


def reasons(judged: Judgement) -> tuple[str, ...]:
    """The clause that decided, then every number it could rest on."""
    view = judged.view
    if judged.bounded:
        said = [
            e.summary
            for question in FROM_LOGS
            for e in view.all_evidence(question).values()
            if question not in TRAPS or e.estimate >= MOST  # a trap that is none needs no word
        ]
        return (*decided_by(judged), *(printable(s, LONGEST_SENTENCE) for s in said if s))
    tests = [test for test in judged.rule.gain_tests if test.kind != "declared"]
    named = IN_WORDS | {test.asked: test.number for test in tests if test.number}
    numbers = [
        f"{name}: {points(evidence.estimate, 1)} points{_range(evidence, named=True, decimals=1)}."
        for question, name in named.items()
        if (evidence := scrubbed(view, question))
    ]
    told_by = (test.shared if test.number else test.asked for test in tests)
    asked = ("gain.channel", WINS, *told_by, ECHO, COLLAPSE, SHORTCUT)
    told = [
        printable(evidence.summary, LONGEST_SENTENCE)
        for question in asked
        for evidence in (view.wins() if question == WINS else view.all_evidence(question)).values()
        if evidence.summary and (question != SHORTCUT or evidence.estimate >= MOST)
    ]
    return (*decided_by(judged), *numbers, *told)


def decided_by(judged: Judgement) -> tuple[str, ...]:
    """The clause that decided, and what the twin says where that is another label."""
    ruling, second, bounded = judged.ruling, judged.second, judged.bounded
    where = judged.rule.title + (" for logs" if bounded else "")
    other = f"{second.label} (clause {second.clause.id})"
    if ruling.label != second.label and not bounded:
        return (
            f"{where}: clause {ruling.clause.id} gives {ruling.label} on all runs, but {other} with"
            " breakage imputed.",
        )
    if bounded and is_profile(judged.view):
        first = f"{where} judges a gain, and one set of logs has none."
    elif ruling.unknown:
        first = (
            f"{where} stops at clause {ruling.clause.id} ({ruling.clause.text}): what it needs was"
            " not measured."
        )
    else:
        first = f"{where}, clause {ruling.clause.id}: {ruling.clause.text}."
    if ruling.label == second.label:
        return (first,)
    return first, f"Under the rival assumption it would be {other}."
