"""`explanations.json` of a diff, beside a batch that Neuronpedia's dashboard reads: what each
latent that the page shows says (`latents.explained`), with its contexts as text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.texts import TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.explained import (
    Context,
    Explanation,
    explained,
    neuronpedia,
)
from crosscoders.latents.table import TopToken, TopTokens
from crosscoders.study.diff_files import EXPLANATIONS, NEURONPEDIA
from crosscoders.study.latent_sources import latent_sources
from forensics.records import write_json

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
