"""Continuations by a model on this machine: one tree a trace.

1. Each trace is read once; what the model keeps of it (its *stem*) serves every prefix, in later calls too, as far as
   memory allows. Where a model's memory cannot be forked so (a window, a state), texts are read again instead.
2. All requests for a trace are forks of one tree. Rollouts share a row of the batch as long as their texts are equal,
   those from earlier prefixes that follow the trace included; batches are filled across traces.
3. A rollout's action, once complete, goes to an environment restored to the state before that action (`replaying`).
4. The random stream of a rollout is a function of the seed, its request and its number, so that the results do not
   depend on batches or on what else was asked for.

Token budgets count from the start of the run: a prefix has used up its part of them.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import nan
from typing import Any

from forensics.case import environment_key
from forensics.errors import UserError
from forensics.policies.cache import Stem
from forensics.policies.huggingface import HuggingFacePolicy
from forensics.policies.memory import CACHED_TOKENS
from forensics.policies.rows import Fork, Tree
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Trajectory, content_hash
from forensics.records.trajectory import action_starts
from resampling.engine.continuing import Continuing, Place
from resampling.engine.replaying import Replay, replay
from resampling.rollouts import Request, Rollout
from resampling.traces import Trace, trace_of


class PolicySampler:
    """A `Sampler` on a local policy. `settings`: those that `traces` scored with, so that probabilities agree.

    Raises `UserError` for a run without token ids, and for one whose actions are longer than the settings allow.
    """

    def __init__(
        self, policy: HuggingFacePolicy, environment: Environment, trajectories: Iterable[Trajectory],
        settings: SamplingSettings, seed: int,
    ) -> None:
        self._policy = policy.rendered_for(environment)
        self._environment, self._settings, self._seed = environment, settings, seed
        self._runs = {run.id: run for run in trajectories}
        self._traces: dict[str, Trace] = {}
        self._replays: dict[str, Replay] = {}
        self._fingerprints: dict[str, str] = {}
        self._stems: OrderedDict[str, Stem] = OrderedDict()

    @property
    def identity(self) -> str:
        return content_hash(["policy", self._policy.identity, environment_key(self._environment),
                             self._settings.content(), self._seed])

    def fingerprint(self, trace: str) -> str:
        """A content hash of a trace's text: a run's id does not say under which settings it was drawn."""
        if trace not in self._fingerprints:
            self._fingerprints[trace] = content_hash([self._trace(trace).ids, self._trace(trace).positions])
        return self._fingerprints[trace]

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as they finish. Raises `UserError` for a run that does not replay."""
        finished: deque[Rollout] = deque()
        for group in self._groups(requests):
            for _ in self._policy.grow(self._trees(group, finished), self._settings):
                while finished:
                    yield finished.popleft()

    def _groups(self, requests: Iterable[Request]) -> Iterator[list[Request]]:
        """Requests trace by trace, in the order of their prefixes, for about one batch at a time."""
        asked: dict[str, list[Request]] = {}
        for request in requests:
            asked.setdefault(request.trace, []).append(request)
        group: list[Request] = []
        for wanted in asked.values():
            for request in sorted(wanted, key=lambda request: request.kept):
                group.append(request)
                if sum(member.n for member in group) >= self._policy.rows:
                    yield group
                    group = []
        if group:
            yield group

    def _trees(self, group: Sequence[Request], finished: deque[Rollout]) -> list[Tree]:
        forks: dict[str, list[Fork]] = {}
        for request in group:
            forks.setdefault(request.trace, []).append(self._fork(request, finished))
        traces = [self._trace(name) for name in forks]
        return [
            Tree(ids=trace.ids, starts=frozenset(_starts(trace)), forks=forks[trace.id], stem=stem)
            for trace, stem in zip(traces, self._stems_of(traces), strict=True)
        ]

    def _fork(self, request: Request, finished: deque[Rollout]) -> Fork:
        trace = self._trace(request.trace)
        most = len(trace) - request.avoid
        if request.kept > most:
            raise UserError(
                f"trace {trace.id} has {len(trace)} sampled tokens, so {request.kept} cannot be kept"
                f"{' and the next one avoided' if request.avoid else ''}; ask for {most} at most"
            )
        kept = len(trace.prefix(request.kept))
        starts = _starts(trace)
        action = sum(start <= kept for start in starts) - 1 if request.kept < len(trace) else len(starts) - 1
        known = kept - starts[action]
        place = Place(request=request, trace=trace, replay=self._replay(request.trace), action=action,
                      known=known + len(request.append), rendering=self._policy.rendering, seed=self._seed)
        drivers = [Continuing(place, number, finished) for number in range(request.first, request.first + request.n)]
        return Fork(kept=kept, start=starts[action], logprobs=(0.0,) * known, drivers=tuple(drivers),
                    append=request.append, avoid=request.avoid)

    def _trace(self, name: str) -> Trace:
        if name not in self._runs:
            raise UserError(f"there is no trace {name} to continue; give its trajectory")
        if name not in self._traces:
            run = self._runs[name]
            trace = trace_of(run, [nan] * (run.sampled_tokens or 0))  # the engine counts them, nobody reads them
            self._traces[name] = _require_room(trace, self._settings)
        return self._traces[name]

    def _replay(self, name: str) -> Replay:
        if name not in self._replays:
            self._replays[name] = replay(self._runs[name], self._environment, self._policy.rendering)
        return self._replays[name]

    def _stems_of(self, traces: Sequence[Trace]) -> Sequence[Stem | None]:
        """The stem of each trace; those used longest ago are forgotten."""
        missing = [trace for trace in traces if trace.id not in self._stems]
        read = self._policy.stems([trace.ids for trace in missing])
        if read is None:
            return [None] * len(traces)
        self._stems |= zip([trace.id for trace in missing], read, strict=True)
        found = [self._stems[trace.id] for trace in traces]
        for trace in traces:
            self._stems.move_to_end(trace.id)
        held = sum(stem.length for stem in self._stems.values())
        while held > self._policy.rows * CACHED_TOKENS // 2 and len(self._stems) > 1:
            held -= self._stems.popitem(last=False)[1].length
        return found


