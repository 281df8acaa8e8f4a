"""What is told of the dictionaries: table, strongest tokens, quality, null
controls, simpler methods beside them; and that in plain sentences, with the numbers
in them.

`explanations.json` of a diff, beside a batch that Neuronpedia's dashboard reads: what each
latent that the page shows says (`latents.explained`), with its contexts as text.

Which source of the gain a latent belongs to.

1. The sources are those that the evidence of the case has measured to carry some of the gain (the
   whole interval above 0) and that a run's steps name: kinds of action, and channels. A part of the
   prompt that every run shows parts no decisions, so nothing can belong to it.
2. Read are the decisions of won runs, of the after model where it won any. A decision is for a
   source if the action is of that kind, or what it shows, or what the prompt shows, is the
   channel's.
3. A latent's share is how much of its activity at these decisions falls on those for a source, with
   an interval by task. Its source is that of the largest share, if the whole interval, at a level
   divided by the number of sources, lies above the share of the decisions themselves; else none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from crosscoders.activations.harvest import StoredStream
from crosscoders.activations.outlier_positions import sentences
from crosscoders.activations.streams import Stream, TextNote, TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.dictionaries.saved import SavedDictionary
from crosscoders.latents.controls import (
    NO_SHARE,
    false_discovery_row,
    given_row,
    other_seeds_row,
    pair_row,
    same_pair,
    shuffled_pair,
    stability,
)
from crosscoders.latents.encoded_blocks import encoded_blocks, spliced
from crosscoders.latents.explained import Context, Explanation, explained, neuronpedia
from crosscoders.latents.row_groups import ACTING, RowGroup
from crosscoders.latents.table import LatentTable, TopToken, TopTokens, latent_table, study_latents
from crosscoders.patching.decisions import Theme
from crosscoders.study.diff_files import (
    BASELINES,
    CONTROLS,
    EXPLANATIONS,
    LATENTS,
    MOST_LATENTS,
    NEURONPEDIA,
    QUALITY,
    SIDES,
    TOKENS,
)
from crosscoders.study.difference_baselines import compared
from crosscoders.study.material import DIFFERENCE, PAIR, SAME, SHUFFLED, Inquiry, is_seed
from crosscoders.study.reported import Reported, named, specific_sentence, tested
from forensics.phrases import percent, plural, printable
from forensics.records import Evidence, read_findings, write_json
from forensics.statistics import ratio

SPLICED_TEXTS, FEW_SPLICED = 64, 24
SURE: Final = 0.05  # q-values below this are told


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that was measured on the reported texts. `separating`:
    latents, the surest first. `baselines`: see `difference_baselines`; `None` where they
    were not asked for. `reported`: the latents that are findings. `models`: of the dictionary.
    `outliers`: what is told of them.
    """

    models: int
    table: LatentTable
    separating: list[int]
    quality: dict[str, Any]
    controls: list[dict[str, Any]]
    baselines: dict[str, Any] | None
    reported: Reported
    outliers: tuple[str, ...] = ()


def measured(inquiry: Inquiry, dictionaries: Mapping[str, Dictionary]) -> Measured:
    """Measure the dictionaries, and write each part into the folder."""
    request, policies, streams = inquiry.request, inquiry.policies, inquiry.streams
    folder, progress, dictionary = inquiry.folder, inquiry.progress, dictionaries[PAIR]
    reported = streams.reported.heard("reading the latents", progress)
    study = study_latents(dictionary, reported, inquiry.contrasts)
    others = [one for name, one in dictionaries.items() if is_seed(name)]
    again = stability(dictionary, others, reported) if others else None
    table = study.table.with_column("stability", again.share) if again else study.table
    table.write(folder / LATENTS)
    quality = asdict(study.quality)
    quality["spliced"] = _recovered(inquiry, dictionary)
    write_json(folder / QUALITY, quality)
    nulls = controls_of(table, dictionaries, reported) if request.controls else []
    nulls += [other_seeds_row(again)] if again else []
    write_json(folder / CONTROLS, nulls)
    baselines = _baselines(inquiry, dictionaries, table, reported)
    q = table.column("q_value")
    with np.errstate(invalid="ignore"):
        sure = np.flatnonzero(q < SURE)
    separating: list[int] = sure[np.argsort(q[sure], kind="stable")].tolist()  # the surest first
    found = tested(inquiry, [dictionary, *others], table, separating)
    shown = shown_latents(table, *(one.name for one in inquiry.contrasts[:1]))
    shown += [one for one in found.presented if one not in shown]
    tokens = token_views(study.top, shown, reported.tokenized, policies[0].tokenizer)
    write_json(folder / TOKENS, tokens)
    stable = [one for one in shown if again is None or again.share[one] == 1]
    explain = list(dict.fromkeys([*found.presented, *stable]))
    sources = sources_of_case(request.runs)
    write_explanations(folder, dictionary, policies, reported, explain, sources)
    left_out = sentences(
        streams.outliers,
        lambda token: str(policies[0].tokenizer.decode([token])),
        streams.limits is None,
    )
    return Measured(
        models=dictionary.config.models,
        table=table,
        separating=separating,
        quality=quality,
        controls=nulls,
        baselines=baselines,
        reported=found,
        outliers=tuple(left_out),
    )


