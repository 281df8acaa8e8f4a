"""Continuations by a model on this machine: one tree a trace.

1. Each trace is read once; what the model keeps of it (its *stem*) serves every
   prefix, in later calls too, as far as memory allows. Where a model's memory
   cannot be forked so (a window, a state), texts are read again instead.
2. All requests for a trace are forks of one tree. Rollouts share a row of the
   batch as long as their texts are equal, those from earlier prefixes that
   follow the trace included; batches are filled across traces.
3. A rollout's action, once complete, goes to an environment restored to the
   state before that action (`branches`).
4. The random stream of a rollout is a function of the seed, its request and its
   number, so that the results do not depend on batches or on what else was
   asked for.

Token budgets count from the start of the run: a prefix has used up its part of
them.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from forensics.errors import UserError
from forensics.policies import CACHED_TOKENS, Branch, BranchedText, PrefixCache
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Trajectory, action_starts, content_hash
from resampling.samplers.branches import BranchPoints, BranchRun
from resampling.trace_rollouts import Request, Rollout, Trace, by_trace, trace_of, unscored_trace


class LocalSampler:
    """A `Sampler` on a local policy. `settings`: those that `traces` scored
    with, so that probabilities agree.

    Raises `UserError` for a run without token ids, and for one whose actions
    are longer than the settings allow.
    """

    def __init__(
        self,
        policy: Policy,
        environment: Environment,
        trajectories: Iterable[Trajectory],
        settings: SamplingSettings,
        seed: int,
    ) -> None:
        self._policy = policy.rendered_for(environment)
        self._settings, self._seed = settings, seed
        self._points = BranchPoints(environment, self._policy.renderer, trajectories, seed)
        self.fingerprint = self._points.fingerprint
        self._prefix_caches: OrderedDict[str, PrefixCache] = OrderedDict()

    @property
    def identity(self) -> str:
        parts = self._policy.identity, self._points.identity, self._settings.content(), self._seed
        return content_hash(["policy", *parts])

    def draw(self, requests: Iterable[Request]) -> Iterator[Rollout]:
        """Every rollout of every request, as they finish. Raises `UserError`
        for a run that does not replay.
        """
        finished: deque[Rollout] = deque()
        for group in self._groups(requests):
            for _ in self._policy.branch(self._branched_texts(group, finished), self._settings):
                while finished:
                    yield finished.popleft()

    def _groups(self, requests: Iterable[Request]) -> Iterator[list[Request]]:
        """Requests trace by trace, in the order of their prefixes, for about
        one batch at a time.
        """
        group: list[Request] = []
        for request in chain.from_iterable(by_trace(requests).values()):
            group.append(request)
            if sum(member.n for member in group) >= self._policy.batch_rows:
                yield group
                group = []
        if group:
            yield group

    def _branched_texts(
        self, group: Sequence[Request], finished: deque[Rollout]
    ) -> list[BranchedText]:
        branches: dict[str, list[Branch]] = {}
        for request in group:
            branches.setdefault(request.trace, []).append(self._branch(request, finished))
        traces = [self._points.trace(name) for name in branches]
        return [
            BranchedText(
                ids=trace.ids,
                starts=frozenset(trace.starts),
                branches=branches[trace.id],
                prefix_cache=cache,
            )
            for trace, cache in zip(traces, self._prefix_caches_of(traces), strict=True)
        ]

    def _branch(self, request: Request, finished: deque[Rollout]) -> Branch:
        require_room(self._points.trace(request.trace), self._settings)
        point = self._points.of(request)
        known = len(point.action) - len(request.append)
        return Branch(
            kept=len(point.before) + known,
            start=len(point.before),
            logprobs=(0.0,) * known,
            drivers=tuple(BranchRun(point, number, finished) for number in request.numbers),
            append=request.append,
            avoid=request.avoid,
        )

    def _prefix_caches_of(self, traces: Sequence[Trace]) -> Sequence[PrefixCache | None]:
        """The stem of each trace; those used longest ago are forgotten."""
        missing = [trace for trace in traces if trace.id not in self._prefix_caches]
        read = self._policy.prefix_caches([trace.ids for trace in missing])
        if read is None:
            return [None] * len(traces)
        self._prefix_caches |= zip([trace.id for trace in missing], read, strict=True)
        for trace in traces:
            self._prefix_caches.move_to_end(trace.id)
        caches = [self._prefix_caches[trace.id] for trace in traces]
        held = sum(cache.length for cache in self._prefix_caches.values())
        while held > self._policy.batch_rows * CACHED_TOKENS // 2 and len(self._prefix_caches) > 1:
            held -= self._prefix_caches.popitem(last=False)[1].length
        return caches


def traces(
    policy: Any, trajectories: Iterable[Trajectory], settings: SamplingSettings
) -> list[Trace]:
    """Runs as traces, their log-probabilities those that `policy` samples with
    under `settings`.

    Raises `UserError` for a run without token ids.
    """
    scored = []
    for run in trajectories:
        blank = unscored_trace(run)
        starts = {"starts": [action_starts(run)]} if settings.penalises_output else {}
        scores = policy.logprobs([blank.ids], settings, **starts)[0]
        scored.append(trace_of(run, [float(scores[position - 1]) for position in blank.positions]))
    return scored


def require_room(trace: Trace, settings: SamplingSettings) -> None:
    """A run with longer actions, or more tokens, was drawn under other settings."""
    longest = max(trace.steps.count(step) for step in set(trace.steps))
    if longest > settings.max_turn_tokens:
        raise UserError(
            f"trace {trace.id} has an action of {longest} tokens and max_turn_tokens is "
            f"{settings.max_turn_tokens}; continue it with the settings that it was recorded with"
        )
    if trace.positions[-1] >= settings.max_tokens:
        raise UserError(
            f"trace {trace.id} has no sampled token within {settings.max_tokens} tokens, or more"
            " than those; continue it with the settings that it was recorded with"
        )
