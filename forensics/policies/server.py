"""OpenAI-compatible servers: a policy behind one, which tells log-probabilities of
a prompt.

1. A text goes in as token ids with `echo`, and the server tells the
   log-probability of every token but the first (vLLM does; many servers do not,
   which one small request finds out).
2. They are the model's own: temperature 1, nothing shut out. Other settings are
   refused.
3. No distributions come over the wire, so `policy` and `reference` are the only
   columns, and readouts are refused.

The tokenizer comes from the checkpoint's directory. The weights need not be
there; where they are, they name the runs that are the policy's own. What the
server really serves cannot be hashed, so nothing that it tells is kept, and
whether it is the policy that made the runs shows in the agreement with the
sampler.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.compatibility import load_tokenizer, stop_tokens
from forensics.policies.completions import Client, Declined, ServerConfig, Unanswered
from forensics.policies.renderers import renderer_for
from forensics.protocols import Policy, SamplingSettings

TRIAL: Final = (1, 2, 3)
LENGTHS: Final = ("max_turn_tokens", "max_tokens")  # they change no probability


def open_policy(
    where: str,
    *,
    identity: str | None = None,
    model: str | None = None,
    checkpoint: str | Path | None = None,
    **_: Any,
) -> Policy:
    """The server at an address, up to and with `/v1`. `model`: the name it serves
    the policy by (`None`: its only one). `checkpoint`: the directory that has the
    policy's tokenizer; its weights need not be there.
    """
    tokens = {}
    if checkpoint is not None:
        folder = Path(checkpoint).expanduser()
        tokenizer = load_tokenizer(folder)
        tokens = {"tokenizer": tokenizer, "renderer": renderer_for(tokenizer, stop_tokens(folder))}
    config = ServerConfig(url=str(where), model=model)
    policy: Any = ServerPolicy(config, identity=identity, **tokens)
    opened: Policy = policy
    return opened


class ServerPolicy:
    """A `Policy` that can score and nothing else.

    `identity`: the content hash of what it serves, where known. `tokenizer` and
    `renderer`: the policy's own, needed for logs without token ids. `context_length`:
    tokens that fit, `None` where the server does not say. Raises `UserError`
    where there is no such server or it tells no log-probabilities of a prompt.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        identity: str | None = None,
        tokenizer: Any = None,
        renderer: Any = None,
    ) -> None:
        self._client = Client(config)
        self.served_as, most = served_model(self._client)  # the name that the server has for it
        self.context_length = (
            None if most is None else most - 1
        )  # one token is drawn behind the text, and thrown away
        self.capabilities = frozenset({"logprobs"} | ({"tokens"} if tokenizer else set()))
        self.identity = identity or f"server {config.url} {self.served_as}"
        self.tokenizer, self.renderer = tokenizer, renderer
        self._require_echo()

    def logprobs(
        self,
        token_ids: Sequence[Sequence[int]],
        settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> list[np.ndarray]:
        """Log-probability of every token but the first, nats `[length - 1]`. Raises `UserError`."""
        for name, value in asdict(settings).items():
            if name not in LENGTHS and value != getattr(SamplingSettings, name):
                raise UserError(
                    f"a server tells the model's own log-probabilities, not those under {name} = "
                    f"{value:g}; score with the checkpoint directory"
                )
        with ThreadPoolExecutor(min(32, self._client.config.at_once)) as pool:
            return list(pool.map(self._told, token_ids))

    def _told(self, ids: Sequence[int]) -> np.ndarray:
        if len(ids) < 2:
            return np.empty(0)
        try:
            logprobs = echoed_logprobs(self._client, self.served_as, ids)
        except (Unanswered, Declined) as error:
            raise UserError(
                f"the server at {self._client.config.url} could not score a text of {len(ids)}"
                f" tokens ({error}); see its log"
            ) from error
        if logprobs is None:
            raise UserError(
                f"the server at {self._client.config.url} told no log-probabilities for a text of "
                f"{len(ids)} tokens; see its log"
            )
        return logprobs

    def _require_echo(self) -> None:
        url = self._client.config.url
        try:
            if echoed_logprobs(self._client, self.served_as, TRIAL) is not None:
                return
            said = "its answer has none"
        except Unanswered as error:
            raise UserError(f"the server at {url} does not answer: {error}; see its log") from error
        except Declined as error:
            said = str(error)
        raise UserError(
            f"the server at {url} tells no log-probabilities of a prompt ({said}); score with the "
            "checkpoint directory, or serve the model with vLLM"
        )


def echoed_logprobs(client: Client, model: str, ids: Sequence[int]) -> np.ndarray | None:
    """The model's log-probability of every token but the first, nats `[length -
    1]`; `None` where the answer does not have them. Raises `Unanswered`, `Declined`.
    """
    body = {
        "model": model,
        "prompt": [int(i) for i in ids],
        "max_tokens": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "n": 1,
        "seed": 0,
        "echo": True,
        "logprobs": 1,
    }
    logprobs = (client.complete(body)[0].logprobs or ())[1 : len(ids)]
    if len(logprobs) != len(ids) - 1 or None in logprobs:
        return None
    return np.array(logprobs, dtype=np.float64)


def served_model(client: Client) -> tuple[str, int | None]:
    """The name of the model to ask for and the tokens that it
    takes, prompt and answer together. Raises `UserError` where no server answers."""
    url, model = client.config.url, client.config.model
    try:
        rows = client.models()
    except Unanswered as error:
        if model is None or not error.reached:
            raise UserError(
                f"there is no server at {url} ({error}); start it, or mend the"
                " address (it ends in /v1)"
            ) from error
        return model, None  # it cannot list its models, but it may well have this one
    except Declined as error:
        if model is None or error.status in (401, 403):
            raise declined(url, error) from error
        return model, None
    names = [row["id"] for row in rows]
    if model is None and len(names) != 1:
        listed = ", ".join(names[:8]) or "none"
        raise UserError(
            f"the server at {url} serves these models: {listed}; say which one is meant by its name"
        )
    row = next((row for row in rows if row["id"] == (model or names[0])), {})
    room = row.get("max_model_len")
    return model or names[0], room if isinstance(room, int) else None


def declined(url: str, error: Declined) -> UserError:
    """What a user is told where a server declined a completion."""
    return UserError(
        f"the server at {url} declined a completion ({error}); mend the model's name, the key or"
        " the address (it ends in /v1), or serve the model with vLLM or SGLang"
    )