def traces(policy: Any, trajectories: Iterable[Trajectory], settings: SamplingSettings) -> list[Trace]:
    """Runs as traces, their log-probabilities those that `policy` samples with under `settings`.

    Raises `UserError` for a run without token ids.
    """
    found = []
    for run in trajectories:
        blank = trace_of(run, [0.0] * (run.sampled_tokens or 0))
        starts = {"starts": [action_starts(run)]} if settings.penalises_output else {}
        scores = policy.logprobs([blank.ids], settings, **starts)[0]
        found.append(trace_of(run, [float(scores[position - 1]) for position in blank.positions]))
    return found


@lru_cache(maxsize=4096)
def _places(positions: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(place for i, place in enumerate(positions) if i == 0 or steps[i] != steps[i - 1])


def _starts(trace: Trace) -> tuple[int, ...]:
    """Where each action starts in the trace's ids."""
    return _places(trace.positions, trace.steps)


def _require_room(trace: Trace, settings: SamplingSettings) -> Trace:
    """A run with longer actions, or more tokens, was drawn under other settings."""
    longest = max((trace.steps.count(step) for step in set(trace.steps)), default=0)
    if longest > settings.max_turn_tokens:
        raise UserError(f"trace {trace.id} has an action of {longest} tokens and max_turn_tokens is "
                        f"{settings.max_turn_tokens}; continue it with the settings that it was recorded with")
    if not trace.positions or trace.positions[-1] >= settings.max_tokens:
        raise UserError(f"trace {trace.id} has no sampled token within {settings.max_tokens} tokens, or more than "
                        "those; continue it with the settings that it was recorded with")
    return trace
