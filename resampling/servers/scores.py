"""Log-probabilities of tokens that are already there, as a server tells them.

1. `echo` asks for the prompt's own log-probabilities beside one drawn token. They are the model's: at temperature 1 and
   without truncation they are those of the sampler, too, and only then can they be a trace's `pi`.
2. A server and a trace that disagree by a tenth of a nat a token are of two policies. That is worth one request before
   thousands are sent.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.completions import Client, Declined, Unanswered
from forensics.protocols import SamplingSettings
from resampling.servers.probe import Abilities
from resampling.servers.requests import ids_body
from resampling.traces import Trace

PLAIN: Final = SamplingSettings()
LARGEST_GAP: Final = 0.1  # nats a token; a server in bfloat16 differs from float32 by about a tenth of that


def is_plain(settings: SamplingSettings) -> bool:
    """Whether the sampler's log-probabilities are the model's."""
    return settings.temperature == 1 and settings.top_k == 0 and settings.top_p == 1 and not settings.penalises


def server_logprobs(client: Client, abilities: Abilities, ids: Sequence[int]) -> np.ndarray:
    """The model's log-probability of every token but the first, nats `[length - 1]`.

    Raises `UserError` where the server tells none, `Unanswered` or `Declined` where it fails.
    """
    if not abilities.echo:
        raise UserError(
            f"the server at {client.config.url} tells no log-probabilities of a prompt; score the traces with the "
            "policy itself, or serve it with vLLM"
        )
    body = ids_body(abilities.model, ids, PLAIN, max_tokens=1, seed=0, logprobs=1, echo=True)
    told = client.complete(body)[0].logprobs or ()
    scored = told[1 : len(ids)]
    if len(scored) != len(ids) - 1 or None in scored:
        raise Unanswered(f"the server told {len(scored)} log-probabilities of {len(ids)} tokens")
    return np.array(scored, dtype=np.float64)


def require_same_policy(client: Client, abilities: Abilities, trace: Trace, settings: SamplingSettings) -> None:
    """Refuse a server that finds the trace's tokens otherwise likely than the trace says. Raises `UserError`.

    Silent where it cannot be known: no echo, settings that are not plain, a trace longer than the server's room.
    """
    room = abilities.room
    if not abilities.echo or not is_plain(settings) or not len(trace) or (room and len(trace.ids) >= room):
        return
    try:
        told = server_logprobs(client, abilities, trace.ids)[np.array(trace.positions) - 1]
    except (Unanswered, Declined) as error:
        raise UserError(f"the server at {client.config.url} could not score a trace: {error}; see its log") from error
    gap = float(np.abs(told - trace.logprobs).mean())
    if gap > LARGEST_GAP:
        raise UserError(
            f"the server at {client.config.url} gives the tokens of trace {trace.id} other log-probabilities than it "
            f"was recorded with (by {gap:.2f} nats a token); serve the policy that made it"
        )