def _baselines(
    inquiry: Inquiry, dictionaries: Mapping[str, Dictionary], table: LatentTable, reported: Stream
) -> dict[str, Any] | None:
    if DIFFERENCE not in dictionaries:
        return None
    pair, small, own = dictionaries[PAIR], dictionaries[DIFFERENCE], table.specific("after")
    contrast, chosen = next(iter(inquiry.contrasts), None), inquiry.streams.chosen
    found = compared(pair, small, chosen, reported, contrast, own.tolist())
    write_json(inquiry.folder / BASELINES, found)
    return found


def _recovered(inquiry: Inquiry, dictionary: Dictionary) -> dict[str, dict[str, Any]]:
    """By side what a model recovers with the reconstruction spliced in, on some texts, of a deep
    network on few; nothing where no text is long enough.
    """
    most = SPLICED_TEXTS if inquiry.streams.small else FEW_SPLICED
    reported = inquiry.streams.reported
    chosen = [text for text in reported.tokenized if len(text) > 1][:most]
    if not chosen:
        return {}
    runs = spliced(dictionary, inquiry.policies, reported.part(chosen), inquiry.progress)
    return {
        side: {
            "cross-entropy": found.cross_entropy_recovered
            and asdict(found.cross_entropy_recovered),
            "KL": found.kl_recovered and asdict(found.kl_recovered),
        }
        for side, found in zip(SIDES, runs, strict=False)
    }


def controls_of(
    real: LatentTable, dictionaries: Mapping[str, Dictionary], stream: Stream
) -> list[dict[str, Any]]:
    """`controls.json`: what each control shows and what it should, from dictionaries
    that were trained beside that of the pair; or, for one that was given, from
    that one on the same model twice. In a dictionary of one model no latent could
    be specific.
    """
    if SAME not in dictionaries:
        pair = dictionaries[PAIR]
        return [given_row(pair, stream)] if pair.config.models > 1 else []
    same = latent_table(dictionaries[SAME], same_pair(stream), specific=NO_SHARE)
    shuffled = latent_table(dictionaries[SHUFFLED], shuffled_pair(stream))
    return [
        pair_row(same, shuffled=False),
        pair_row(shuffled, shuffled=True),
        false_discovery_row(real, same),
    ]


def shown_latents(table: LatentTable, contrast: str | None = None) -> list[int]:
    """The latents whose tokens are kept: by q-value and difference, those that come back
    from every other seed first, and those that are specific to a model.
    """
    q = np.nan_to_num(table.column("q_value"), nan=2.0)
    if "stability" in table.table.column_names:
        q = q + 4 * (table.column("stability") != 1)
    size = (
        np.zeros(len(q))
        if contrast is None
        else -np.abs(np.nan_to_num(table.column(f"difference_{contrast}")))
    )
    by_contrast = np.lexsort((np.arange(len(q)), size, q))[:MOST_LATENTS]
    specific = np.concatenate([table.specific(side)[:MOST_LATENTS] for side in ("after", "before")])
    return [int(one) for one in dict.fromkeys([*by_contrast.tolist(), *specific.tolist()])]


