"""The page of a diff, made of its files: where the change lives, the map of
latents, the latents that separate one kind of step from others with their
tokens, how good the dictionary is, what should show nothing, and what steering
did where there is any.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from crosscoders.study.diff_files import (
    BASELINES,
    CAUSES,
    CONTROLS,
    EXPLANATIONS,
    MOST_LATENTS,
    PAGE,
    PATCHING,
    QUALITY,
    READERS_FILE,
    STEERED,
    STEERED_READER,
    STEERING,
    TOKENS,
    Latent,
    lacks,
    read_latents,
    read_part,
    read_summary,
    separating,
    shown,
    split_sentences,
)
from crosscoders.study.instrument import curves, steering_table
from forensics.phrases import plural, printable
from forensics.records import (
    Figure,
    Fold,
    Page,
    Scalar,
    Section,
    Series,
    Table,
    TextSpan,
    TextSpans,
    estimate_cell,
    write_atomically,
)
from forensics.report import cell, draw_page, percent, plain

BEYOND: Final = {
    "": "yes",
    "random": "not shown: one does as much",
    "spread": "not by more than tasks vary",
    "size": "yes, but hardly at all",
}


def in_play(
    summary: Mapping[str, Any], readers: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """The commands of a diff that there are, each behind what it is for: where nothing was shown
    on stored texts, that.
    """
    held = any(readers[0][of]["holds"] for of in ("cause", "whole")) if readers else False
    asked = {
        "reader_command": "To test the leading reader in play:"
        if held
        else "The leading reader was not shown to move more than rotations on stored texts; to"
        " look in play all the same:",
        "command": "To test latents in play:"
        if summary.get("reported") or summary.get("together")
        else "No latent is reported; to look in play all the same:",
    }
    return {name: (why, summary[name]) for name, why in asked.items() if summary.get(name)}


def readers_section(
    readers: Sequence[Mapping[str, Any]], command: tuple[str, str] | None
) -> Section:
    """What each reader's account moves, taken out of the after model; the leading one first.
    `command`: what tests that one in play, behind what it is for.
    """
    cause = readers[0]["cause"]
    return Section(
        title="What parts the models, taken out",
        hint="Each reader's account of the difference is taken out of the after model while it"
        f" reads texts of other tasks. Moved: the {cause['measure']},"
        f" {plain(cause['unchanged'], 3)}"
        " without. Beyond rotations: more than 20 rotations of equal size move it; of a single"
        " decision at a dose of a quarter (any large change moves one) and as a whole, of whole"
        " answers as a whole. Cost: nats a token on texts without the behaviour, where no action"
        " is decided. The first leads; --reader names another.",
        blocks=(readers_table(readers), *([" ".join(command)] if command else ())),
    )


def readers_table(readers: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each reader, from the leading one on."""

    def back(one: Mapping[str, Any]) -> str:
        return "not measured" if one["back"] is None else f"{one['back']} of {one['directions']}"

    doses = ("cause",) if readers[0]["cause"] == readers[0]["whole"] else ("cause", "whole")
    return Table(
        title="",
        columns=(
            "reader",
            "moved",
            "beyond rotations",
            "explained",
            "as large",
            "comes back",
            "cost",
        ),
        rows=tuple(
            (
                one["name"],
                estimate_cell(one["cause"]["effect"]),
                ", ".join(BEYOND[lacks(one[of])] for of in doses),
                one["explained"],
                one["size"],
                back(one),
                estimate_cell(one["cost"]) if one["cost"] else "not measured",
            )
            for one in readers
        ),
        units={"explained": "share", "as large": "share"},
    )


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


MOST_CURVES: Final = 8
MOST_MARKS: Final = 3000  # of the map
NU_RANGE: Final = (-0.5, 1.5)
NAMES: Final = {"deciding": "residual, at the decision", "all": "residual, everywhere"}
PARTS: Final = {"attn": "weights, attention", "mlp": "weights, MLP"}


