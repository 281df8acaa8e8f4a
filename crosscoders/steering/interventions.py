"""Changes as interventions of a policy: where in a text they act, and on whose
activations.

1. `deciding`: the last token before an action's first one, where the next
   action is decided. `kind:NAME`: the tokens of a step whose action has that
   kind, from the first token by which the action's text says so to the decision
   that follows its observation. `everywhere`.
2. A text is seen here as its tokens and, for each, whether the next one was an
   action's first; steps follow from these.
3. An `Intervention` is handed activations `[rows, chunk, features]`; it changes
   the chosen positions and leaves the rest as they are, to the bit. The other
   model's activations come from `Seen`: live from `Alongside`, or set by hand.

Two models on the same tokens, row by row, while one of them acts, are what a
crosscoder needs to encode live:

1. `Alongside` wraps the acting model. Whatever drives it (lockstep decoding
   forks, moves and drops rows of the cache) sees one model whose cache has more
   layers: the acting model's, then the companion's, then one of texts.
2. On each forward pass the companion reads the tokens first, with its own part
   of the cache and as far as the site; the hooks on the acting model find its
   activations in `seen`. So the companion's are exact: those of a model that is
   left alone and reads the same tokens.
3. The layer of texts keeps each row's tokens and where actions started, so that
   an intervention can tell in which kind of step it stands.

Only for models whose every layer attends to all positions; others would need
their states carried along too.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import Cache

from crosscoders.activations.outlier_positions import norms_of
from crosscoders.steering.activation_edits import Change
from forensics.errors import UserError
from forensics.policies import (
    attends_to_everything,
    decoder_layers,
    new_cache,
    policy_from,
    read_sites,
)
from forensics.protocols import ActivationContext, Intervention, Policy


@dataclass
class Seen:
    """What is known during one forward pass: the companion's activations
    `[rows, chunk, width]` at the site (`None` without one), and the text of
    each row so far, `ids` and `decided` `[rows, length]`.
    """

    other: Tensor | None = None
    ids: Tensor | None = None
    decided: Tensor | None = None

    def text(self) -> tuple[Tensor, Tensor]:
        assert self.ids is not None and self.decided is not None, "only during a forward pass"
        return self.ids, self.decided


def read_site(model: Any, site: str, ids: Tensor, cache: Any = None, **more: Any) -> Tensor:
    """Activations `[rows, chunk, width]` of a model at a site; the pass stops
    there. `more` goes to the model.
    """
    memory = {} if cache is None else {"past_key_values": cache, "use_cache": True}
    return read_sites(model, ids, [site], **memory, **more)[0]


def layers_before(model: Any, site: str) -> int:
    """How many layers keep keys and values by the time that a site is reached:
    tried, not guessed.
    """
    cache = new_cache(model.config)
    read_site(model, site, torch.zeros((1, 1), dtype=torch.long, device=model.device), cache)
    return sum(layer.is_initialized for layer in cache.layers)


class Alongside(nn.Module):
    """The acting model as it was, with a companion that reads along; see the module's text."""

    def __init__(self, model: Any, companion: Any | None, site: str, seen: Seen) -> None:
        super().__init__()
        for one in (model, companion):
            if one is not None and not attends_to_everything(one.config):
                raise UserError(
                    f"{type(one).__name__} has layers that do not attend to all positions, so a"
                    " second model cannot read along; take models with full attention"
                )
        self.model, self.companion, self._site, self._seen = model, companion, site, seen
        self._own = model.config.get_text_config().num_hidden_layers
        self._others = 0 if companion is None else layers_before(companion, site)
        self.config = _config_of(model, self._own + self._others + 1)

    def __getattr__(self, name: str) -> Any:
        """What is not asked of a module (its device, its embeddings) is the acting model's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    def get_decoder(self) -> Any:
        return self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Any = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
    ) -> Any:
        cache = past_key_values
        self._remember(input_ids, cache)
        if self.companion is not None:
            self._seen.other = self._read(input_ids, cache)
        memory = (
            {} if cache is None else {"past_key_values": Cache(layers=cache.layers[: self._own])}
        )
        return self.model(input_ids, use_cache=use_cache, logits_to_keep=logits_to_keep, **memory)

    def _read(self, ids: Tensor, cache: Any) -> Tensor:
        if cache is None:
            return read_site(self.companion, self._site, ids)
        if self._others:
            return read_site(
                self.companion, self._site, ids, Cache(layers=cache.layers[self._own : -1])
            )
        length = self._seen.text()[0].shape[1]  # no layer to say where the tokens stand
        places = torch.arange(length - ids.shape[1], length, device=ids.device)[None]
        return read_site(self.companion, self._site, ids, position_ids=places)

    def _remember(self, ids: Tensor, cache: Any) -> None:
        """Put the new tokens behind the rows' texts; who decides is told to the
        hooks, and marked by them.
        """
        seen, blank = self._seen, torch.zeros_like(ids, dtype=torch.bool)
        if cache is None:
            seen.ids, seen.decided = ids, blank
            return
        kept, marks = cache.layers[-1].update(ids[:, None, :, None], blank[:, None, :, None])
        seen.ids, seen.decided = kept[:, 0, :, 0], marks[:, 0, :, 0]


def _config_of(model: Any, layers: int) -> Any:
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = ["full_attention"] * layers
    return config


def policy_alongside(policy: Policy, companion: Policy | None, site: str, seen: Seen) -> Policy:
    """The policy with a companion reading along; weights are shared, and
    nothing of `policy` changes.
    """
    decoder_layers(policy.model)
    wrapped = Alongside(policy.model, None if companion is None else companion.model, site, seen)
    return policy_from(wrapped, policy.tokenizer, policy.identity)


Where = Literal["deciding", "everywhere", "kind"]
Kinds = Callable[[tuple[int, ...]], tuple[str, ...]]  # the kinds of the actions in these tokens


@dataclass(frozen=True, kw_only=True)
class Position:
    """`kind` belongs to `where="kind"`."""

    where: Where
    kind: str | None = None

    @property
    def name(self) -> str:
        return self.where if self.kind is None else f"kind:{self.kind}"


def parse_position(text: str) -> Position:
    """`deciding`, `everywhere` or `kind:NAME`. Raises `UserError` for anything else."""
    if text in ("deciding", "everywhere"):
        return Position(where="deciding" if text == "deciding" else "everywhere")
    head, colon, kind = text.partition(":")
    if head == "kind" and colon and kind:
        return Position(where="kind", kind=kind)
    raise UserError(f"there is no position '{text}'; use deciding, everywhere or kind:NAME")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How tokens are read as actions: their kinds, the tokens that end one, and
    how many one may have.
    """

    kinds: Kinds
    stops: frozenset[int]
    most: int


