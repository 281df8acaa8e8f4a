"""A policy behind an OpenAI-compatible server, as far as scoring a log goes: it tells log-probabilities of a prompt.

1. A text goes in as token ids with `echo`, and the server tells the log-probability of every token but the first (vLLM
   does; many servers do not, which one small request finds out).
2. They are the model's own: temperature 1, nothing shut out. Other settings are refused.
3. No distributions come over the wire, so `policy` and `reference` are the only columns, and readouts are refused.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.completions import Client, Declined, ServerConfig, Unanswered
from forensics.protocols import SamplingSettings

TRIAL: Final = (1, 2, 3)


class ServerPolicy:
    """A `Policy` that can score and nothing else.

    `identity`: the content hash of what it serves, where known. `tokenizer` and `rendering`: the policy's own, needed
    for logs without token ids. `room`: tokens that fit, `None` where the server does not say.
    Raises `UserError` where there is no such server or it tells no log-probabilities of a prompt.
    """

    capabilities = frozenset({"logprobs"})

    def __init__(
        self, config: ServerConfig, *, identity: str | None = None, tokenizer: Any = None, rendering: Any = None
    ) -> None:
        self._client = Client(config)
        self._name, room = self._served()
        self.room = None if room is None else room - 1  # one token is drawn behind the text, and thrown away
        self.identity = identity or f"server {config.url} {self._name}"
        self.tokenizer, self.rendering = tokenizer, rendering
        self._require_echo()

    @property
    def served_as(self) -> str:
        """The name that the server has for it."""
        return self._name

    def logprobs(
        self, token_ids: Sequence[Sequence[int]], settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> list[np.ndarray]:
        """Log-probability of every token but the first, nats `[length - 1]`. Raises `UserError`."""
        plain = SamplingSettings()
        for name in ("temperature", "top_k", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty"):
            if getattr(settings, name) != getattr(plain, name):
                raise UserError(f"a server tells the model's own log-probabilities, not those under {name} = "
                                f"{getattr(settings, name):g}; score with the checkpoint directory")
        with ThreadPoolExecutor(min(32, self._client.config.at_once)) as pool:
            return list(pool.map(self._told, token_ids))

    def _told(self, ids: Sequence[int]) -> np.ndarray:
        if len(ids) < 2:
            return np.empty(0)
        try:
            found = self._echoed(ids)
        except (Unanswered, Declined) as error:
            raise UserError(f"the server at {self._client.config.url} could not score a text of {len(ids)} tokens "
                            f"({error}); see its log") from error
        if found is None:
            raise UserError(f"the server at {self._client.config.url} told no log-probabilities for a text of "
                            f"{len(ids)} tokens; see its log")
        return found

    def _echoed(self, ids: Sequence[int]) -> np.ndarray | None:
        """`None` where the answer does not have them. Raises `Unanswered`, `Declined`."""
        body = {"model": self._name, "prompt": [int(i) for i in ids], "max_tokens": 1, "temperature": 1.0, "top_p": 1.0,
                "n": 1, "seed": 0, "echo": True, "logprobs": 1}
        told = (self._client.complete(body)[0].logprobs or ())[1 : len(ids)]
        return None if len(told) != len(ids) - 1 or None in told else np.array(told, dtype=np.float64)

    def _served(self) -> tuple[str, int | None]:
        """The model's name and its room."""
        config = self._client.config
        try:
            rows = self._client.models()
        except (Unanswered, Declined) as error:
            raise UserError(f"there is no server to score with at {config.url} ({error}); start it, or mend the "
                            "address (it ends in /v1)") from error
        names = [row["id"] for row in rows]
        if config.model is None and len(names) != 1:
            raise UserError(f"the server at {config.url} serves these models: {', '.join(names[:8]) or 'none'}; say "
                            "which one is meant by its name")
        name = config.model or names[0]
        room = next((row.get("max_model_len") for row in rows if row["id"] == name), None)
        return name, room if isinstance(room, int) else None

    def _require_echo(self) -> None:
        url = self._client.config.url
        try:
            if self._echoed(TRIAL) is not None:
                return
            said = "its answer has none"
        except Unanswered as error:
            raise UserError(f"the server at {url} does not answer: {error}; see its log") from error
        except Declined as error:
            said = str(error)
        raise UserError(f"the server at {url} tells no log-probabilities of a prompt ({said}); score with the "
                        "checkpoint directory, or serve the model with vLLM")
