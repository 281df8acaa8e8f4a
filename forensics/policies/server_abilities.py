"""What a server of completions really does, found by asking. Requests and answers are
those of `completions`.

A server may refuse a field, or take it and do nothing. So each ability is an experiment
with an answer that only a server which has it gives. Most are asked at a temperature of
2, after a prompt at which four draws differ.

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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.completions import (
    Choice,
    Client,
    Declined,
    Unanswered,
    drawn_ids,
    ids_body,
)
from forensics.protocols import Capability, SamplingSettings

SAMPLES: Final[frozenset[Capability]] = frozenset(
    {"tokens", "sample", "play", "constraint", "branches"}
)


TRIAL: Final = (1, 2, 3)
WHOLE: Final = ("top_k", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


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


def require_whole(settings: SamplingSettings) -> None:
    """Refuse settings under which a server's log-probabilities are not those of what it
    drew. Raises `UserError`.
    """
    for name in WHOLE:
        value = getattr(settings, name)
        if value != getattr(SamplingSettings, name):
            raise UserError(
                f"a server tells log-probabilities of the whole distribution, so {name} ="
                f" {value:g} would bias every ratio; leave it at its default, or sample in process"
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


def require_echo(client: Client, model: str) -> None:
    """Refuse a server that tells no log-probabilities of a prompt. Raises `UserError`."""
    said = "its answer has none"
    try:
        with answering(client.config.url, declines=False):
            if echoed_logprobs(client, model, TRIAL) is not None:
                return
    except Declined as error:
        said = str(error)
    raise UserError(
        f"the server at {client.config.url} tells no log-probabilities of a prompt ({said}); score"
        " with the checkpoint directory, or serve the model with vLLM"
    )


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
    names = [row["id"] for row in rows if not row.get("parent")]  # without adapters on one
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
    asked = _Probe(client, model, prompt)
    with answering(client.config.url):
        asked.require_ids()
        draws = asked.four_draws()
        seeds = asked.hot(SEED).ids == draws[0].ids
        asked.require_stops(draws[0] if seeds else None)
        asked.require_heeded(settings, HOT if seeds else 0.0)
        choices, bias = asked.choices(draws, seeds), asked.bias(draws[0])
        return Abilities(
            model=model, room=room, seeds=seeds, choices=choices, bias=bias, echo=asked.echo()
        )


def require_drawn_logprobs(
    client: Client, abilities: Abilities, prompt: Sequence[int], temperature: float
) -> None:
    """Refuse a server that does not tell the log-probability of each drawn token, or, at a
    `temperature` other than 1, tells the model's own. Raises `UserError`.

    The most probable token alone is drawn (top-k of 1), hot and not: what is told of it is
    the same number below 0 only where the model's own is told. A prompt behind which one
    token is certain tells nothing, so others are asked after too.
    """
    url = client.config.url
    warm = temperature not in (0, 1)
    with answering(url):
        told = [
            [_best_told(client, abilities.model, text, heat) for heat in (1.0, HOT)]
            for text in ((prompt, prompt[::-1], prompt[:1]) if warm else (prompt,))
        ]
    if any(None in pair for pair in told):
        raise UserError(
            f"the server at {url} does not tell the log-probability of what it draws; sample in"
            " process, or serve the policy with vLLM or SGLang"
        )
    if warm and any(cool == hot != 0 for cool, hot in told):
        raise UserError(
            f"the server at {url} tells the model's own log-probabilities, not those at the"
            f" temperature of {temperature:g} at which it draws; serve with --logprobs-mode"
            " processed_logprobs (vLLM), or sample at a temperature of 1"
        )


def _best_told(client: Client, model: str, prompt: Sequence[int], heat: float) -> float | None:
    settings = SamplingSettings(temperature=heat, top_k=1)
    body = ids_body(model, prompt, settings, max_tokens=1, seed=SEED, logprobs=1)
    choice = client.complete(body)[0]
    return choice.logprobs[0] if choice.logprobs else None


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

    def require_ids(self) -> None:
        """Ids in and out. A bare request tells a server that takes no ids from
        one that takes no further fields.
        """
        bare = {"model": self.model, "prompt": list(self.prompt), "max_tokens": 1}
        with self._needing("takes no token ids as a prompt"):
            self.client.complete(bare)
        with self._needing("refuses a field that is needed"):
            choice = self.hot(SEED)
        self._require(
            choice.prompt_length in (None, len(self.prompt)),
            f"counts {choice.prompt_length} tokens in a prompt of {len(self.prompt)} token ids",
        )
        self._require(
            choice.ids is not None and choice.length in (None, len(choice.ids)),
            "does not tell the ids of the tokens that it drew",
        )

    def four_draws(self) -> list[Choice]:
        """Answers to four seeds after the first prompt that tells them apart, which is kept."""
        draws: list[Choice] = []
        for prompt in (self.prompt, self.prompt[::-1], self.prompt[:1], self.prompt[:1] * 8):
            self.prompt = prompt
            draws = [self.hot(SEED + i) for i in range(4)]
            if len({choice.ids for choice in draws}) == len(draws):
                return draws
        self._require(len({choice.ids for choice in draws}) > 1, ONE_ANSWER)
        return draws

    def require_stops(self, first: Choice | None) -> None:
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

    def require_heeded(self, settings: SamplingSettings, heat: float) -> None:
        """That every setting that is on does something. `heat`: a temperature at which one
        request has one answer.
        """

        def answer(**fields: Any) -> Any:
            choice = self.hot(**fields)
            return choice.ids, choice.text

        on: dict[str, Any] = {"top_k": 1} if settings.top_k else {}
        on |= {"top_p": TINY} if settings.top_p < 1 else {}
        best = answer(temperature=0.0, max_tokens=1) if on else None
        for name, value in on.items():
            drawn = (answer(seed=SEED + i, max_tokens=1, **{name: value}) for i in range(4))
            self._require(all(one == best for one in drawn), f"does nothing with {name}")
        if settings.repetition_penalty != 1:
            absurd = answer(temperature=heat, repetition_penalty=ABSURD)
            heeded = absurd != answer(temperature=heat)
            self._require(heeded, "does nothing with repetition_penalty")

    def choices(self, singles: list[Choice], seeds: bool) -> bool:
        try:
            several = self._ask(temperature=HOT, n=len(singles), exact=False)
        except Declined:
            return False
        ids = [choice.ids for choice in several]
        if len(ids) != len(singles):
            return False
        return ids == [choice.ids for choice in singles] if seeds else len(set(ids)) == len(ids)

    def bias(self, unlikely: Choice) -> bool:
        try:
            best = self._ask(temperature=0.0, max_tokens=1)[0].ids or ()
            kept = self._ask(temperature=0.0, max_tokens=1, bias={best[0]: -100.0})[0].ids
            rare = (unlikely.ids or ())[0]
            forced = self._ask(max_tokens=1, bias={rare: 100.0})[0].ids
        except Declined:
            return False
        return kept != best and forced == (rare,)

    def echo(self) -> bool:
        try:
            told = echoed_logprobs(self.client, self.model, self.prompt)
        except Declined:
            return False
        return told is not None and len(told) > 0

    def hot(self, seed: int = SEED, **fields: Any) -> Choice:
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