def write_page(folder: Path) -> Path:
    """Draw `diff.html` again from the files of a diff, those of `forensics
    steer` included; returns its path.
    """
    write_atomically(folder / PAGE, draw_page(diff_page(folder)))
    return folder / PAGE


def diff_page(folder: Path) -> Page:
    """The page. Raises `UserError` where a file is missing or broken."""
    summary, patching = read_summary(folder), read_part(folder, PATCHING)
    latents = read_latents(folder, summary.get("contrasts"))
    opening, more = split_sentences(summary)
    command = in_play(summary, read_part(folder, READERS_FILE) or ()).get("command")
    return Page(
        eyebrow="Before against after",
        title="What training changed inside",
        sentences=tuple(opening),
        more=tuple(more),
        facts=tuple(summary["facts"]),
        sections=tuple(_sections(folder, summary, patching, latents)),
        command="# {}\n{}".format(*command) if command else "",
    )


def _sections(
    folder: Path,
    summary: Mapping[str, Any],
    patching: Mapping[str, Any] | None,
    latents: Sequence[Latent],
) -> Iterator[Section]:
    parts = (TOKENS, EXPLANATIONS, CAUSES)
    tokens, said, moved = (read_part(folder, name) or {} for name in parts)

    def fold(one: Latent) -> Fold:
        key, causes = str(one.latent), moved.get("latents", {})
        return latent_fold(one, tokens.get(key, ()), said.get(key), causes.get(key))

    if readers := read_part(folder, READERS_FILE):
        yield readers_section(readers, in_play(summary, readers).get("reader_command"))
    yield _presented_section(summary, latents, fold)
    behaviour = (patching or {}).get("behaviour")
    change = f"change in behaviour ({behaviour})" if behaviour else "divergence at the decisions"
    network = network_figure(patching, summary.get("site")) if patching else None
    yield Section(
        title="Where the change lives",
        hint="One piece of the after checkpoint is put into the before checkpoint: activations of"
        " the residual stream (patching), or the weights of a module (grafting). The number is the"
        f" share, in percent, of the {change} that moves with it. Single shares need not add up."
        " Framed: the site of the dictionary.",
        blocks=(network, *patching["sentences"]) if network and patching else (),
        empty="It was not looked for: the site was given.",
    )
    quality = read_part(folder, QUALITY)
    yield Section(
        title="The latents of the dictionary",
        blocks=(latent_map(latents), *([quality_table(quality)] if quality else [])),
    )
    yield _separating_section(summary, latents, fold)
    yield from _sections_beside(folder)


def _presented(summary: Mapping[str, Any]) -> Sequence[int]:
    found: Sequence[int] = summary.get("presented", summary.get("reported", ()))
    return found


def _presented_section(
    summary: Mapping[str, Any], latents: Sequence[Latent], fold: Callable[[Latent], Fold]
) -> Section:
    by_number, reported = {one.latent: one for one in latents}, summary.get("reported")
    known = any(one.stability is not None for one in latents)
    again = " and come back from every other seed" if known else ""
    ignorance = "" if known else " Whether another seed finds them was not measured."
    return Section(
        title="The latents that are reported" if reported else "No latent is reported",
        hint="The after model's own, found again from every other seed, and shown to cause"
        " something, as far as each was measured. Open one for what it says."
        if reported
        else f"These come nearest: they are the after model's own{again}, but are not shown to"
        f" cause anything.{ignorance}",
        blocks=tuple(fold(by_number[one]) for one in _presented(summary) if one in by_number),
        empty=f"None is the after model's own{again.replace('come', 'comes')}.",
    )


def _separating_section(
    summary: Mapping[str, Any], latents: Sequence[Latent], fold: Callable[[Latent], Fold]
) -> Section:
    above = set(_presented(summary))
    silent = sum(one.is_silent for one in latents)
    again = [one for one in separating(latents) if one.comes_back and not one.is_silent]
    left = len(latents) - silent - len(again)
    again = [one for one in again if one.latent not in above]
    out = [f"{plural(left, 'latent')} not found from every other seed"] if left else []
    out += [f"{silent:,} never active"] if silent else []
    out += [f"{plural(len(above), 'latent')} above"] if above else []
    return Section(
        title="What separates the steps",
        hint=f"{summary['contrast_sentence']} By q-value (Benjamini and Hochberg over all latents"
        " and contrasts; tasks are the independent units). Open a latent for its strongest tokens."
        + (f" Left out: {', '.join(out)}." if out else ""),
        blocks=tuple(map(fold, again[:MOST_LATENTS])),
        empty="None is left." if out else "No latent was looked at.",
    )


