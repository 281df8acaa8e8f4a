"""Completions over HTTP: one request in, checked answers out, or one sentence
why not.

1. A request is sent up to `tries` times. What may pass (a refused or broken
   connection, no answer in time, status 408, 429 or 5xx, an answer that is no
   JSON or has other than the asked number of choices) is tried again after a
   pause that doubles; then it is an `Unanswered`, which a sampler records as
   missing.
2. What will not pass (any other status) is a `Declined` at once, with the
   server's own words.
3. An answer is read with a limit on its time as a whole and on its size, so
   that a server that never ends one cannot hold us; no redirect is followed,
   and the key is never part of a message.

The fields are those of OpenAI's completions, with `return_token_ids`,
`stop_token_ids` and `top_k` as vLLM and SGLang have them; what a server really
does with them is for `probe` to find out.
"""

import json
import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, Final, TypeVar

import httpx
import numpy as np

from forensics.errors import UserError

LARGEST_ANSWER: Final = 64 * 2**20  # bytes
LONGEST_PAUSE: Final = 30.0  # seconds
PASSING: Final = frozenset({408, 409, 425, 429})  # statuses below 500 that another try may mend

T = TypeVar("T")


class Unanswered(Exception):
    """No usable answer within the tries; the message says what the last one
    met. `reached`: somebody was there.
    """

    def __init__(self, message: str, reached: bool = True) -> None:
        super().__init__(message)
        self.reached = reached


class Declined(Exception):
    """The server understood and refused; `status` and its own words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"status {status}: {words}")
        self.status, self.words = status, words


class Broken(Exception):
    """An answer that is not what was asked for. Tried again, then `Unanswered`."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where the server is and how patient we are.

    `url`: the address up to and with `/v1`. `model`: the name it serves
    (`None`: its only one). `key`: sent as a bearer token, in no record.
    `timeout`: seconds for one answer. `tries`: times a request is sent.
    `pause`: seconds before the second try, doubled for each further one.
    `at_once`: requests under way at a time. `most_choices`: the largest `n`.
    """

    url: str
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    timeout: float = 300.0
    tries: int = 4
    pause: float = 0.5
    at_once: int = 64
    most_choices: int = 64

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UserError(
                f"the server's address must begin with http:// or https://, not '{self.url}'"
            )
        if (
            min(self.tries, self.at_once, self.most_choices) < 1
            or self.timeout <= 0
            or self.pause < 0
        ):
            raise UserError(
                "tries, at_once and most_choices must be at least 1, timeout above 0 and pause at"
                " least 0"
            )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One continuation as a server told it; `None` where it did not.

    `logprobs`: nats, one for each of `ids` (with `echo`: one for each token of
    the prompt too, the first `None`).
    `stopped_by`: the token id or string that ended it.
    `prompt_length`, `length`: tokens as the server counts them, over all
    choices of the answer.
    """

    text: str
    ids: tuple[int, ...] | None
    logprobs: tuple[float | None, ...] | None
    finish: str | None
    stopped_by: int | str | None
    prompt_length: int | None
    length: int | None


