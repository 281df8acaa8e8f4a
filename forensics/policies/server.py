"""A policy behind a server of completions (vLLM, SGLang): it scores, samples, plays and goes
on from inside known texts, all over HTTP. The tokenizer comes from the checkpoint's
directory; the weights need not be here.

1. *Scores*: a text goes in as token ids with `echo`, and the server tells the
   log-probability of every token but the first (vLLM does; one small request finds out).
   They are the model's own, so settings other than the plain ones are refused.
2. *Samples* (`server_engine`): prompts go in as token ids, what was drawn comes back as
   token ids with a log-probability each. `server_abilities` finds out, before the first
   draw, what the server really does; what is needed and missing is refused in one sentence.
3. The log-probability of a drawn token must be that of the distribution it was drawn from.
   Cut-off sampling (top-k, top-p) is refused, since servers tell the whole distribution's
   and every ratio would be biased; so are penalties. At a temperature other than 1
   the server must tell what it drew from (vLLM: `--logprobs-mode processed_logprobs`),
   which a few requests find out.

What the server really serves cannot be hashed, so nothing that it tells is kept, and
whether it is the policy that made some runs shows in the agreement with the sampler.
"""

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies.compatibility import load_tokenizer, stop_tokens
from forensics.policies.completions import Client, Declined, ServerConfig, Unanswered
from forensics.policies.episodes import EpisodeContext, start_actions, start_episodes, step_threads
from forensics.policies.renderers import renderer_for, style_of, tools_of
from forensics.policies.sequences import BranchedText
from forensics.policies.server_abilities import (
    SAMPLES,
    Abilities,
    answering,
    echoed_logprobs,
    probe,
    require_drawn_logprobs,
    require_echo,
    require_whole,
    served_model,
)
from forensics.policies.server_engine import ServedRun, ServerEngine
from forensics.protocols import (
    Capability,
    Constraint,
    Continuation,
    Environment,
    Intervention,
    Policy,
    Renderer,
    SamplingSettings,
)
from forensics.records import Trajectory

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
    config = ServerConfig(url=str(where), model=model)
    policy: Any = ServerPolicy(config, identity=identity, **rendering(checkpoint))
    opened: Policy = policy
    return opened


def rendering(checkpoint: str | Path | None) -> dict[str, Any]:
    """What `ServerPolicy` takes from a checkpoint's directory: tokenizer and stops."""
    if checkpoint is None:
        return {}
    folder = Path(checkpoint).expanduser()
    return {"tokenizer": load_tokenizer(folder), "extra_stops": tuple(stop_tokens(folder))}


