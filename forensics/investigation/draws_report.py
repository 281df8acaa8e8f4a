"""What `forensics check-server` says of a server's draws, in plain text."""

from collections.abc import Iterator, Mapping
from math import exp, inf
from typing import Final

from forensics.investigation.served_draws import GAPS, RATE, Drawn, Verdict

MEANING: Final[Mapping[Verdict, str]] = {
    "draws it": "The server tells this policy's log-probabilities and draws from it, as far as"
    " these draws show.",
    "tells and draws another": "The server tells another policy's log-probabilities, and its draws"
    " are another's.",
    "tells another": "The server tells another policy's log-probabilities; whether it draws from"
    " that one, these draws do not show.",
    "tells it but draws another": "The server tells this policy's log-probabilities and draws from"
    " another distribution.",
    "not enough samples": "Nothing speaks against the server, but departures that matter would not"
    " have been seen.",
}


def report(found: Drawn) -> str:
    """The check in plain text."""
    gap = found.gap.get("sampler_gap", inf)
    lines = [
        f"{found.verdict}. {MEANING[found.verdict]}",
        "",
        f"Told: differs from the checkpoint by {gap:.2g} nats a token"
        f" ({found.drawn} tokens; arithmetic alone: {found.floor:.2g}, at fault above"
        f" {GAPS * found.floor:.2g}).",
    ]
    lines += [
        f"  from {name.removeprefix('sampler_gap_from_')} tokens of context: {value:.2g}"
        for name, value in found.gap.items()
        if name.startswith("sampler_gap_from_")
    ]
    lines += [
        f"Drawn: the bets hold {_times(found.log_e)} ({found.tokens} tokens; {1 / RATE:g} or more"
        f" happens to a server that draws it in at most {RATE:.0%} of checks, at a chi-squared of"
        f" up to {found.delta**2:.2g} a token by arithmetic).",
        f"  Its tokens surprise the checkpoint {found.excess:+.2g} nats a token more than its own"
        f" would ({found.deviations:+.1f} standard deviations).",
        f"  They look most like: {found.likest.departure.words} ({_times(found.likest.log_e)}).",
    ]
    if found.cut is not None:
        lines.append(f"  Cut-off sampling: no token lies outside of {found.cut.words}.")
    return "\n".join([*lines, "", *_silences(found)])


def _silences(found: Drawn) -> Iterator[str]:
    yield "What would have been seen in 9 of 10 checks (nats and total variation a token):"
    for one in found.seen:
        if one.departure.kind == "taught":
            continue
        needs = "tolerated as arithmetic" if one.needed is None else f"needs {one.needed} tokens"
        said = "seen" if one.within(found.tokens) else "NOT seen"
        yield (f"  {said}: {one.departure.words} ({one.kl:.2g} nats, {one.distance:.2g}; {needs})")


def _times(log_e: float) -> str:
    return (
        f"{exp(log_e):.3g} times their stake" if log_e < 50 else f"e^{log_e:.0f} times their stake"
    )