def told(
    found: Measured,
    theme: Theme | None,
    location: Mapping[str, Any] | None,
    site: str,
    saved: SavedDictionary | None = None,
) -> dict[str, Any]:
    """What `diff.json` says of the findings: as sentences, of which so many are the `opening`
    (what is reported, how far the behaviour changed, where that lives), and as plain values.
    """
    opening, more = _sentences(found, theme, location, site, saved)
    table = found.table
    first = table.contrasts[0] if table.contrasts else None
    groups = "Won against lost runs"
    if theme:
        kinds = ", ".join(map(printable, theme.kinds))
        groups = f"Decisions for {printable(theme.name)} ({kinds}) against all other decisions"
    return {
        "sentences": [*opening, *more],
        "opening": len(opening),
        "contrast_sentence": f"{groups}, in {plural(first.tasks, 'task')} that have both."
        if first
        else "No two groups of steps are known, so nothing was tested.",
        "contrasts": [contrast.name for contrast in table.contrasts],
        "tasks": first.tasks if first else 0,
        "theme": vars(theme) | {"kinds": list(theme.kinds)} if theme else None,
        "where": location["where"] if location else None,
        "separating": found.separating,
        "specific": [int(one) for one in table.specific("after")],
        "reported": found.reported.latents,
        "presented": found.reported.presented,
        "together": list(found.reported.together),
        "left_out": dict(found.reported.left_out),
    }


def _sentences(
    found: Measured,
    theme: Theme | None,
    location: Mapping[str, Any] | None,
    site: str,
    saved: SavedDictionary | None,
) -> tuple[list[str], list[str]]:
    table, latents, reported = found.table, rising(found), found.reported
    specific = specific_sentence(table, found.models)
    own = reported.sentences if found.models > 1 else [specific]
    findings = max(1, bool(reported.latents) + bool(reported.together))
    where = location["sentences"] if location else []
    opening = own[:findings]
    if theme:
        shares = f"{percent(theme.before)} before training, {percent(theme.after)} after"
        opening.append(f"Runs with {printable(theme.name)}: {shares}.")
    opening += where[:1]
    said = list(own[findings:])
    said += [*where[1:], *found.outliers, _separating(table, found.separating, theme)]
    said += [specific] if found.models > 1 else []
    if theme and latents:
        said.append(
            f"Of what is reported, more active where {printable(theme.name)} is decided:"
            f" {named(latents)}."
        )
    said += [_quality(found, site, saved), *_beside(found.baselines)]
    said += [
        f"Control, {one['name']}: {one['found']} (it should be: {one['expected']})."
        for one in found.controls
    ]
    said.append(
        "Taken out of stored texts is not taken out of play: what latents do there, `forensics"
        " steer` tests."
    )
    return opening, said


def _separating(table: LatentTable, separating: Sequence[int], theme: Theme | None) -> str:
    if not table.contrasts:
        return "Nothing is known that steps could be told apart by, so no latent was tested."
    groups = "won from lost runs"
    if theme:
        groups = f"decisions for {printable(theme.name)} from all others"
    if not separating:
        return f"No latent separates {groups} (q below {SURE})."
    kinds = table.column("specific")
    own = sum(kinds[latent] == "after" for latent in separating)
    return (
        f"{plural(len(separating), 'latent')} of {len(kinds)} separate {groups} (q below {SURE}),"
        f" {own} of them specific to the after model."
    )


def rising(found: Measured) -> list[int]:
    """Reported latents that are more active where the measured behaviour is decided, the most so
    first.
    """
    if not found.table.contrasts:
        return []
    gap = found.table.column(f"difference_{found.table.contrasts[0].name}")
    own = set(found.reported.latents)
    return sorted(
        (one for one in found.separating if one in own and gap[one] > 0), key=lambda one: -gap[one]
    )


def _quality(found: Measured, site: str, saved: SavedDictionary | None) -> str:
    quality, number = found.quality, len(found.table.column("latent"))
    shares = " and ".join(
        "an unknown share" if one is None else percent(one) for one in quality["variance_explained"]
    )
    which = f"a dictionary of {number} latents"
    if saved:
        which = f"the dictionary that was given ({saved.kind}, {number} latents)"
    return (
        f"At {site} {which} explains {shares} of the variance of the two models with"
        f" {quality['l0']:.1f} active latents a token."
    )


