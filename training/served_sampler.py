"""Episodes sampled by a server while a policy is trained here (`[server]` of a recipe).

Before each step the weights are brought to the server through a folder that both see:

1. With `[lora]` the adapter alone, as peft saves it: the server loads it under a name of
   its own a step (`/v1/load_lora_adapter`; vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)
   and lets the one before go.
2. Without, a whole checkpoint, and the command `reload` makes the server read it. Requests
   carry the step as `cache_salt`, so that no cached prefix of older weights serves.

Before an audit plays through a server, a few answers must show that it draws with the very
weights that are trained:

1. `TEXTS` prompts of held-out tasks are answered once each, with the audit's settings, and
   the model in memory says how probable each drawn token was.
2. The mean absolute difference is judged by the rule below; its first gap is
   that of the start. A server that kept older weights is beyond it, and no audit is made.
3. What plays is the server, under the identity of the weights in memory. A request that
   stays unanswered ends the audit: it is made whole, or not at all.

Server and trainer differ about the tokens that were drawn (`update.sampler_gap`); when that
is a fault:

1. The gap of a token is the difference of its two log-probabilities in nats, both of the
   policy before the update. Depth is how many tokens stand before it. A step's numbers
   are among its diagnostics: `sampler_gap` (mean of absolute gaps), `sampler_ratio` (mean
   of trainer / sampler probability), and both by depth, `sampler_gap_from_64` being that of
   64 tokens up to the next edge.
2. *The rule.* A step's sampler is at fault where its mean absolute gap is above
   `largest` (0.02 nats; healthy engines show some .0002, faults some .09), or above ten
   times that of the run's first step, a ten-thousandth of a nat at least: weights that stay
   behind are those of the start at first, and drift away. docs/training.md says how often
   it finds planted faults, and how often it is wrong.

What it cannot see: a server that draws from another distribution than the one whose
log-probabilities it tells. That is for `forensics check-server`
(`forensics.investigation.served_draws`) to ask.
"""

import logging
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import UserError
from forensics.policies import LEAST, Declined, ServerConfig, ServerPolicy
from forensics.protocols import Environment, Policy, Renderer, SamplingSettings
from forensics.records import Trajectory
from training.distributed import Process
from training.recipe import NotServed, ServerSection
from training.run_state import save_checkpoint

DRIFT: Final = 10.0


@dataclass(kw_only=True)
class GapWatch:
    """The rule, from step to step. `first`: the mean absolute gap of the run's first step."""

    largest: float
    first: float | None = None

    def fault(self, gap: float) -> str | None:
        """What is wrong with a step of this mean absolute gap, in one sentence."""
        if (said := self.excess(gap)) is None:
            return None
        return (
            f"{said}: it draws with other weights, another temperature or other positions than the"
            " trainer's; see sampler_gap by depth in metrics.jsonl, and whether the server takes"
            " new weights"
        )

    def excess(self, gap: float) -> str | None:
        """By how much a mean absolute gap is above what the rule allows, if it is."""
        if self.first is None and isfinite(gap):
            self.first = gap
        if self.first is None or not isfinite(gap):
            said = "which is no finite number"
        elif gap > self.largest:
            said = f"more than largest_gap = {self.largest:g}"
        elif gap > max(DRIFT * self.first, LEAST):
            said = f"more than {DRIFT:g} times the {self.first:.2g} of the first step"
        else:
            return None
        return f"the server and the trainer differ by {gap:.2g} nats a token, {said}"


TEXTS: Final = 8
TOKENS: Final = 64  # drawn behind each, at most


class PlayedByServer:
    """`server` as the policy of an audit: under the `identity` of the model in memory, and an
    unanswered request is raised as `NotServed`.
    """

    capabilities = frozenset({"play"})

    def __init__(self, server: ServerPolicy, identity: str) -> None:
        self._server, self.identity = copy(server), identity
        self._server.identity, self._server.strict = identity, True

    def play(self, *given: Any) -> Iterator[Trajectory]:
        """As `ServerPolicy.play`."""
        with as_not_served():
            yield from self._server.play(*given)


@contextmanager
def as_not_served() -> Iterator[None]:
    """What a server cannot do, as the failure of an audit."""
    try:
        yield
    except UserError as error:
        raise NotServed(str(error)) from error


