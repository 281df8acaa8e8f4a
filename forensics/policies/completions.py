"""Completions over HTTP: one request in, checked answers out, or one sentence
why not.

1. A request is sent up to `tries` times. What may pass (below; an
   answer that is no JSON, or has other than the asked number of choices, too)
   is tried again after a pause; then it is an `Unanswered`, which a sampler
   records as missing.
2. What will not pass (any other status) is a `Declined` at once, with the
   server's own words.
3. An answer is read with a limit on its time as a whole and on its size, so
   that a server that never ends one cannot hold us; no redirect is followed,
   and the key is never part of a message.

The fields are those of OpenAI's completions, with `return_token_ids`,
`stop_token_ids` and `top_k` as vLLM and SGLang have them; what a server really
does with them is for `probe` to find out.

A server that failed is asked again by one rule, for all that ask servers:

1. A refused or broken connection, silence, status 408, 409, 425, 429 or 5xx and an answer that
   cannot be read may pass, so they are tried again; any other status is final.
2. The pause before another try doubles from try to try. After a 429 it starts longer (`busy`),
   since whoever keeps the server busy goes on doing so.
3. Where the server says for how many seconds to wait (`Retry-After`), that takes the place of
   `busy`, and the pause is no shorter. None is longer than `longest`.
"""

import json
import math
import re
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, Final, TypeVar

import httpx

from forensics.errors import UserError
from forensics.protocols import SamplingSettings

LONGEST_PAUSE: Final = 30.0  # seconds
PASSING: Final = frozenset({408, 409, 425, 429})  # statuses below 500 that another try may mend
BUSY: Final = 429


class Broken(Exception):
    """An answer that is not what was asked for. Tried again, then `Unanswered`.

    `asked`: seconds that the server wants to be left alone, 0 where it says none; `busy`: it
    had too much to do.
    """

    def __init__(self, message: str, asked: float = 0.0, busy: bool = False) -> None:
        super().__init__(message)
        self.asked, self.busy = asked, busy


def passing(status: int, headers: Mapping[str, str], words: str) -> Broken | None:
    """A status that another try may mend; `None` for any other. `words`: the server's."""
    if status < 500 and status not in PASSING:
        return None
    told = headers.get("retry-after", "")
    asked = float(told) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", told) else 0.0
    return Broken(f"status {status}: {words}", asked, busy=status == BUSY)


def pause_before(
    number: int, error: Exception, *, pause: float, busy: float, longest: float = LONGEST_PAUSE
) -> float:
    """Seconds to wait before try `number` (the first is 0) after `error`."""
    met = error if isinstance(error, Broken) else Broken("")
    first = busy if met.busy and not met.asked else pause
    return min(max(met.asked, first * 2.0 ** (number - 1)), longest)


LARGEST_ANSWER: Final = 64 * 2**20  # bytes

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


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where the server is and how patient we are.

    `url`: the address up to and with `/v1`. `model`: the name it serves
    (`None`: its only one). `key`: sent as a bearer token, in no record.
    `timeout`: seconds for one answer. `tries`: times a request is sent.
    `pause`: seconds before the second try, doubled for each further one (`busy`:
    after a 429 that names no time).
    `at_once`: requests under way at a time. `most_choices`: the largest `n`.
    """

    url: str
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    timeout: float = 300.0
    tries: int = 4
    pause: float = 0.5
    busy: float = 5.0
    at_once: int = 64
    most_choices: int = 64

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UserError(
                f"the server's address must begin with http:// or https://, not '{self.url}'"
            )
        try:
            httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise UserError(
                f"the server's address '{self.url}' is none ({error}); mend it"
            ) from None
        if (
            min(self.tries, self.at_once, self.most_choices) < 1
            or self.timeout <= 0
            or min(self.pause, self.busy) < 0
        ):
            raise UserError(
                "tries, at_once and most_choices must be at least 1, timeout above 0, pause and"
                " busy at least 0"
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
    """Sends requests; safe to share between threads. `sleep`: waits for so many seconds."""

    def __init__(self, config: ServerConfig, sleep: Callable[[float], None] = time.sleep) -> None:
        self.config, self._sleep = config, sleep
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
        return self._tried("GET", "models", None, lambda content: _models(_json(content)))

    def complete(self, body: Mapping[str, Any], *, exact: bool = True) -> list[Choice]:
        """The choices of one request, in the order of their index. Raises
        `Unanswered`, `Declined`.

        `exact`: an answer with other than `n` choices is none.
        """
        wanted = body.get("n", 1) if exact else None
        read = lambda content: read_choices(_json(content), wanted)  # noqa: E731
        return self._tried("POST", "completions", body, read)

    def tell(self, path: str, body: Mapping[str, Any]) -> None:
        """A request whose answer says that it was done. Raises `Unanswered`, `Declined`."""
        self._tried("POST", path, body, lambda content: None)

    def _tried(
        self, method: str, path: str, body: Mapping[str, Any] | None, read: Callable[[bytes], T]
    ) -> T:
        config, met = self.config, Exception("nothing")
        for number in range(config.tries):
            if number:
                self._sleep(pause_before(number, met, pause=config.pause, busy=config.busy))
            try:
                return read(self._once(method, path, body))
            except (httpx.HTTPError, httpx.InvalidURL, Broken) as error:
                met = error
        times = "one try" if config.tries == 1 else f"{config.tries} tries"
        reached = not isinstance(met, httpx.ConnectError | httpx.ConnectTimeout)
        raise Unanswered(f"the server gave no usable answer in {times} ({_words(met)})", reached)

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> bytes:
        """The bytes of one answer. Raises `Declined`, `Broken` or an error of httpx."""
        end = time.monotonic() + self.config.timeout
        with self._http.stream(method, path, json=body) as response:
            content = _content(response, end, self.config.timeout)
        if broken := passing(response.status_code, response.headers, _shown(content)):
            raise broken
        if response.status_code != 200:
            raise Declined(response.status_code, _shown(content))
        return content


def _json(content: bytes) -> Any:
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


def ids_body(
    model: str,
    prompt: Sequence[int],
    settings: SamplingSettings,
    *,
    max_tokens: int,
    seed: int,
    n: int = 1,
    stops: Collection[int] = (),
    bias: Mapping[int, float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A request with the prompt as token ids, and every field that a server would otherwise
    take from the model's own settings. `more`: fields sent as they are.
    """
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "n": n,
        "seed": seed,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,
        "min_p": 0.0,
        "repetition_penalty": settings.repetition_penalty,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": sorted(stops),
        "skip_special_tokens": False,
        "return_token_ids": True,
        **more,
    }
    if bias:
        body["logit_bias"] = {str(token): value for token, value in bias.items()}
    return body


def drawn_ids(choice: Choice, stops: Collection[int]) -> tuple[int, ...] | None:
    """The tokens of a choice, the one that ended it included; `None` where the
    answer does not say them whole.

    A server that leaves the ending token out must name it beside them.
    """
    ids = choice.ids
    if ids is None or any(token in stops for token in ids[:-1]):
        return None
    if choice.finish == "stop" and (not ids or ids[-1] not in stops):
        ended = choice.stopped_by
        return (*ids, ended) if isinstance(ended, int) and ended in stops else None
    return ids or None