def chosen_positions(
    position: Position, steps: Steps | None, ids: Tensor, decided: Tensor, chunk: int
) -> Tensor:
    """A mask `[rows, chunk]` over the last `chunk` of the tokens `ids [rows,
    length]`.

    `decided [rows, length]`: the tokens behind which an action starts.
    """
    rows, length = ids.shape
    if position.where == "everywhere":
        return torch.ones((rows, chunk), dtype=torch.bool, device=ids.device)
    if position.where == "deciding":
        return decided[:, length - chunk :]
    assert steps is not None and position.kind is not None, "a kind needs to be read from the text"
    masks = [
        in_kind(position.kind, steps, row, flags, chunk)
        for row, flags in zip(ids.tolist(), decided.tolist(), strict=True)
    ]
    return torch.tensor(masks, dtype=torch.bool, device=ids.device).view(rows, chunk)


def in_kind(
    kind: str, steps: Steps, ids: Sequence[int], decided: Sequence[bool], chunk: int
) -> list[bool]:
    """For the last `chunk` tokens of one text, whether they lie in a step of a kind."""
    found = []
    for at in range(len(ids) - chunk, len(ids)):
        start = next((i + 1 for i in range(at - 1, -1, -1) if decided[i]), None)
        if start is None:
            found.append(False)
            continue
        last = min(at, start + steps.most - 1)  # what of the action is written by this token
        end = next((i for i in range(start, last + 1) if ids[i] in steps.stops), last)
        found.append(kind in steps.kinds(tuple(ids[start : end + 1])))
    return found


def intervention(
    change: Change,
    *,
    site: str,
    name: str,
    position: Position,
    seen: Seen,
    steps: Steps | None = None,
    limit: float | None = None,
) -> Intervention:
    """A change at a site, at a position. `steps`: how actions are read, for `kind:NAME`.
    `limit`: of the norm; what is beyond it (attention sinks) stays as it is.
    """

    def apply(activations: Tensor, context: ActivationContext) -> Tensor:
        ids, decided = seen.text()
        decided[:, -1] |= context.deciding
        mask = chosen_positions(position, steps, ids, decided, activations.shape[1])
        if limit is not None:
            mask = mask & (norms_of(activations) <= limit)
        return changed(change, activations, seen.other, mask)

    return Intervention(site=site, name=name, apply=apply)


def changed(change: Change, activations: Tensor, other: Tensor | None, mask: Tensor) -> Tensor:
    """Activations `[rows, chunk, width]` with those under `mask [rows, chunk]`
    changed; a copy where any is.
    """
    if not bool(mask.any()):
        return activations
    theirs = None if other is None or not change.needs_other else other[mask].float()
    result = activations.clone()
    with torch.no_grad():
        result[mask] = change.apply(activations[mask].float(), theirs).to(activations.dtype)
    return result
