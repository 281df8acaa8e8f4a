"""Where continuations over HTTP begin: recorded runs replayed, as for the local policy, and cut at their prefixes."""

from collections.abc import Iterable
from math import nan

from forensics.case import environment_key
from forensics.errors import UserError
from forensics.policies.rendering import Rendering
from forensics.protocols import Environment
from forensics.records import Trajectory, content_hash
from resampling.engine.continuing import Place
from resampling.engine.replaying import Replay, replay
from resampling.rollouts import Request
from resampling.servers.run import Start
from resampling.traces import Trace, trace_of


class Starts:
    """The prefixes of these runs. `rendering`: of the policy that continues them. `seed`: of the environment's luck."""

    def __init__(
        self, environment: Environment, rendering: Rendering, trajectories: Iterable[Trajectory], seed: int
    ) -> None:
        self.environment, self.rendering, self._seed = environment, rendering, seed
        self._runs = {run.id: run for run in trajectories}
        self._known: dict[str, tuple[Trace, Replay]] = {}

    @property
    def identity(self) -> str:
        """A content hash of the environment and its options."""
        return environment_key(self.environment)

    def fingerprint(self, trace: str) -> str:
        """A content hash of a trace's text: a run's id does not say under which settings it was drawn."""
        known = self._trace(trace)[0]
        return content_hash([known.ids, known.positions])

    def of(self, request: Request) -> Start:
        """Raises `UserError` for a trace that is not there, does not replay, or is shorter than what is kept."""
        trace, replayed = self._trace(request.trace)
        most = len(trace) - request.avoid
        if request.kept > most:
            raise UserError(f"trace {trace.id} has {len(trace)} sampled tokens, so {request.kept} cannot be kept"
                            f"{' and the next one avoided' if request.avoid else ''}; ask for {most} at most")
        actions = sorted(set(trace.steps))
        step = trace.steps[min(request.kept, len(trace) - 1)]
        begin, prefix = trace.positions[trace.steps.index(step)], trace.prefix(request.kept)
        action = (*prefix[begin:], *request.append)
        place = Place(request=request, trace=trace, replay=replayed, action=actions.index(step), known=len(action),
                      rendering=self.rendering, seed=self._seed)
        return Start(place=place, before=prefix[:begin], action=action)

    def _trace(self, name: str) -> tuple[Trace, Replay]:
        if name not in self._runs:
            raise UserError(f"there is no trace {name} to continue; give its trajectory")
        if name not in self._known:
            run = self._runs[name]
            trace = trace_of(run, [nan] * (run.sampled_tokens or 0))  # nobody reads them
            if not len(trace):
                raise UserError(f"trace {name} has no sampled token, so it cannot be continued; leave it out")
            self._known[name] = trace, replay(run, self.environment, self.rendering)
        return self._known[name]