def _sections_beside(folder: Path) -> Iterator[Section]:
    if baselines := read_part(folder, BASELINES):
        missing = f" {baselines['missing'].capitalize()}." if baselines["missing"] else ""
        yield Section(
            title="Beside simpler methods",
            hint="Explained: the share of the variance of the models' difference (after less"
            " before) at this site. Tells apart: the area under the ROC curve of one feature"
            " between the two groups of steps, 0.5 is chance; each method's feature was chosen on"
            f" the tasks that were trained on.{missing}",
            blocks=(baselines_table(baselines["methods"]),),
        )
    controls = [
        tuple(str(one[name]) for name in ("name", "found", "expected"))
        for one in read_part(folder, CONTROLS) or ()
    ]
    columns = ("control", "found", "what it should be")
    yield Section(
        title="What should show nothing",
        blocks=(Table(title="", columns=columns, rows=tuple(controls)),) if controls else (),
        empty="No control was run, so nothing here is told from chance by one.",
    )
    steering, stored = steering_blocks(folder), (read_part(folder, CAUSES) or {}).get("latents")
    yield Section(
        title="What happens when features are changed",
        blocks=steering,
        empty=(
            "Not tested in play; what a latent moves on stored texts stands behind it. "
            if stored
            else "Not tested. "
        )
        + "What separates steps need not cause anything: `forensics steer` ablates features while"
        " the policy acts.",
    )


def steering_blocks(folder: Path) -> tuple[Figure | Table, ...]:
    """Curves and rows of each `steering.json`; of the latents', then of the leading reader's."""
    latents = read_part(folder, STEERING) or read_part(folder / STEERED, STEERING)
    blocks: list[Figure | Table] = []
    for found in filter(None, (latents, read_part(folder / STEERED_READER, STEERING))):
        rows = [row for row in found["rows"] if isinstance(row, dict)]
        blocks += [*curves(rows)[:MOST_CURVES], steering_table(rows)]
    return tuple(blocks)


def network_figure(patching: Mapping[str, Any], chosen: str | None) -> Figure:
    """The share of the change that moves with each place, as a grid of layers:
    patches into before by position, grafts into before. `chosen`: the site of
    the dictionary.
    """
    measure = "behaviour_moved" if patching.get("behaviour") else "kl_moved"
    cells: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in (*patching.get("patch", ()), *patching.get("graft", ())):
        placed = _placed(row)
        if placed is not None and row["direction"] == "into-before":
            cells[placed] = row
    layers = sorted({int(column) for _, column in cells if column.isdigit()})
    columns = ("embed", *map(str, layers), "output")
    columns = columns if any(column == "output" for _, column in cells) else columns[:-1]

    def told(row: Mapping[str, Any] | None) -> str:
        if row is None:
            return ""
        names = {"estimate": measure, "low": f"{measure}_low", "high": f"{measure}_high"}
        share = estimate_cell({name: row[key] for name, key in names.items()})
        said = "could not be told" if share is None else cell(share, "share")
        return f"{row['place']}: {said}"

    def series(name: str) -> Series:
        rows = [cells.get((name, column)) for column in columns]
        return Series(
            name=name,
            x=columns,
            y=tuple(row and row[measure] for row in rows),
            labels=tuple(map(told, rows)),
        )

    return Figure(
        title="Share of the change that moves, in percent",
        form="grid",
        x_label="layer",
        y_label="share",
        series=tuple(map(series, dict.fromkeys(name for name, _ in cells))),
        framed=tuple(place for place, row in cells.items() if row["place"] == chosen),
    )


