"""`explanations.json` of a diff, beside a batch that Neuronpedia's dashboard reads: what each
latent that the page shows says (`latents.explained`), with its contexts as text; and, where a
model was named for it, a label with its score.

The label's model is one behind an OpenAI-compatible server (`LabelServer`). It is asked
some 25 times a latent; what was answered is kept, so that a run that goes on asks no label twice. A
server that does not answer is told, and the labels are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.texts import TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.explained import (
    Context,
    Explanation,
    explained,
    labelled,
    marked,
    neuronpedia,
)
from crosscoders.latents.table import TopToken, TopTokens
from crosscoders.study.diff_files import EXPLANATIONS, NEURONPEDIA
from crosscoders.study.label_server import LabelServer
from crosscoders.study.latent_sources import latent_sources
from forensics.progress import Progress, silent
from forensics.records import read_json, write_json

WINDOW: Final = 10  # tokens of context on each side
FEWEST: Final = 2  # active contexts of a latent that is named: one to name, one to test


def write_explanations(
    folder: Path,
    dictionary: Dictionary,
    policies: Sequence[Any],
    stream: StoredStream,
    latents: Sequence[int],
    labels: LabelServer | None = None,
    progress: Progress = silent,
    named: Sequence[int] | None = None,
    sources: Sequence[str] = (),
) -> dict[str, Any]:
    """Both files. `policies`: the last one's unembedding is read, where it has one here. `named`:
    those that come first and that alone `labels` is asked to name (`None`: all). `sources`: of
    the gain (`latent_sources`).
    """
    latents = list(dict.fromkeys([*(named or ()), *latents]))
    after, texts = policies[-1], stream.tokenized
    head = getattr(getattr(after, "model", None), "get_output_embeddings", lambda: None)()
    told = explained(dictionary, stream, latents, None if head is None else head.weight.detach())

    def decode(token: int) -> str:
        return str(after.tokenizer.decode([token]))

    found = {str(latent): _plain(one, texts, decode) for latent, one in told.items()}
    for latent, source in latent_sources(dictionary, stream, latents, sources).items():
        found[str(latent)]["source"] = source
    if labels is not None:
        kept = read_json(folder / EXPLANATIONS) if (folder / EXPLANATIONS).is_file() else {}
        some = found if named is None else {key: found[key] for key in map(str, named)}
        _label(folder, found, some, kept, labels, progress)
    write_json(folder / EXPLANATIONS, found)
    batch = neuronpedia(
        list(told.values()),
        dictionary,
        model=after.identity,
        layer=_layer(stream.site),
        name=stream.site,
        decode=decode,
        texts=texts,
        rows=stream.number,
    )
    write_json(folder / NEURONPEDIA, batch)
    return found


def _label(
    folder: Path,
    found: Mapping[str, Any],
    some: Mapping[str, Any],
    kept: Mapping[str, Any],
    labels: LabelServer,
    progress: Progress,
) -> None:
    """Add labels to some; each is on disk once it is there."""
    for number, (latent, one) in enumerate(some.items()):
        progress("labelling latents", number, len(some))
        before = kept.get(latent, {})
        if before.get("label", {}).get("model") == labels.model:
            one["label"] = before["label"]
            continue
        contexts = [(marked(each["tokens"], each["at"]), each["value"]) for each in one["contexts"]]
        if sum(value > 0 for _, value in contexts) < FEWEST:
            continue
        one["label"] = {"model": labels.model, **asdict(labelled(contexts, labels.ask))}
        write_json(folder / EXPLANATIONS, {**kept, **found})
    progress("labelling latents", len(some), len(some))


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


def _layer(site: str) -> int:
    """Of a TransformerLens name; 0 of others."""
    parts = site.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
