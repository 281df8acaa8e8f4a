"""The bodies of requests, and what an answer's tokens are.

Every field that a server would otherwise take from the model's own generation settings is sent, so that the settings
of the request are the settings of the draw. `top_k` is -1 where it is off, which vLLM and SGLang both take.

*Token ids* (`ids_body`): the prompt as ids, ids back, actions ended by `stop_token_ids`. Choice i of `n` is taken to be
drawn with the seed plus i (as vLLM does), and the probe finds out whether it is.
*Text* (`text_body`): for a server that takes the library's own `generation_config` as a JSON text (`transformers
serve`), which names the ending tokens by id, too. It has no `n`, and seeds one request at a time.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from forensics.errors import UserError
from forensics.policies.completions import Choice
from forensics.protocols import SamplingSettings


def require_sendable(settings: SamplingSettings) -> None:
    """Refuse settings that a server cannot be told for a prefix inside an action. Raises `UserError`."""
    if settings.penalises_output:
        raise UserError(
            "presence_penalty and frequency_penalty count the tokens of the running action, and a server counts those "
            "of its own answer; sample with the policy itself, or without these penalties"
        )


def ids_body(
    model: str, prompt: Sequence[int], settings: SamplingSettings, *, max_tokens: int, seed: int, n: int = 1,
    stops: Collection[int] = (), bias: Mapping[int, float] | None = None, **more: Any,
) -> dict[str, Any]:
    """A request with the prompt as token ids. `more`: fields sent as they are."""
    body: dict[str, Any] = {
        "model": model, "prompt": list(prompt), "max_tokens": max_tokens, "n": n, "seed": seed,
        "temperature": settings.temperature, "top_p": settings.top_p, "top_k": settings.top_k or -1, "min_p": 0.0,
        "repetition_penalty": settings.repetition_penalty, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "stop_token_ids": sorted(stops), "skip_special_tokens": False, "return_token_ids": True, **more,
    }
    if bias:
        body["logit_bias"] = {str(token): value for token, value in bias.items()}
    return body


def text_body(
    model: str, prompt: str, settings: SamplingSettings, *, max_tokens: int, seed: int, stops: Collection[int],
) -> dict[str, Any]:
    """A request with the prompt as text and everything else in a `generation_config`."""
    drawn = settings.temperature > 0
    generation: dict[str, Any] = {
        "do_sample": drawn, "max_new_tokens": max_tokens, "eos_token_id": sorted(stops), "pad_token_id": min(stops),
        "repetition_penalty": settings.repetition_penalty,
    }
    if drawn:
        generation |= {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
    return {"model": model, "prompt": prompt, "max_tokens": max_tokens, "seed": seed,
            "generation_config": json.dumps(generation)}


def drawn_ids(choice: Choice, stops: Collection[int]) -> tuple[int, ...] | None:
    """The tokens of a choice, the one that ended it included; `None` where the answer does not say them whole.

    A server that leaves the ending token out must name it beside them.
    """
    ids = choice.ids
    if ids is None or any(token in stops for token in ids[:-1]):
        return None
    if choice.finish == "stop" and (not ids or ids[-1] not in stops):
        ended = choice.stopped_by
        return (*ids, ended) if isinstance(ended, int) and ended in stops else None
    return ids or None
