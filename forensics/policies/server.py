"""OpenAI-compatible servers (vLLM, SGLang): a policy that scores behind one, and what a
server really does, found by asking. Requests and answers are those of `completions`.

*A policy* (`ServerPolicy`): a text goes in as token ids with `echo`, and the server tells
the log-probability of every token but the first (vLLM does; one small request finds
out). They are the model's own, so settings other than the plain ones are refused. The
tokenizer comes from the checkpoint's directory. What the server really serves cannot be
hashed, so nothing that it tells is kept, and whether it is the policy that made the
runs shows in the agreement with the sampler.

*A probe* (`probe`): a server may refuse a field, or take it and do nothing. So each
ability is an experiment with an answer that only a server which has it gives. Most are
asked at a temperature of 2, after a prompt at which four draws differ.

1. *Ids in*: a prompt of token ids is taken and counted. *Ids out*: the answer names the
   drawn tokens. *Draws*: four seeds do not all give one answer.
2. *Seeds*: one seed gives one answer twice. *Choices*: choice i of `n` is the answer to
   the seed plus i; where it is not, each continuation has a request of its own.
3. *Stops*: with its own middle token named as an end, the same answer ends there.
4. *Bias*: a bias of -100 keeps the most probable token from being drawn, one of
   100 forces an improbable one.
5. *Settings* that are on: top-k of 1, and a tiny top-p, give the most probable token; an
   absurd repetition penalty changes the answer. *Echo*: the prompt is scored.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.compatibility import load_tokenizer, stop_tokens
from forensics.policies.completions import (
    Choice,
    Client,
    Declined,
    ServerConfig,
    Unanswered,
    declined,
    echoed_logprobs,
    served_model,
)
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
        url, said = self._client.config.url, "its answer has none"
        try:
            with answering(url, declines=False):
                if echoed_logprobs(self._client, self.served_as, TRIAL) is not None:
                    return
        except Declined as error:
            said = str(error)
        raise UserError(
            f"the server at {url} tells no log-probabilities of a prompt ({said}); score with the "
            "checkpoint directory, or serve the model with vLLM"
        )


def require_sendable(settings: SamplingSettings) -> None:
    """Refuse settings that a server cannot be told for a prefix inside an
    action. Raises `UserError`.
    """
    if settings.penalises_output:
        raise UserError(
            "presence_penalty and frequency_penalty count the tokens of the running action, and a"
            " server counts those of its own answer; sample with the policy itself, or without"
            " these penalties"
        )


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


HOT: Final = 2.0
ONE_ANSWER: Final = (
    f"gives one answer to four seeds at a temperature of {HOT:g}, so it does not sample"
)
LENGTH: Final = 16
SEED: Final = 11
TINY: Final = 1e-6
ABSURD: Final = 1e-4


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What the probe found. `room`: tokens of prompt and answer together,
    `None` where the server does not say.
    """

    model: str
    room: int | None
    seeds: bool
    choices: bool
    bias: bool
    echo: bool


def probe(client: Client, prompt: tuple[int, ...], settings: SamplingSettings) -> Abilities:
    """Ask everything. `prompt`: token ids that the policy really meets. Raises
    `UserError` where a need is unmet.
    """
    model, room = served_model(client)
    with answering(client.config.url):
        return _Probe(client, model, prompt).all(settings, room)


def unheeded(
    ask: Callable[..., Choice], settings: SamplingSettings, heat: float = HOT
) -> str | None:
    """The name of a setting that is on and does nothing. `ask`: for the fields of a
    request; `heat`: a temperature at which one request has one answer.
    """

    def answer(**fields: Any) -> Any:
        choice = ask(**fields)
        return choice.ids, choice.text

    on: dict[str, Any] = {"top_k": 1} if settings.top_k else {}
    on |= {"top_p": TINY} if settings.top_p < 1 else {}
    best = answer(temperature=0.0, max_tokens=1) if on else None
    for name, value in on.items():
        drawn = (answer(seed=SEED + i, max_tokens=1, **{name: value}) for i in range(4))
        if any(one != best for one in drawn):
            return name
    absurd = {"temperature": heat, "repetition_penalty": ABSURD}
    if settings.repetition_penalty != 1 and answer(**absurd) == answer(temperature=heat):
        return "repetition_penalty"
    return None


@contextmanager
def answering(url: str, declines: bool = True) -> Iterator[None]:
    """A server that is gone, or (`declines`) refuses, in one sentence."""
    try:
        yield
    except Unanswered as error:
        raise UserError(f"the server at {url} does not answer: {error}; see its log") from error
    except Declined as error:
        if not declines:
            raise
        raise declined(url, error) from error