def _beside(baselines: Mapping[str, Any] | None) -> list[str]:
    if baselines is None:
        return []
    methods = [
        one for one in baselines["methods"] if one["explained"] is not None and one["features"]
    ]
    shares = [f"{one['name']} {percent(one['explained'])} ({one['active']:.2g})" for one in methods]
    said = (
        [
            "Explained of the variance of the models' difference (active latents or components a"
            f" token): {'; '.join(shares)}."
        ]
        if shares
        else ["The models do not differ here, so there is nothing to explain."]
    )
    areas = [
        f"{one['name']} {one['auroc']['estimate']:.2f}"
        for one in baselines["methods"]
        if one["auroc"]
    ]
    if areas:
        said.append(
            "One feature each, chosen on the tasks trained on, tells these steps apart with an"
            f" AUROC of: {'; '.join(areas)}."
        )
    return said


WINDOW: Final = 10  # tokens of context on each side


def write_explanations(
    folder: Path,
    dictionary: Dictionary,
    policies: Sequence[Any],
    stream: StoredStream,
    latents: Sequence[int],
    sources: Sequence[str] = (),
) -> dict[str, Any]:
    """Both files. `policies`: the last one's unembedding is read, where it has one here.
    `sources`: of the gain (`latent_sources`).
    """
    after, texts = policies[-1], stream.tokenized
    head = getattr(getattr(after, "model", None), "get_output_embeddings", lambda: None)()
    told = explained(dictionary, stream, latents, None if head is None else head.weight.detach())

    def decode(token: int) -> str:
        return str(after.tokenizer.decode([token]))

    found = {str(latent): _plain(one, texts, decode) for latent, one in told.items()}
    for latent, source in latent_sources(dictionary, stream, latents, sources).items():
        found[str(latent)]["source"] = source
    write_json(folder / EXPLANATIONS, found)
    place = stream.site.split(".")  # a TransformerLens name says the layer
    batch = neuronpedia(
        list(told.values()),
        dictionary,
        model=after.identity,
        layer=int(place[1]) if len(place) > 1 and place[1].isdigit() else 0,
        name=stream.site,
        decode=decode,
        texts=texts,
        rows=stream.number,
    )
    write_json(folder / NEURONPEDIA, batch)
    return found


def _plain(told: Explanation, texts: Sequence[TokenizedText], decode: Any) -> dict[str, Any]:
    return {
        "active": told.active,
        "contexts": [_in_context(one, texts[one.text], decode) for one in told.contexts],
        "raises": [[decode(token), cosine] for token, cosine in told.raises],
        "lowers": [[decode(token), cosine] for token, cosine in told.lowers],
        "fires": {name: list(shares) for name, shares in told.fires.items()},
    }


def token_views(
    tops: TopTokens, latents: Sequence[int], texts: Sequence[TokenizedText], tokenizer: Any
) -> dict[str, list[dict[str, Any]]]:
    """`tokens.json`: for each latent its strongest tokens with what stands around them, in text.
    `texts`: those of the stream that was read.
    """

    def decode(token: int) -> str:
        return str(tokenizer.decode([token]))

    return {
        str(latent): [_in_context(top, texts[top.text], decode) for top in tops.of(latent)]
        for latent in latents
    }


def _in_context(one: Context | TopToken, text: TokenizedText, decode: Any) -> dict[str, Any]:
    first = max(0, one.position - WINDOW)
    ids, at = text.token_ids[first : one.position + WINDOW + 1].tolist(), one.position - first
    return {
        **({"kind": one.kind} if isinstance(one, Context) else {}),
        "text": text.note.id,
        "task": text.note.task,
        "source": text.note.source,
        "position": one.position,
        "value": one.value,
        "at": at,
        "tokens": [decode(i) for i in ids],
        "values": [one.value if place == at else 0.0 for place in range(len(ids))],
    }


CARRIED: Final = ("refusal.carried", "exchange.carried", "gain.channel")
JOINED: Final = " + "  # between kinds that were refused at once
FEWEST, LEVEL = 2, 0.95  # tasks; of an interval


