"""A policy behind an OpenAI-compatible server, as far as scoring a log goes: it
tells log-probabilities of a prompt.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.compatibility import load_tokenizer, stop_tokens
from forensics.policies.completions import Client, Declined, ServerConfig, Unanswered
from forensics.policies.renderers import renderer_for
from forensics.protocols import SamplingSettings
from probes.scores.score_store import PolicyRef

TRIAL: Final = (1, 2, 3)
UNNAMED: Final = "server "  # begins the name of what has no weights here


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
        self._name, most = self._served()
        self.context_length = (
            None if most is None else most - 1
        )  # one token is drawn behind the text, and thrown away
        self.capabilities = frozenset({"logprobs"} | ({"tokens"} if tokenizer else set()))
        self.identity = identity or f"server {config.url} {self._name}"
        self.tokenizer, self.renderer = tokenizer, renderer
        self._require_echo()

    @property
    def served_as(self) -> str:
        """The name that the server has for it."""
        return self._name

    def logprobs(
        self,
        token_ids: Sequence[Sequence[int]],
        settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> list[np.ndarray]:
        """Log-probability of every token but the first, nats `[length - 1]`. Raises `UserError`."""
        plain = SamplingSettings()
        for name in (
            "temperature",
            "top_k",
            "top_p",
            "repetition_penalty",
            "presence_penalty",
            "frequency_penalty",
        ):
            if getattr(settings, name) != getattr(plain, name):
                raise UserError(
                    f"a server tells the model's own log-probabilities, not those under {name} = "
                    f"{getattr(settings, name):g}; score with the checkpoint directory"
                )
        with ThreadPoolExecutor(min(32, self._client.config.at_once)) as pool:
            return list(pool.map(self._told, token_ids))

    def _told(self, ids: Sequence[int]) -> np.ndarray:
        if len(ids) < 2:
            return np.empty(0)
        try:
            logprobs = self._echoed(ids)
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

    def _echoed(self, ids: Sequence[int]) -> np.ndarray | None:
        """`None` where the answer does not have them. Raises `Unanswered`, `Declined`."""
        body = {
            "model": self._name,
            "prompt": [int(i) for i in ids],
            "max_tokens": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "n": 1,
            "seed": 0,
            "echo": True,
            "logprobs": 1,
        }
        logprobs = (self._client.complete(body)[0].logprobs or ())[1 : len(ids)]
        return (
            None
            if len(logprobs) != len(ids) - 1 or None in logprobs
            else np.array(logprobs, dtype=np.float64)
        )

    def _served(self) -> tuple[str, int | None]:
        """The model's name and its room."""
        config = self._client.config
        try:
            rows = self._client.models()
        except (Unanswered, Declined) as error:
            raise UserError(
                f"there is no server to score with at {config.url} ({error}); start it, or mend the"
                " address (it ends in /v1)"
            ) from error
        names = [row["id"] for row in rows]
        if config.model is None and len(names) != 1:
            raise UserError(
                f"the server at {config.url} serves these models: {', '.join(names[:8]) or 'none'};"
                " say which one is meant by its name"
            )
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
        raise UserError(
            f"the server at {url} tells no log-probabilities of a prompt ({said}); score with the "
            "checkpoint directory, or serve the model with vLLM"
        )


@dataclass(frozen=True, kw_only=True)
class Served:
    """Where a checkpoint is served: the address up to `/v1`, and the name it is
    served by (`None`: the only one).
    """

    url: str
    model: str | None = None


def served_of(url: str | None, model: str | None, option: str) -> Served | None:
    """`None` without an address. `option`: the one that gives the address. Raises `UserError`."""
    if url is None and model is not None:
        raise UserError(f"{option}-model names what a server serves; give {option} too")
    return None if url is None else Served(url=url, model=model)


def open_served(served: Served, directory: Path) -> tuple[PolicyRef, str]:
    """The side, and the policy's name in records: its content hash, or that of
    what is served.

    Raises `UserError` where nobody answers, or no log-probabilities of a prompt
    are told.
    """
    folder = directory.expanduser()
    tokenizer = load_tokenizer(folder)
    policy: Any = ServerPolicy(
        ServerConfig(url=served.url, model=served.model),
        tokenizer=tokenizer,
        renderer=renderer_for(tokenizer, stop_tokens(folder)),
    )
    weights = any(folder.glob("model*.safetensors"))
    name = inspect_checkpoint(folder).identity if weights else f"{UNNAMED}{policy.served_as}"
    return PolicyRef(identity=None, load=lambda: policy), name
