"""Where continuations over HTTP begin: recorded runs replayed once, the environment kept before every action.

1. A run of ours starts from a seed that its own seed, task and sample number give (`start_episodes`), so its actions
   can be taken again. What the environment says then must be what was recorded.
2. A continuation gets an environment of its own, restored to the snapshot before the running action. What of that
   state is random goes on from the snapshot: potentials are those given the environment's luck.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from forensics.errors import UserError
from forensics.policies.episodes import Episode, EpisodeContext
from forensics.policies.rendering import Rendering
from forensics.policies.sampling import row_stream
from forensics.protocols import Environment
from forensics.records import Trajectory, content_hash
from resampling.rollouts import Request
from resampling.traces import Trace


class ReplayedStarts:
    """`runs`: trajectories and their traces, by trace id."""

    def __init__(
        self, environment: Environment, rendering: Rendering, runs: Iterable[tuple[Trajectory, Trace]]
    ) -> None:
        self._environment, self._rendering = environment, rendering
        self._runs: Mapping[str, tuple[Trajectory, Trace]] = {trace.id: (run, trace) for run, trace in runs}
        self._states: dict[str, list[Any]] = {}

    @property
    def identity(self) -> str:
        return content_hash([self._environment.name, dict(self._environment.options)])

    def begin(self, request: Request, number: int) -> tuple[Trace, Episode, tuple[int, ...]]:
        """The trace, the episode before the running action, and what that has already. Raises `UserError`."""
        if request.trace not in self._runs:
            raise UserError(f"there is no trace {request.trace} to continue; give its trajectory")
        trajectory, trace = self._runs[request.trace]
        kept, most = request.kept, len(trace) - request.avoid
        if kept > most:
            raise UserError(f"trace {trace.id} has {len(trace)} sampled tokens, so {kept} cannot be kept; ask for less")
        episode = self._episode(trajectory, number)
        if kept == len(trace):
            episode.ending = {"outcome": trajectory.outcome, "end": trajectory.end,
                              "end_reason": trajectory.end_reason, "submission": trajectory.submission}
            return trace, episode, ()
        step = trace.steps[kept]
        action = tuple(token for token, at in zip(trace.tokens[:kept], trace.steps, strict=False) if at == step)
        episode.environment.restore(self._before(trajectory)[sorted(set(trace.steps)).index(step)])
        prefix = trace.prefix(kept)
        episode.ids = list(prefix[: len(prefix) - len(action)])
        return trace, episode, action

    def _episode(self, trajectory: Trajectory, number: int) -> Episode:
        environment = self._environment.spawn()
        context = EpisodeContext(rendering=self._rendering, policy=trajectory.policy, environment=environment.name,
                                 without=environment.scrubbed, seed=trajectory.seed)
        return Episode(context, environment, trajectory.task, number, iter(()))

    def _before(self, trajectory: Trajectory) -> list[Any]:
        """The environment's state before each action."""
        if trajectory.id not in self._states:
            self._states[trajectory.id] = self._replay(trajectory)
        return self._states[trajectory.id]

    def _replay(self, trajectory: Trajectory) -> list[Any]:
        environment = self._environment.spawn()
        stream = row_stream(trajectory.seed, int(content_hash(trajectory.task, 15), 16), trajectory.sample)
        environment.reset(trajectory.task, int(stream.integers(2**31)))
        states = []
        for number, step in trajectory.actions:
            states.append(environment.snapshot())
            said = environment.step(step.text).observation
            if trajectory.steps[number + 1 : number + 2] and trajectory.steps[number + 1].text != said:
                raise UserError(
                    f"step {number + 1} of trajectory {trajectory.id} is not what the environment says again; give the "
                    "environment and the options that it was recorded in"
                )
        return states