@dataclass
class _Probe:
    client: Client
    model: str
    prompt: tuple[int, ...]

    def all(self, settings: SamplingSettings, room: int | None) -> Abilities:
        self._require_ids()
        first, *others = self._four_draws()
        seeds = self._hot(SEED).ids == first.ids
        self._require_stops(first if seeds else None)
        name = unheeded(self._hot, settings, HOT if seeds else 0.0)
        self._require(name is None, f"does nothing with {name}")
        return Abilities(
            model=self.model,
            room=room,
            seeds=seeds,
            choices=self._choices([first, *others], seeds),
            bias=self._bias(first),
            echo=self._echo(),
        )

    def _require_ids(self) -> None:
        """Ids in and out. A bare request tells a server that takes no ids from
        one that takes no further fields.
        """
        bare = {"model": self.model, "prompt": list(self.prompt), "max_tokens": 1}
        with self._needing("takes no token ids as a prompt"):
            self.client.complete(bare)
        with self._needing("refuses a field that is needed"):
            choice = self._hot(SEED)
        self._require(
            choice.prompt_length in (None, len(self.prompt)),
            f"counts {choice.prompt_length} tokens in a prompt of {len(self.prompt)} token ids",
        )
        self._require(
            choice.ids is not None and choice.length in (None, len(choice.ids)),
            "does not tell the ids of the tokens that it drew",
        )

    def _four_draws(self) -> list[Choice]:
        """Answers to four seeds after the first prompt that tells them apart, which is kept."""
        draws: list[Choice] = []
        for prompt in (self.prompt, self.prompt[::-1], self.prompt[:1], self.prompt[:1] * 8):
            self.prompt = prompt
            draws = [self._hot(SEED + i) for i in range(4)]
            if len({choice.ids for choice in draws}) == len(draws):
                return draws
        self._require(len({choice.ids for choice in draws}) > 1, ONE_ANSWER)
        return draws

    def _require_stops(self, first: Choice | None) -> None:
        """`first`: an answer that its seed gives again; without one the greedy answer serves."""
        heat = 0.0 if first is None else HOT
        ids = (first or self._ask(temperature=heat)[0]).ids or ()
        token = ids[len(ids) // 2]
        stopped = self._ask(temperature=heat, stops={token})[0]
        self._require(
            stopped.finish == "stop" and drawn_ids(stopped, {token}) == ids[: ids.index(token) + 1],
            "does not end an answer at the token ids that it is told to end at, or does not say"
            " which did",
        )

    def _choices(self, singles: list[Choice], seeds: bool) -> bool:
        try:
            several = self._ask(temperature=HOT, n=len(singles), exact=False)
        except Declined:
            return False
        ids = [choice.ids for choice in several]
        if len(ids) != len(singles):
            return False
        return ids == [choice.ids for choice in singles] if seeds else len(set(ids)) == len(ids)

    def _bias(self, unlikely: Choice) -> bool:
        try:
            best = self._ask(temperature=0.0, max_tokens=1)[0].ids or ()
            kept = self._ask(temperature=0.0, max_tokens=1, bias={best[0]: -100.0})[0].ids
            rare = (unlikely.ids or ())[0]
            forced = self._ask(max_tokens=1, bias={rare: 100.0})[0].ids
        except Declined:
            return False
        return kept != best and forced == (rare,)

    def _echo(self) -> bool:
        try:
            told = echoed_logprobs(self.client, self.model, self.prompt)
        except Declined:
            return False
        return told is not None and len(told) > 0

    def _hot(self, seed: int = SEED, **fields: Any) -> Choice:
        return self._ask(**{"temperature": HOT, "seed": seed, **fields})[0]

    def _ask(
        self, *, max_tokens: int = LENGTH, seed: int = SEED, exact: bool = True, **fields: Any
    ) -> list[Choice]:
        """At a temperature of 1, unless the `fields` of the request say otherwise."""
        plain, sent = SamplingSettings(), {"max_tokens": max_tokens, "seed": seed, **fields}
        return self.client.complete(ids_body(self.model, self.prompt, plain, **sent), exact=exact)

    @contextmanager
    def _needing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Declined as error:
            if error.status not in (400, 422):
                raise
            self._require(False, f"{what} (it says {error})")

    def _require(self, held: bool, otherwise: str) -> None:
        if not held:
            raise UserError(
                f"the server at {self.client.config.url} {otherwise}; exact prefixes need a server"
                " that takes and returns token ids, such as vLLM (0.10.2 or later) or SGLang"
            )