def gap_shown(
    server: ServerPolicy,
    live: Policy,
    environment: Environment,
    settings: SamplingSettings,
    seed: int,
) -> float:
    """Mean absolute difference of log-probabilities, nats, between server and model about
    tokens that the server draws. Raises `UserError` where it draws none.
    """
    room = settings.max_turn_tokens
    few = replace(settings, max_turn_tokens=min(TOKENS, room))
    prompts = []
    for task in environment.tasks("held-out", TEXTS, 0)[:TEXTS]:
        start = environment.spawn().reset(task, 0)
        prompts.append(server.renderer.prompt(start.text, start.system))
    drawn = [one for [one] in server.sample(prompts, 1, few, seed)]
    rows = [[*prompt, *one.token_ids] for prompt, one in zip(prompts, drawn, strict=True)]
    told = np.concatenate([[], *(one.logprobs for one in drawn)])
    if not len(told):
        raise NotServed("the server drew no token behind the prompts of the held-out tasks")
    own = live.logprobs(rows, few)
    mine = [row[len(p) - 1 :] for row, p in zip(own, prompts, strict=True)]
    return float(np.abs(np.concatenate(mine) - told).mean())


def require_served(gap: float, largest: float, first: float | None) -> None:
    """Raise `NotServed` unless a gap may be that of the weights in memory."""
    if (said := GapWatch(largest=largest, first=first).excess(gap)) is not None:
        raise NotServed(
            f"{said}, so it serves other weights than those in memory, or draws otherwise; see"
            " whether it has loaded what it was told to"
        )


logger = logging.getLogger("forensics")
ALONE: Final = Process()


class ServedSampling:
    """`policy` samples from the server what `trained` is (its `model`, `tokenizer` and a name
    as `identity`). Raises `UserError` where there is no server, or no folder to bring weights
    through.
    """

    def __init__(
        self,
        section: ServerSection,
        trained: Any,
        renderer: Renderer,
        folder: Path | None,
        process: Process = ALONE,
    ) -> None:
        given = section.folder or (folder / "server" if folder else None)
        if given is None:
            raise UserError(
                "a server gets its weights through a folder; train with one, or give folder under"
                " [server]"
            )
        self.folder, self._section = Path(given).expanduser().absolute(), section
        self._trained, self._process = trained, process
        config = ServerConfig(url=section.url, model=section.model, at_once=section.at_once)
        self.policy = ServerPolicy(
            config,
            identity=trained.identity,
            tokenizer=trained.tokenizer,
            renderer=renderer,
            scores=False,
        )
        sampler: Any = self.policy
        self.sampler: Policy = sampler
        self.watch = GapWatch(largest=section.largest_gap)
        self._loaded: str | None = None
        self._warned = False

    def judge(self, step: int, told: Mapping[str, float]) -> None:
        """Warn, once, where a step's gap is that of a fault."""
        fault = self.watch.fault(told["sampler_gap"]) if "sampler_gap" in told else None
        if fault and not self._warned and self._process.first:
            self._warned = True
            logger.warning("in step %d %s", step, fault)

    def at(
        self,
        step: int,
        live: Policy,
        environment: Environment,
        settings: SamplingSettings,
        first: float | None,
    ) -> tuple[Any, float]:
        """For an audit, on the process that makes it: what plays `live`, as it is now, behind
        the server, and the gap shown before. `first`: that of the start. Raises `NotServed`.
        """
        with as_not_served():
            self.sync(step, ALONE)
            gap = gap_shown(self.policy, live, environment, settings, step)
            require_served(gap, self._section.largest_gap, first)
        return PlayedByServer(self.policy, live.identity), gap

    def sync(self, step: int, process: Process | None = None) -> None:
        """Bring the weights of before a step to the server. Every process calls this;
        `process`: `ALONE` for one that has them whole.
        """
        process = process or self._process
        name = f"{self._trained.identity[:8]}-step-{step}"
        adapted, target = hasattr(self._trained.model, "peft_config"), self.folder / name
        if process.first:
            shutil.rmtree(target, ignore_errors=True)
        if not adapted:
            tokenizer = self._trained.tokenizer
            save_checkpoint(target, self._trained.model, tokenizer, process=process)
        if process.first:
            if adapted:
                self._trained.model.save_pretrained(target)
                self.policy.load_adapter(name, target)
            else:
                _reload(self._section.reload or "", target)
            self._forget(name, adapted)
        process.wait()
        self._loaded = name
        if adapted:
            self.policy.served_as = name
        else:
            self.policy.fields = {"cache_salt": name}

    def _forget(self, name: str, adapted: bool) -> None:
        """What was there before the present weights."""
        if adapted and self._loaded not in (None, name):
            with suppress(Declined):  # a server that was started again has none
                self.policy.unload_adapter(str(self._loaded))
        for old in self.folder.glob(f"{self._trained.identity[:8]}-step-*"):
            if old.name != name:
                shutil.rmtree(old, ignore_errors=True)


def _reload(command: str, folder: Path) -> None:
    words = [word.replace("{folder}", str(folder)) for word in shlex.split(command)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"the command reload under [server] cannot be run ({error})") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(
            f"the command reload under [server] ended with {done.returncode}"
            f" ({said[-1] if said else 'no words'}); see the server's log"
        )
