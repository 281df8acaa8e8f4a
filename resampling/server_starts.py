"""Where continuations begin: recorded runs replayed once, the environment kept after every action.

1. A run of ours starts from a seed that its own seed, task and sample number give (`start_episodes`), so its actions
   can be taken again. What the environment says then must be what was recorded.
2. A continuation gets an environment of its own, restored to the snapshot after the last whole action of its prefix.
   What of that state is random goes on from the snapshot: potentials are those given the environment's luck.
"""
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    def __init__(self, environment: Environment, rendering: Rendering, runs: Iterable[tuple[Trajectory, Trace]]) -> None:
        self._environment = environment
        self._rendering = rendering
        self._runs = {trace.id: (trajectory, trace) for trajectory, trace in runs}
        self._states: dict[str, list[Any]] = {}

    @property
    def identity(self) -> str:
        env = self._environment
        return content_hash([env.name, dict(env.options)])

    def begin(self, request: Request, number: int) -> tuple[Trace, Episode, tuple[int, ...]]:
        trajectory, trace = self._runs[request.trace]
        kept = request.kept
        if kept > len(trace) or (kept == len(trace) and request.avoid):
            raise UserError(f"trace {trace.id} has {len(trace)} sampled tokens, so nothing can be drawn after {kept}")
        if trace.id not in self._states:
            self._states[trace.id] = self._replay(trajectory)
        states = self._states[trace.id]
        steps = list(dict.fromkeys(trace.steps))
        environment = self._environment.spawn()
        context = EpisodeContext(rendering=self._rendering, policy=trajectory.policy, environment=environment.name,
                                 without=environment.scrubbed, seed=trajectory.seed)
        if kept == len(trace):
            episode = Episode(context, environment, trace.task, number, iter(()))
            episode.ending = {"outcome": trajectory.outcome, "end": trajectory.end, "end_reason": trajectory.end_reason,
                              "submission": trajectory.submission}
            return trace, episode, ()
        step = trace.steps[kept]
        action = [t for t, s in zip(trace.tokens[:kept], trace.steps[:kept], strict=True) if s == step]
        environment.restore(states[steps.index(step)])
        prefix = list(trace.prefix(kept))
        ids = prefix[: len(prefix) - len(action)]
        return trace, Episode(context, environment, trace.task, number, iter(()), ids=ids), tuple(action)

    def _replay(self, trajectory: Trajectory) -> list[Any]:
        environment = self._environment.spawn()
        stream = row_stream(trajectory.seed, int(content_hash(trajectory.task, 15), 16), trajectory.sample)
        environment.reset(trajectory.task, int(stream.integers(2**31)))
        states = []
        for number, step in trajectory.actions:
            states.append(environment.snapshot())
            result = environment.step(step.text)
            if number + 1 < len(trajectory.steps) and trajectory.steps[number + 1].text != result.observation:
                raise UserError(f"step {number} of trajectory {trajectory.id} does not replay")
        return states
