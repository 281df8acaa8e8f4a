"""A sampler whose policy is a server of texts, as `transformers serve` is: exact, or
missing.

Such a server tokenises the prompt itself, has no `n` and tells neither tokens
nor log-probabilities. What can still be exact is the outcome of a run's last
action:

1. *Start*: the prefix is sent as its text, and only where that text has the
   very tokens of the prefix: checked with our tokenizer, and against the number
   of tokens that the server counts. Any other prefix gives missing rollouts.
2. *Draw*: one request for each continuation, one at a time, since such servers
   seed the whole process. The settings and the ending tokens go in the
   library's own `generation_config`, as a JSON text.
3. *End*: the environment takes the text. A run that goes on after its action is
   refused, since the tokens behind that text, which the next prompt must hold,
   are not known.

What is lost: `tokens` is empty and `followed` 0, so no rollout serves another
prefix; `avoid` cannot be asked; an action whose last allowed token ended it
counts as cut. Abilities are found by asking, as in
`forensics.policies.server_abilities`.
"""

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies import (
    HOT,
    LENGTH,
    ONE_ANSWER,
    SEED,
    Choice,
    Client,
    Declined,
    ServedRun,
    Unanswered,
    answering,
    require_sendable,
    served_model,
    unheeded,
)
from forensics.protocols import SamplingSettings
from forensics.records import content_hash
from resampling.samplers.branches import BranchPoint, BranchPoints, BranchRun
from resampling.trace_rollouts import Request, Rollout

NOT_ITS_TEXT: Final = (
    "this prefix has other tokens than its text, so a server of texts cannot continue it"
)
MISCOUNTED: Final = "the server counted other tokens in the prompt than were sent as text"
GARBLED: Final = "the text of an answer cannot be put behind the action that it continues"


class TextSampler:
    """A `Sampler` over HTTP for runs that end with the action that is drawn."""

    def __init__(
        self,
        client: Client,
        points: BranchPoints,
        tokenizer: Any,
        settings: SamplingSettings,
        seed: int,
        policy: str,
        prompt: tuple[int, ...],
    ) -> None:
        """`prompt`: a prefix to probe the server with. Raises `UserError` where a need is unmet."""
        require_sendable(settings)
        self._client, self._points, self._tokenizer = client, points, tokenizer
        self._rendering = points.renderer
        self.model, room = served_model(client)
        self._settings = replace(
            settings, max_tokens=min(settings.max_tokens, room or settings.max_tokens)
        )
        self._seed, self.fingerprint = seed, points.fingerprint
        self.identity = content_hash(
            ["text-server", policy, points.identity, self._settings.content(), seed]
        )
        self._probe(prompt)

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, one after the other."""
        for request in requests:
            if request.avoid:
                raise UserError(
                    "a server of texts does not tell which token it drew first, so none can be"
                    " avoided; serve the policy with vLLM or SGLang"
                )
            point = self._points.of(request)
            for number in request.numbers:
                finished = deque[Rollout]()
                self._play(point, number, finished)
                yield replace(finished[0], tokens=(), followed=0)

    def _play(self, point: BranchPoint, number: int, finished: deque[Rollout]) -> None:
        """Draw the rest of the running action and let the environment take it."""
        driver = BranchRun(point, number, finished)
        action = list(point.action)
        stops = self._rendering.stops
        run = ServedRun(driver, self._settings, stops, list(point.before), action)
        if run.over:
            return None
        text = self._text(run.prompt)
        if text is None:
            return run.miss(NOT_ITS_TEXT)
        trace, kept, _, append = point.request.branch
        seed = int(content_hash([self._seed, trace, kept, list(append), number], 8), 16)
        try:
            choice = self._ask(text, self._settings, stops, run.room, seed)
        except (Unanswered, Declined) as error:
            return run.miss(str(error))
        if choice.prompt_length != len(run.prompt):
            return run.miss(MISCOUNTED)
        return self._act(run, choice, point.trace.task)

    def _act(self, run: ServedRun, choice: Choice, task: str) -> None:
        """The environment takes the action's text, carried by tokens that stand for no others."""
        known = self._tokenizer.decode(run.action, skip_special_tokens=True)
        wanted = (known + choice.text).strip()
        words = {"add_special_tokens": False, "split_special_tokens": True}
        drawn = self._tokenizer(choice.text, **words)["input_ids"] if choice.text else ()
        carrier = (*run.action, *drawn)
        if self._rendering.action_text(carrier) != wanted:
            return run.miss(GARBLED)
        stop = "length" if choice.finish == "length" else "stop-token"
        if run.driver.action_ended(carrier, (), stop) is not None:
            raise UserError(
                f"the run of task {task} goes on after an action, which a server of texts cannot"
                " continue exactly; serve the policy with vLLM or SGLang"
            )
        return None

    def _text(self, ids: list[int]) -> str | None:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text if list(self._tokenizer(text)["input_ids"]) == ids else None

    def _ask(
        self, text: str, settings: SamplingSettings, stops: Collection[int], room: int, seed: int
    ) -> Choice:
        generation: dict[str, Any] = {
            "do_sample": settings.temperature > 0,
            "max_new_tokens": room,
            "eos_token_id": sorted(stops),
            "pad_token_id": min(stops),
            "repetition_penalty": settings.repetition_penalty,
        }
        if settings.temperature > 0:
            for name in ("temperature", "top_k", "top_p"):
                generation[name] = getattr(settings, name)
        body = {
            "model": self.model,
            "prompt": text,
            "max_tokens": room,
            "seed": seed,
            "generation_config": json.dumps(generation),
        }
        return self._client.complete(body)[0]

    def _probe(self, prompt: tuple[int, ...]) -> None:
        """Whether it samples, keeps seeds, ends where it is told to, and heeds
        the settings that are on.
        """
        url, text = self._client.config.url, self._text(list(prompt))
        if text is None:
            raise UserError(f"{NOT_ITS_TEXT}; serve the policy with vLLM or SGLang")
        with answering(url):
            unmet = self._unmet(text, len(prompt))
        if unmet:
            raise UserError(f"the server at {url} {unmet}; serve the policy with vLLM or SGLang")

    def _unmet(self, text: str, length: int) -> str | None:
        def hot(
            stops: Collection[int] = self._rendering.stops,
            seed: int = SEED,
            max_tokens: int = LENGTH,
            **fields: Any,
        ) -> Choice:
            settings = SamplingSettings(**{"temperature": HOT, **fields})
            return self._ask(text, settings, stops, max_tokens, seed)

        first, again, *others = [hot(seed=SEED + i) for i in (0, 0, 1, 2, 3)]
        if first.prompt_length != length:
            return f"counts {first.prompt_length} tokens in the text of a prompt of {length}"
        if first.text != again.text:
            return "does not give one answer to one seed"
        if all(other.text == first.text for other in others):
            return ONE_ANSWER
        # ending at every even token, or at every odd one: exactly one of them ends at once
        for seed in (SEED, SEED + 1):
            ends = (range(odd, len(self._tokenizer), 2) for odd in (0, 1))
            if sum(hot(stops, seed).length == 1 for stops in ends) != 1:
                return "does not end an answer at the token ids that it is told to end at"
        name = unheeded(hot, self._settings)
        return name and f"does nothing with {name}"
