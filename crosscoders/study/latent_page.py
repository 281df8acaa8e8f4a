"""A latent on the page of a diff: its contexts, what it says and what it moves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from crosscoders.study.cause_words import shown
from crosscoders.study.diff_files import Latent
from forensics.phrases import printable
from forensics.records import Fold, TextSpan, TextSpans
from forensics.report import percent, plain

MOST_CONTEXTS: Final = 8  # of a latent
SAID, FEW = 5, 3  # tokens and groups that are named; contexts of each further kind
OTHERS: Final = {
    "middle": "Less active:",
    "weak": "Barely active:",
    "silent": "Silent, at the tokens where it is active elsewhere:",
}


def latent_fold(
    latent: Latent,
    contexts: Sequence[Mapping[str, Any]],
    said: Mapping[str, Any] | None = None,
    cause: Mapping[str, Any] | None = None,
) -> Fold:
    """A latent with its strongest tokens and what stands around them, what else is `said` of
    it (`explanations.json`), and what it moves (`causes.json`). The largest activation among them
    fills the bar.
    """
    top = max((float(value) for one in contexts for value in one["values"]), default=0.0)

    def shown(value: float | None, decimals: int | None = None) -> str:
        return "not known" if value is None else plain(value, decimals)

    specific = f", specific to {latent.specific}" if latent.is_specific else ""
    frequency = "not known" if latent.frequency is None else percent(latent.frequency)
    return Fold(
        title=f"latent {latent.latent}",
        facts=(
            f"{latent.partition}{specific}",
            f"q {shown(latent.q_value)}",
            f"difference {shown(latent.difference)}",
            f"nu {shown(latent.nu_after, 2)} / {shown(latent.nu_before, 2)}",
            f"norm {shown(latent.relative_norm, 2)}",
            f"cosine {shown(latent.decoder_cosine, 2)}",
            f"stability {shown(latent.stability, 2)}",
            f"active {frequency}",
        ),
        blocks=(
            *((moves(cause),) if cause else ()),
            *(sentences_of(said) if said else ()),
            *(context_text(one, max(top, 1e-12)) for one in contexts[:MOST_CONTEXTS]),
            *(other_contexts(said, max(top, 1e-12)) if said else ()),
        )
        if contexts
        else ("Never active here.",),
        anchor=f"latent-{latent.latent}",
    )


def moves(cause: Mapping[str, Any]) -> str:
    """What taking a latent out moves, beside random directions."""
    effect = cause["effect"]
    return (
        f"Taken out it moves the {cause['measure']} by {plain(effect['estimate'], 3)}"
        f" [{plain(effect['low'], 3)}, {plain(effect['high'], 3)}] on {cause['tasks']} tasks;"
        f" {shown(cause, 'random direction', 'activation size')} (p = {cause['p_value']:.3f})."
    )


def sentences_of(said: Mapping[str, Any]) -> Iterator[str]:
    """Its source, the output side, and where it fires, as far as they are known."""
    if source := said.get("source"):
        share = "{estimate} [{low}, {high}]".format_map(
            {name: percent(source["share"][name]) for name in ("estimate", "low", "high")}
        )
        yield (
            f"Source of the gain: {printable(source['name'])}, with {share} of its activity at"
            f" decisions of won runs ({percent(source['of_decisions'])} of these decisions)."
        )
    for way in ("raises", "lowers"):
        if tokens := said.get(way):
            named = ", ".join(f"{token!r} {plain(cosine, 2)}" for token, cosine in tokens[:SAID])
            yield f"At the output it {way} (cosine with the unembedding): {named}."
    often = sorted(said.get("fires", {}).items(), key=lambda one: one[1][1] - one[1][0])
    groups = [
        f"{name} {percent(own)} (of all rows {percent(every)})"
        for name, (own, every) in often[:SAID]
        if own > every
    ]
    if groups:
        yield f"Of the rows where it is active: {', '.join(groups)}."


def other_contexts(said: Mapping[str, Any], top: float) -> Iterator[TextSpans | str]:
    """Beside the strongest: middle, weak, and the same tokens where it is silent."""
    for kind, told in OTHERS.items():
        some = [one for one in said.get("contexts", ()) if one["kind"] == kind][:FEW]
        if some:
            yield told
            yield from (context_text(one, top) for one in some)


def context_text(found: Mapping[str, Any], top: float) -> TextSpans:
    """A context window; `top`: the activation with a full bar. The token that
    was looked up is framed.
    """
    text, spans = "", []
    for place, (token, value) in enumerate(zip(found["tokens"], found["values"], strict=True)):
        start, peak = len(text), place == found["at"]
        text += str(token)
        if value > 0 or peak:
            bar = min(max(float(value), 0.0) / top, 1.0)
            span = TextSpan(start=start, end=len(text), label=plain(value), value=bar, framed=peak)
            spans.append(span)
    return TextSpans(
        who=f"{found['task']}, {found['source']}, token {found['position']} of {found['text']}:"
        f" {plain(float(found['value']))}",
        text=text,
        spans=tuple(spans),
    )