def _placed(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """Row and column of a change in the grid, `None` for what it does not show."""
    place, where = str(row["place"]), row.get("positions")
    if where is not None:
        if where not in NAMES:
            return None
        if place == "hook_embed":
            return NAMES[where], "embed"
        residual = place.endswith("hook_resid_post")
        return (NAMES[where], str(row.get("layer"))) if residual else None
    if "+" in place:
        return ("weights, embedding and output", "embed") if place == "embed+unembed" else None
    if place in ("embed", "unembed"):
        return f"weights, {place}ding", "embed" if place == "embed" else "output"
    part = PARTS.get(place.rsplit(".", 1)[-1])
    return None if part is None or row.get("layer") is None else (part, str(row["layer"]))


def latent_map(latents: Sequence[Latent]) -> Figure:
    """Each latent by relative decoder norm (across) and nu of the after
    direction (up).

    Beyond `MOST_MARKS` every one that is specific, or of one model, stays and
    the others are thinned evenly.
    """
    known = [one for one in latents if one.relative_norm is not None and one.nu_after is not None]
    rare = [one for one in known if one.is_specific or one.partition != "shared"][:MOST_MARKS]
    chosen = {one.latent for one in rare}
    others = [one for one in known if one.latent not in chosen]
    step = max(1, -(-len(others) // max(1, MOST_MARKS - len(rare))))
    groups: dict[str, list[Latent]] = {}
    for one in (*others[::step], *rare):
        kind = one.partition.replace("-", " ")
        groups.setdefault(f"{kind}, specific" if one.is_specific else kind, []).append(one)
    order = sorted(groups, key=lambda name: ("specific" not in name, name != "shared", name))
    low, high = NU_RANGE
    return Figure(
        title="Latents by their decoder directions",
        form="scatter",
        x_label="relative decoder norm (0 before, 1 after)",
        y_label="nu: how much of it the before model has too",
        series=tuple(
            Series(
                name=name,
                x=tuple(min(max(one.relative_norm or 0.0, 0.0), 1.0) for one in group),
                y=tuple(min(max(one.nu_after or 0.0, low), high) for one in group),
                labels=tuple(
                    f"latent {one.latent}, {one.partition}: relative norm"
                    f" {plain(one.relative_norm or 0.0)}, nu {plain(one.nu_after or 0.0)}"
                    f"{', specific' if one.is_specific else ''}"
                    for one in group
                ),
            )
            for name, group in ((name, groups[name]) for name in order)
        ),
    )


def quality_table(quality: Mapping[str, Any]) -> Table:
    """Each figure with what it means."""
    perfect = "1 is perfect, 0 is the mean of the activations"
    rows: list[tuple[Scalar, ...]] = [
        (f"variance explained, {side}", cell(share, "share"), perfect)
        for side, share in zip(("before", "after"), quality["variance_explained"], strict=False)
    ]
    l0 = plain(quality["l0"])
    rows.append(("active latents a token (L0)", l0, "how many latents explain one token"))
    silent = f"never active in {quality['rows']:,} tokens"
    rows.append(("silent latents", cell(quality["dead_share"], "share"), silent))
    told = "1: the reconstruction does as well as the activations; 0: as badly as their mean"
    for name, spliced in (quality.get("spliced") or {}).items():
        rows += [
            (f"{measure} recovered, {name}", cell(estimate_cell(value), "share"), told)
            for measure, value in spliced.items()
        ]
    return Table(
        title="How good the dictionary is", columns=("", "value", "meaning"), rows=tuple(rows)
    )


def baselines_table(methods: Sequence[Mapping[str, Any]]) -> Table:
    """Method, what it explains of the models' difference, with how many parts,
    its one feature and how it tells.
    """
    rows = (
        (
            one["name"],
            one["explained"],
            f"{plain(one['active'])} of {one['features']:,}",
            one["feature"] or "none",
            estimate_cell(one["auroc"]),
        )
        for one in methods
    )
    return Table(
        title="",
        columns=("method", "explained", "active a token", "one feature", "tells apart"),
        rows=tuple(rows),
        units={"explained": "share"},
    )