def sources_of_case(runs: Path | None) -> tuple[str, ...]:
    """What carries some of the gain, the most first; none where there is no evidence."""
    file = None if runs is None else runs.expanduser() / "evidence.jsonl"
    if file is None or not file.is_file():
        return ()
    found: dict[str, float] = {}
    for one in read_findings(file):
        if not isinstance(one, Evidence) or one.question not in CARRIED or not one.about:
            continue
        if one.interval and one.interval.low > 0 and JOINED not in one.about:
            found[one.about] = max(one.estimate, found.get(one.about, 0.0))
    return tuple(sorted(found, key=lambda name: -found[name]))


def latent_sources(
    dictionary: Dictionary, stream: Stream, latents: Sequence[int], sources: Sequence[str]
) -> dict[int, dict[str, Any] | None]:
    """Of each latent its source, `share` of its activity there and the decisions' own
    (`of_decisions`); `None` where none stands out.
    """
    if not sources or not latents:
        return dict.fromkeys(latents)
    activity, rows = _sums(dictionary, stream, latents, sources)
    return {
        latent: _standing_out(activity[:, number], rows, sources)
        for number, latent in enumerate(latents)
    }


def _standing_out(
    activity: np.ndarray, rows: np.ndarray, sources: Sequence[str]
) -> dict[str, Any] | None:
    """`activity`, `rows` `[tasks, sources + 1]`, the last column of all decisions."""
    active = activity[:, -1] > 0
    if active.sum() < FEWEST or not rows[:, :-1].any():
        return None
    shares = activity[:, :-1].sum(0) / activity[:, -1].sum()
    best = int(shares.argmax())
    level = 1 - (1 - LEVEL) / np.count_nonzero(rows[:, :-1].sum(0))  # of what names a decision
    share = ratio(activity[:, best], activity[:, -1], level=level)
    own = float(rows[:, best].sum() / rows[:, -1].sum())
    if share.low <= own:
        return None
    return {"name": sources[best], "share": asdict(share), "of_decisions": own}


@torch.no_grad()
def _sums(
    dictionary: Dictionary, stream: Stream, latents: Sequence[int], sources: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Activity `[tasks, latents, sources + 1]` and decisions `[tasks, sources + 1]`."""
    texts = stream.texts
    after = any(text.source == "after" for text in texts)
    group = RowGroup(deciding=True, outcome="won", sources=("after",) if after else ())
    tasks = {name: place for place, name in enumerate(sorted({one.task for one in texts}))}
    rows = np.zeros((len(tasks), len(sources) + 1))
    activity = np.zeros((len(tasks), len(latents), len(sources) + 1))
    column = torch.full((len(dictionary.bias),), -1)
    column[list(latents)] = torch.arange(len(latents))
    for encoded in encoded_blocks(dictionary, stream):
        decided = np.flatnonzero(group.mask(encoded.rows, texts))
        named = np.zeros((len(encoded.rows), len(sources) + 1))
        own = encoded.rows.take(decided)
        for at, text, step, drawn in zip(decided, own.text, own.step, own.sampled, strict=True):
            found = decided_sources(texts[text], int(step), bool(drawn))
            named[at] = [*(name in found for name in sources), True]
        task = np.array([tasks[texts[text].task] for text in encoded.rows.text])
        np.add.at(rows, task[decided], named[decided])
        codes = encoded.codes
        row, place = codes.row.cpu().numpy(), column[codes.latent.cpu()].numpy()
        some = (place >= 0) & (named[row, -1] > 0)
        value = codes.value.double().cpu().numpy()[some, None] * named[row[some]]
        np.add.at(activity, (task[row[some]], place[some]), value)
    return activity, rows


def decided_sources(text: TextNote, step: int, sampled: bool) -> set[str]:
    """Kinds of the action that a deciding row at this step decides, the channels that it shows,
    and those of the prompt.
    """
    acting = [number for number, note in enumerate(text.steps) if note.role == ACTING]
    after = [number for number in acting if number >= step + sampled]
    if not after:
        return set()
    end = after[1] if len(after) > 1 else len(text.steps)
    shown = [*text.steps[: acting[0]], *text.steps[after[0] + 1 : end]]
    return {*text.steps[after[0]].kinds, *(name for note in shown for name in note.channels)}
