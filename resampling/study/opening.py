"""A log and the policy that goes on with its runs, opened together: everything checked before anything is sampled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forensics.budget import Budget
from forensics.errors import UserError
from forensics.instruments import load_plugin
from forensics.investigation.inputs import choose_environment, resolve_device
from forensics.policies.checkpoints import inspect_checkpoint, require_directory
from forensics.policies.loading import require_loadable
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory
from resampling.engine.policy_sampler import PolicySampler, traces
from resampling.rollouts import Sampler
from resampling.study.logs import Choice, read_runs
from resampling.traces import Trace


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Runs, as trajectories and as traces under the policy's own sampling settings, and who continues them."""

    runs: tuple[Trajectory, ...]
    traces: tuple[Trace, ...]
    policy: Any
    environment: Environment
    settings: SamplingSettings
    sampler: Sampler

    def run(self, trace: str) -> Trajectory:
        return next(run for run in self.runs if run.id == trace)

    def token_text(self, token_id: int) -> str:
        """What a token says."""
        text: str = self.policy.tokenizer.decode([token_id])
        return text

    def shortcut_kinds(self) -> frozenset[str]:
        """Kinds of steps that try a shortcut which the environment declares."""
        return frozenset(kind for channel in self.environment.channels for kind in channel.attempts)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server of completions that serves the checkpoint: its address up to `/v1`, and the name it serves it by."""

    url: str
    model: str | None = None

    def sampler(
        self, checkpoint: Path, world: Environment, runs: Sequence[Trajectory], settings: SamplingSettings, seed: int
    ) -> Sampler:
        """Probed, and opened. Raises `UserError` where it lacks what is needed, or serves another policy."""
        from forensics.policies.completions import ServerConfig
        from resampling.servers.opening import described, open_server

        config = ServerConfig(url=self.url, model=self.model)
        return open_server(config, world, runs, settings, seed, **described(checkpoint))


def open_runs(
    log: Path, choice: Choice, checkpoint: Path, environment: str | None, options: Mapping[str, str],
    settings: SamplingSettings, seed: int, device: str, server: Server | None = None,
) -> Opened:
    """Read the runs, load the policy, score the runs under it. Raises `UserError` for what does not fit together.

    With a `server` that one samples, and the local checkpoint only scores.
    """
    Budget(settings=settings)  # refuses settings that mean nothing
    if not 0 <= seed < 2**63:
        raise UserError(f"seed is {seed} and must be a whole number from 0 to 2^63 - 1")
    require_directory(checkpoint.expanduser())
    world = choose_environment(checkpoint, environment, options)[0]
    place = resolve_device(device)
    identity = inspect_checkpoint(checkpoint).identity
    require_loadable(checkpoint)
    runs = read_runs(log.expanduser(), choice, identity)
    world = _world_of(runs, world)
    policy = load_plugin("forensics.policies", "huggingface")(checkpoint.expanduser(), device=place, identity=identity)
    _require_vocabulary(runs, policy)
    return Opened(
        runs=tuple(runs), traces=tuple(traces(policy, runs, settings)), policy=policy, environment=world,
        settings=settings, sampler=PolicySampler(policy, world, runs, settings, seed) if server is None
        else server.sampler(checkpoint, world, runs, settings, seed),
    )


def _require_vocabulary(runs: Sequence[Trajectory], policy: Any) -> None:
    """An id that the model has no row for would fail inside it."""
    size = policy.model.config.get_text_config().vocab_size
    for run in runs:
        largest = max((max(step.token_ids) for step in run.steps if step.token_ids), default=0)
        if largest >= size:
            raise UserError(f"trajectory {run.id} holds the token id {largest} and the checkpoint has {size} tokens; "
                            "continue it with a checkpoint of the tokenizer that it was recorded with")


def _world_of(runs: Sequence[Trajectory], world: Environment) -> Environment:
    """The world of the runs, which may be scrubbed of some channels."""
    scrubbed = {tuple(sorted(run.without)) for run in runs}
    if len(scrubbed) > 1:
        raise UserError("these runs are of different worlds, some scrubbed and some not; choose runs of one world")
    without = scrubbed.pop()
    return world.without(*without) if without else world


def parse_places(texts: Sequence[str]) -> list[tuple[str, int]]:
    """`TRAJECTORY:TOKEN` texts; the token is its position among the sampled tokens, from 0."""
    places = []
    for text in texts:
        name, colon, token = text.rpartition(":")
        if not colon or not name or not token.isdigit():
            raise UserError(f"--at {text} is not of the form TRAJECTORY:TOKEN, such as 3f2a91c0:14")
        places.append((name, int(token)))
    return places