class Client:
    """Sends requests; safe to share between threads."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        headers = {"Authorization": f"Bearer {config.key}"} if config.key else {}
        limits = httpx.Limits(
            max_connections=config.at_once, max_keepalive_connections=config.at_once
        )
        self._http = httpx.Client(
            base_url=config.url.rstrip("/") + "/",
            headers=headers,
            limits=limits,
            timeout=config.timeout,
        )
        weakref.finalize(self, self._http.close)

    def models(self) -> list[Mapping[str, Any]]:
        """What the server says it serves, each with an `id`. Raises `Unanswered`, `Declined`."""
        return self._tried("GET", "models", None, _models)

    def complete(self, body: Mapping[str, Any], *, exact: bool = True) -> list[Choice]:
        """The choices of one request, in the order of their index. Raises
        `Unanswered`, `Declined`.

        `exact`: an answer with other than `n` choices is none.
        """
        wanted = body.get("n", 1) if exact else None
        return self._tried("POST", "completions", body, lambda answer: read_choices(answer, wanted))

    def _tried(
        self, method: str, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T]
    ) -> T:
        config, said, reached = self.config, "nothing", False
        for number in range(config.tries):
            if number:
                time.sleep(min(config.pause * 2 ** (number - 1), LONGEST_PAUSE))
            try:
                return read(self._once(method, path, body))
            except (httpx.HTTPError, httpx.InvalidURL, Broken) as error:
                said, reached = (
                    _words(error),
                    not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout),
                )
        times = "one try" if config.tries == 1 else f"{config.tries} tries"
        raise Unanswered(f"the server gave no usable answer in {times} ({said})", reached)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """The JSON of one answer. Raises `Declined`, `Broken` or an error of httpx."""
        end = time.monotonic() + self.config.timeout
        with self._http.stream(method, path, json=body) as response:
            content = _content(response, end, self.config.timeout)
        if response.status_code >= 500 or response.status_code in PASSING:
            raise Broken(f"status {response.status_code}: {_shown(content)}")
        if response.status_code != 200:
            raise Declined(response.status_code, _shown(content))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Broken(f"an answer that is no JSON: {_shown(content)}") from error


def _content(response: httpx.Response, end: float, limit: float) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > LARGEST_ANSWER:
            raise Broken(f"an answer of more than {LARGEST_ANSWER} bytes")
        if time.monotonic() > end:
            raise Broken(f"an answer that had not ended after {limit:g} s")
    return b"".join(parts)


def _words(error: Exception) -> str:
    if isinstance(error, Broken):
        return str(error)
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    return shorten(f"{type(error).__name__}: {error}", 200, placeholder=" ...")


def _shown(content: bytes) -> str:
    return shorten(content.decode(errors="replace"), 200, placeholder=" ...") or "no words"


def _models(answer: Any) -> list[Mapping[str, Any]]:
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows
    ):
        raise Broken("a list of models without their names")
    return rows


def read_choices(answer: Any, wanted: int | None) -> list[Choice]:
    """The `wanted` choices of an answer. Raises `Broken` where it has more or
    fewer, or one is malformed.
    """
    rows = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Broken("an answer without choices")
    if wanted is not None and len(rows) != wanted:
        raise Broken(f"{len(rows)} choices where {wanted} were asked for")
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    counts = _whole(usage.get("prompt_tokens")), _whole(usage.get("completion_tokens"))
    by_index = {row.get("index", place): row for place, row in enumerate(rows)}
    if set(by_index) != set(range(len(rows))):
        raise Broken("choices that are not numbered from 0")
    return [_choice(by_index[place], *counts) for place in range(len(rows))]


def _choice(row: Mapping[str, Any], prompt_length: int | None, length: int | None) -> Choice:
    told = row.get("logprobs")
    told = told if isinstance(told, dict) else {}
    text, finish = row.get("text"), row.get("finish_reason")
    if not isinstance(text, str) or not isinstance(finish, str | None):
        raise Broken("a choice without text")
    if finish not in ("stop", "length", None):
        raise Broken(f"a choice that ended on '{shorten(finish, 40)}'")
    stopped_by = row.get("stop_reason", row.get("matched_stop"))
    logprobs = told.get("token_logprobs")
    return Choice(
        text=text,
        ids=_ids(row, told),
        logprobs=tuple(float(x) if _number(x) else None for x in logprobs)
        if isinstance(logprobs, list)
        else None,
        finish=finish,
        stopped_by=stopped_by if isinstance(stopped_by, int | str) else None,
        prompt_length=prompt_length,
        length=length,
    )


def _ids(row: Mapping[str, Any], told: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Token ids, or those that older servers write as `token_id:N` beside the log-probabilities."""
    ids = row.get("token_ids")
    if ids is None:
        names = told.get("tokens")
        if not isinstance(names, list) or not names:
            return None
        parts = [str(name).partition("token_id:") for name in names]
        ids = [
            int(number) if head == "" and number.isdecimal() else None for head, _, number in parts
        ]
        if None in ids:
            return None
    if not isinstance(ids, list) or any(_whole(i) is None for i in ids):
        raise Broken("token ids that are no whole numbers")
    return tuple(ids)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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