class ServerPolicy:
    """A `Policy` behind a server. With a tokenizer it scores, samples and plays, without one
    it scores.

    `identity`: the content hash of what it serves, where known. `tokenizer`: the policy's
    own. `extra_stops`: further token ids that end an action. `scores`: whether it is asked
    for log-probabilities of given texts. `context_length`: tokens that fit, `None` where the
    server does not say. Raises `UserError` where there is no such server, or it is to
    score and tells no log-probabilities of a prompt.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        identity: str | None = None,
        tokenizer: Any = None,
        extra_stops: Sequence[int] = (),
        renderer: Renderer | None = None,
        scores: bool = True,
    ) -> None:
        self.client = Client(config)
        self.served_as, most = served_model(self.client)  # the name that the server has for it
        self.context_length = (
            None if most is None else most - 1
        )  # one token is drawn behind the text, and thrown away
        able = SAMPLES if tokenizer else frozenset[Capability]()
        self.capabilities = able | {"logprobs"} if scores else able
        self.identity = identity or f"server {config.url} {self.served_as}"
        self.tokenizer, self._extra_stops, self._given = tokenizer, extra_stops, renderer
        self.renderer: Any = renderer or self._rendered("auto")
        self.batch_rows = config.at_once
        self.fields: dict[str, Any] = {}  # further ones of every request that draws
        self.strict = False  # whether an episode left unanswered ends `play`
        self._found: dict[str, Abilities] = {}  # by what was asked; shared by every rendering
        if scores:
            require_echo(self.client, self.served_as)

    def rendered_for(self, environment: Environment) -> "ServerPolicy":
        """This policy with the rendering that `environment` asks for, and its stops."""
        if self._given is not None or self.tokenizer is None:
            return self
        other = copy.copy(self)
        other.renderer = self._rendered(style_of(environment), tools_of(environment))
        return other

    def _rendered(self, style: str, tools: Any = ()) -> Any:
        if not self.tokenizer:
            return None
        return renderer_for(self.tokenizer, self._extra_stops, style, tools)

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
        with ThreadPoolExecutor(min(32, self.client.config.at_once)) as pool:
            return list(pool.map(self._told, token_ids))

    def sample(
        self,
        prefixes: Sequence[Sequence[int]],
        n: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> list[list[Continuation]]:
        """`n` continuations of each prefix, one action long. Raises `UserError` where the
        server does not answer.
        """
        if not prefixes:
            return []
        _require_none(interventions)
        engine = self._engine(settings, prefixes[0])
        drivers = start_actions(prefixes, n, self.renderer, seed, constraint)
        groups = (
            [engine.start(driver, driver.ids) for driver in drivers[i : i + n]]
            for i in range(0, len(drivers), n)
        )
        for _ in engine.run(groups):
            pass
        results = iter(drivers)
        return [[next(results).result for _ in range(n)] for _ in prefixes]

    def play(
        self,
        environment: Environment,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Multi-turn episodes in the order of `tasks`. What the server leaves unanswered is an
        errored episode, or with `strict` a `UserError`.
        """
        _require_none(interventions)
        rendered = self.rendered_for(environment)
        context = EpisodeContext(
            renderer=rendered.renderer,
            policy=self.identity,
            environment=environment,
            seed=seed,
            constraint=constraint,
        )
        with step_threads(environment) as threads:
            episodes = start_episodes(context, tasks, samples, threads)
            playing = [episode for episode in episodes if episode.waiting]
            runs: dict[int, ServedRun] = {}
            if playing:
                engine = rendered._engine(settings, playing[0].ids)
                runs = {id(e): engine.start(e, e.ids, threads=threads) for e in playing}
            left = deque(episodes)
            for _ in engine.run([run] for run in runs.values()) if runs else ():
                while left and (id(left[0]) not in runs or runs[id(left[0])].over):
                    missed = runs[id(left[0])].missed if id(left[0]) in runs else None
                    if self.strict and missed is not None:
                        raise UserError(f"the server left a request unanswered ({missed})")
                    yield left.popleft().trajectory()
        yield from (episode.trajectory() for episode in left)

    def branch(self, texts: Sequence[BranchedText], settings: SamplingSettings) -> Iterator[None]:
        """Drive every branch of every text to its end; gives control back after each answer.
        The drivers are those of a server (`server_engine.ServedDriver`).
        """
        if texts:
            engine = self._engine(settings, texts[0].ids, told=False)
            yield from engine.run(_branch_runs(engine, texts))

    def prefix_caches(self, texts: Sequence[Sequence[int]]) -> None:
        """A server keeps what it has read, and shows it to nobody."""

    def _engine(
        self, settings: SamplingSettings, prompt: Sequence[int], told: bool = True
    ) -> ServerEngine:
        """What drives runs under these settings. `told`: with log-probabilities."""
        require_whole(settings)
        found, warm = self._found, f"logprobs at {settings.temperature:g}"
        if "draws" not in found:
            found["draws"] = probe(self.client, tuple(prompt), settings)
        abilities = replace(found["draws"], model=self.served_as)
        if told and warm not in found:
            require_drawn_logprobs(self.client, abilities, prompt, settings.temperature)
            found[warm] = abilities
        room = abilities.room or settings.max_tokens
        settings = replace(settings, max_tokens=min(settings.max_tokens, room))
        stops, fields = self.renderer.stops, self.fields
        return ServerEngine(self.client, abilities, stops, settings, told, fields)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Let the server load a LoRA adapter that peft saved, under a name to ask for
        (`served_as`), in place of one that had the name. Raises `UserError`.
        """
        with suppress(Declined):
            self.unload_adapter(name)
        try:
            with answering(self.client.config.url, declines=False):
                body = {"lora_name": name, "lora_path": str(folder)}
                self.client.tell("load_lora_adapter", body)
        except Declined as error:
            raise UserError(
                f"the server at {self.client.config.url} loads no adapter from {folder} ({error});"
                " serve with --enable-lora, a --max-lora-rank of at least the adapter's and"
                " VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, where that folder can be read"
            ) from error

    def unload_adapter(self, name: str) -> None:
        """Raises `Declined` where the server has no such adapter."""
        with answering(self.client.config.url, declines=False):
            self.client.tell("unload_lora_adapter", {"lora_name": name})

    def _told(self, ids: Sequence[int]) -> np.ndarray:
        if len(ids) < 2:
            return np.empty(0)
        try:
            logprobs = echoed_logprobs(self.client, self.served_as, ids)
        except (Unanswered, Declined) as error:
            raise UserError(
                f"the server at {self.client.config.url} could not score a text of {len(ids)}"
                f" tokens ({error}); see its log"
            ) from error
        if logprobs is None:
            raise UserError(
                f"the server at {self.client.config.url} told no log-probabilities for a text of "
                f"{len(ids)} tokens; see its log"
            )
        return logprobs


def _require_none(interventions: Sequence[Intervention]) -> None:
    if interventions:
        raise UserError(
            "a server changes no activations; give a checkpoint directory for interventions"
        )


def _branch_runs(engine: ServerEngine, texts: Sequence[BranchedText]) -> Iterator[list[ServedRun]]:
    for text in texts:
        for branch in text.branches:
            action = (*text.ids[branch.start : branch.kept], *branch.append)
            avoid = text.ids[branch.kept] if branch.avoid else None
            yield [
                engine.start(driver, text.ids[: branch.start], action, avoid)  # type: ignore[arg-type]
                for driver in branch.drivers
            ]
