"""What a latent says, for a person.

1. *Contexts*: its strongest tokens, and beside them as many of the middle and the weakest
   ones, so that a reader sees what it is beyond its maxima; and matched silent ones: the same
   token where the latent is not active. One a text, so that no text speaks twice.
2. *Output side*: the tokens whose logits its direction raises and lowers most in the after
   model, by the unembedding alone (logit lens, without the final norm's scale), as cosines.
   What layers in between make of it is not in it.
3. *Where it fires*: the shares of its active rows and of all rows in each role, kind of step,
   channel and turn.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crosscoders.activations.streams import Stream, TokenizedText
from crosscoders.dictionaries.dictionary import Dictionary
from crosscoders.latents.encoded_blocks import encoded_blocks

EACH: Final = 8  # contexts of each kind
TURNS: Final = 6  # told one by one
PROMOTED: Final = 10
KINDS: Final = ("strong", "middle", "weak", "silent")


@dataclass(frozen=True, kw_only=True)
class Context:
    """A token of a text. `kind`: of `KINDS`; `value` 0 where the latent is silent."""

    kind: str
    text: int
    position: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """See the module. `fires`: by group, `(share of the active rows, share of all rows)`."""

    latent: int
    active: int
    contexts: tuple[Context, ...]
    raises: tuple[tuple[int, float], ...]
    lowers: tuple[tuple[int, float], ...]
    fires: Mapping[str, tuple[float, float]]


@torch.no_grad()
def explained(
    dictionary: Dictionary,
    stream: Stream,
    latents: Sequence[int],
    unembedding: Float[Tensor, "vocabulary width"] | None = None,
    *,
    seed: int = 0,
) -> dict[int, Explanation]:
    """Of each of these latents, from one pass over the stream. `unembedding`: of the after model;
    without it the output side is left empty.
    """
    values = _values(dictionary, stream, latents)
    sides = dictionary.directions(stream.models)[:, -1]
    silent = sides.abs().amax(1, keepdim=True) == 0
    written = torch.where(silent, dictionary.directions(stream.models)[:, 0], sides)
    random, told = np.random.default_rng(seed), {}
    for column, latent in enumerate(latents):
        own = values.active[:, column]
        raises, lowers = _output(written[latent], unembedding)
        told[int(latent)] = Explanation(
            latent=int(latent),
            active=int((own > 0).sum()),
            contexts=_contexts(values, own, random),
            raises=raises,
            lowers=lowers,
            fires={
                name: (float(mask[own > 0].mean()), float(mask.mean()))
                for name, mask in values.groups.items()
                if (own > 0).any()
            },
        )
    return told


@dataclass(frozen=True, kw_only=True)
class _Values:
    """`active [rows, latents]`, and of each row its text, position, token; `groups` masks."""

    active: np.ndarray
    text: np.ndarray
    position: np.ndarray
    token: np.ndarray
    groups: Mapping[str, np.ndarray]


def _values(dictionary: Dictionary, stream: Stream, latents: Sequence[int]) -> _Values:
    chosen = torch.tensor(list(latents), dtype=torch.int64)
    parts: list[np.ndarray] = []
    rows: dict[str, list[np.ndarray]] = defaultdict(list)
    for encoded in encoded_blocks(dictionary, stream):
        codes = encoded.codes
        place = torch.full((len(dictionary.bias),), -1)
        place[chosen] = torch.arange(len(chosen))
        column = place[codes.latent.cpu()]
        kept = column >= 0
        found = np.zeros((len(encoded.rows), len(chosen)), np.float32)
        found[codes.row.cpu()[kept], column[kept]] = codes.value.float().cpu()[kept]
        parts.append(found)
        for name in ("text", "position", "token", "step"):
            rows[name].append(getattr(encoded.rows, name))
    known = {name: np.concatenate(some) for name, some in rows.items()}
    groups = _groups(stream, known["text"], known.pop("step"))
    return _Values(active=np.concatenate(parts), groups=groups, **known)


def _groups(stream: Stream, text: np.ndarray, step: np.ndarray) -> dict[str, np.ndarray]:
    """Masks `[rows]` by role, kind, channel and turn of the step that a row is of."""
    names: dict[str, list[bool]] = defaultdict(lambda: [False] * len(text))
    of_step: dict[tuple[int, int], list[str]] = {}
    for row, (one, at) in enumerate(zip(text.tolist(), step.tolist(), strict=True)):
        if at < 0:
            continue
        if (one, at) not in of_step:
            notes = stream.texts[one].steps
            turn = sum(note.role == "assistant" for note in notes[: at + 1])
            own = notes[at]
            of_step[one, at] = [
                f"role {own.role}",
                *(f"kind {kind}" for kind in own.kinds),
                *(f"channel {channel}" for channel in own.channels),
                *([f"turn {turn}"] if own.role == "assistant" and turn <= TURNS else []),
            ]
        for name in of_step[one, at]:
            names[name][row] = True
    return {name: np.array(mask) for name, mask in sorted(names.items())}


def _contexts(values: _Values, own: np.ndarray, random: np.random.Generator) -> tuple[Context, ...]:
    """`EACH` of every kind, each of another text: where they run out, fewer."""
    order = np.lexsort((values.position, values.text, -own))
    active = [int(row) for row in order if own[row] > 0]
    if not active:
        return ()
    third = max(1, len(active) // 3)
    middle, weak = active[third : 2 * third], active[2 * third :][::-1]
    random.shuffle(middle)
    tokens = {int(values.token[row]) for row in active[: 4 * EACH]}
    quiet = np.flatnonzero((own == 0) & np.isin(values.token, list(tokens)))
    random.shuffle(quiet)
    taken: set[int] = set()
    found: list[Context] = []
    for kind, rows in zip(KINDS, (active, middle, weak, quiet.tolist()), strict=True):
        number = 0
        for row in rows:
            text = int(values.text[row])
            if number == EACH:
                break
            if text in taken:
                continue
            taken.add(text)
            number += 1
            found.append(
                Context(
                    kind=kind, text=text, position=int(values.position[row]), value=float(own[row])
                )
            )
    return tuple(found)


def _output(
    direction: Tensor, unembedding: Tensor | None
) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[int, float], ...]]:
    """Tokens whose unembedding has the largest and the smallest cosine with the direction."""
    if unembedding is None or direction.norm() == 0:
        return (), ()
    rows = unembedding.float().to(direction.device)
    cosine = rows @ direction / (rows.norm(dim=1) * direction.norm()).clamp(min=1e-12)
    order = cosine.argsort(descending=True)
    ends = order[:PROMOTED], order.flip(0)[:PROMOTED]
    up, down = (tuple((int(token), float(cosine[token])) for token in end) for end in ends)
    return up, down


def neuronpedia(
    told: Sequence[Explanation],
    dictionary: Dictionary,
    *,
    model: str,
    layer: int,
    name: str,
    decode: Callable[[int], str],
    texts: Sequence[TokenizedText],
    rows: int,
) -> dict[str, Any]:
    """A batch of features as SAEDashboard writes it for Neuronpedia (0.8). `texts`: of the
    stream, tokenised; `decode`: a token as text; `rows` of the stream. What is not known here
    (alignment with neurons, histograms) is left empty.
    """
    directions = dictionary.directions()[:, -1] / dictionary.scale
    return {
        "model_id": model,
        "layer": layer,
        "sae_set": name,
        "sae_id_suffix": None,
        "features": [
            {
                "feature_index": one.latent,
                "pos_str": [decode(token) for token, _ in one.raises],
                "pos_values": [value for _, value in one.raises],
                "neg_str": [decode(token) for token, _ in one.lowers],
                "neg_values": [value for _, value in one.lowers],
                "frac_nonzero": one.active / max(rows, 1),
                "n_prompts_total": len(texts),
                "n_tokens_in_prompt": max(map(len, texts), default=0),
                "vector": directions[one.latent].tolist(),
                "activations": [
                    _activation(context, texts[context.text], decode)
                    for context in one.contexts
                    if context.value > 0
                ],
            }
            for one in told
        ],
    }


def _activation(
    context: Context, text: TokenizedText, decode: Callable[[int], str]
) -> dict[str, Any]:
    tokens = [decode(int(token)) for token in text.token_ids]
    values = [0.0] * len(tokens)
    values[context.position] = context.value
    return {
        "bin_min": 0.0,
        "bin_max": 0.0,
        "bin_contains": 0.0,
        "tokens": tokens,
        "values": values,
        "qualifying_token_index": context.position,
    }
