"""What a server really does, found by asking: names and versions say nothing.

A server may refuse a field, or take it and do nothing. So each ability is an
experiment with an answer that only a server which has it gives. Most are asked
at a temperature of 2 (servers refuse more), after a prompt at which four draws
of sixteen tokens differ: the policy's own, or, where it is too sure of itself
there, one that it never meets.

1. *Ids in*: a prompt of token ids is taken, and the server counts as many
   tokens as were sent.
2. *Ids out*: the answer names the drawn tokens, as many as it says it drew.
3. *Draws*: four seeds do not all give one answer (a greedy server ignores the
   temperature).
4. *Seeds*: one seed gives one answer twice. *Choices*: choice i of `n` is the
   answer to the seed plus i; where it is not, one request is sent for each
   continuation, so that no two of them share their random numbers unnoticed.
5. *Stops*: with its own middle token named as an end, the same answer ends
   there.
6. *Bias*: a bias of -100 keeps the most probable token from being drawn, one of
   100 forces an improbable one.
7. *Settings* (only where they are on): top-k of 1, and a tiny top-p, give the
   most probable token; an absurd repetition penalty changes the answer.
8. *Echo*: the log-probabilities of the prompt's tokens are told.

Every field that a server would otherwise take from the model's own generation
settings is sent, so that the settings of the request are the settings of the
draw. `top_k` is -1 where it is off, which vLLM and SGLang both take.

*Token ids* (`ids_body`): the prompt as ids, ids back, actions ended by
`stop_token_ids`. Choice i of `n` is taken to be drawn with the seed plus i (as
vLLM does), and the probe finds out whether it is.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies.completions import Choice, Client, Declined, Unanswered
from forensics.policies.server import declined, served_model
from forensics.protocols import SamplingSettings


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
    """A request with the prompt as token ids. `more`: fields sent as they are."""
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
def answering(url: str) -> Iterator[None]:
    """A probed server that is gone, or refuses, in one sentence."""
    try:
        yield
    except Unanswered as error:
        raise UserError(f"the server at {url} does not answer: {error}; see its log") from error
    except Declined as error:
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
            told = self._ask(max_tokens=1, logprobs=1, echo=True)[0].logprobs or ()
        except Declined:
            return False
        scored = told[1 : len(self.prompt)]
        return len(self.prompt) > 1 and len(scored) == len(self.prompt) - 1 and None not in scored

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
