"""Episodes sampled by a server while a policy is trained here (`[server]` of a recipe).

Before each step the weights are brought to the server through a folder that both see:

1. With `[lora]` the adapter alone, as peft saves it: the server loads it under a name of
   its own a step (`/v1/load_lora_adapter`; vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)
   and lets the one before go.
2. Without, a whole checkpoint, and the command `reload` makes the server read it. Requests
   carry the step as `cache_salt`, so that no cached prefix of older weights serves.
"""

import logging
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies import Declined, ServerConfig, ServerPolicy
from forensics.protocols import Environment, Policy, Renderer, SamplingSettings
from training.distributed import Process
from training.run_state import save_checkpoint
from training.sampler_gap import GapWatch
from training.served_audits import PlayedByServer, as_not_served, gap_shown, require_served
from training.server_section import ServerSection

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
