"""Every question that probes answer about a log, from one reading of its activations.

1. The runs of the first `tasks` tasks by name, read under the policy at the deciding token of every action; where the
   log holds runs of the reference too, those are read under the reference, for the transfer from before training.
2. For each declared channel: will this step try it? And before the last action: will this run succeed? A question takes
   its rows and their labels from that reading, so no model is asked twice.
3. Where a diff is given, each probe is held against the decoders of its dictionary (`decoders`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from forensics.errors import MissingInput, UserError
from forensics.protocols import Channel
from forensics.records import Trajectory
from probes.linear.collecting import collect_activations
from probes.linear.decoders import Aligned, Decoders, aligned
from probes.linear.evaluating import ProbeConfig
from probes.linear.instrument import usual_sites
from probes.linear.measuring import Measured, measure
from probes.linear.readings import Question, Readings, will_succeed, will_use

NO_RUNS: Final = "The log holds no runs of the reference."


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """`tasks`: on the runs of so many. `sites`: TransformerLens names (none: the residual stream behind layers).
    `diff`: a folder of `forensics diff`. `shuffles` of the labels."""

    tasks: int
    sites: tuple[str, ...] = ()
    diff: Path | None = None
    shuffles: int = 39


@dataclass(frozen=True, kw_only=True)
class Probed:
    """One question. `about`: the shortcut, `None` for success. What cannot be told is `None`, why is in `missing`."""

    about: str | None
    measured: Measured | None
    decoders: Aligned | None = None
    missing: str | None = None


@dataclass(frozen=True, kw_only=True)
class Read:
    """A policy (loaded when it is wanted) with the runs that are read under it, which can be read again and again."""

    load: Callable[[], Any]
    runs: Iterable[Trajectory]


def probe_log(
    own: Read, before: Read | None, channels: Sequence[Channel], request: ProbeRequest, *,
    decoders: Decoders | None = None, seed: int = 0, progress: Callable[[str, int, int], None],
) -> tuple[Probed, ...]:
    """An answer to each question. Raises `UserError` for an unknown site or a policy that shows no activations."""
    sites = request.sites or usual_sites(own.load())
    read = (*sites, *({decoders.site} - set(sites) if decoders else ()))
    tasks = frozenset(sorted({run.task for run in own.runs})[: request.tasks])
    config = ProbeConfig(shuffles=request.shuffles, seed=seed)
    after = _Whole.of(own, read, tasks, lambda done, of: progress("activations of the policy", done, of))
    first = _Once(before, sites, tasks, lambda done, of: progress("activations of the reference", done, of))
    asked: list[tuple[str | None, Question]] = [(one.name, will_use(one.attempts)) for one in channels]
    return tuple(_answer(about, question, after, first, config, sites, decoders)
                 for about, question in (*asked, (None, will_succeed())))


def _answer(
    about: str | None, question: Question, after: "_Whole", first: "_Once", config: ProbeConfig, sites: Sequence[str],
    decoders: Decoders | None,
) -> Probed:
    readings = after.asked(question)
    try:
        measured = measure(readings.at(sites), lambda: first.whole().asked(question), config)
    except MissingInput as missing:
        return Probed(about=about, measured=None, missing=missing.reason)
    told = None if decoders is None else aligned(readings, decoders, shuffles=config.shuffles, seed=config.seed)
    return Probed(about=about, measured=measured, decoders=told)


def _every(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
    return ((number, False) for number, _ in trajectory.actions)


@dataclass(frozen=True, kw_only=True)
class _Whole:
    """Readings at every action of some runs."""

    readings: Readings
    runs: Sequence[Trajectory]

    @classmethod
    def of(
        cls, source: Read, sites: Sequence[str], tasks: frozenset[str], hear: Callable[[int, int], None]
    ) -> "_Whole":
        runs = sorted((run for run in source.runs if run.task in tasks), key=lambda run: run.id)
        policy = source.load()
        require_activations(policy, sites)
        readings = collect_activations(policy, runs, sites=sites, question=_every,
                                       progress=lambda done: hear(done, len(runs)))
        return cls(readings=readings, runs=runs)

    def asked(self, question: Question) -> Readings:
        """The rows that a question names, with its answers as labels."""
        answers = {(run.id, step): yes for run in self.runs for step, yes in question(run)}
        places = list(zip(self.readings.runs, self.readings.steps.tolist(), strict=True))
        rows = np.array([i for i, place in enumerate(places) if place in answers], np.int64)
        labels = np.array([answers[places[i]] for i in rows], bool)
        return replace(self.readings.where(rows), labels=labels, unread=len(answers) - len(rows))


class _Once:
    """The reference's reading, made when the first question wants it."""

    def __init__(
        self, source: Read | None, sites: Sequence[str], tasks: frozenset[str], hear: Callable[[int, int], None]
    ) -> None:
        self._asked, self._found = (source, sites, tasks, hear), list[_Whole]()

    def whole(self) -> _Whole:
        """Raises `MissingInput` where the log has no runs of the reference, `UserError` where it shows nothing."""
        source, sites, tasks, hear = self._asked
        if source is None:
            raise MissingInput(NO_RUNS, "Give a case folder, or a log with runs of both checkpoints.")
        if not self._found:
            self._found.append(_Whole.of(source, sites, tasks, hear))
        return self._found[0]


def require_activations(policy: Any, sites: Sequence[str] = ()) -> None:
    """Raises `UserError` where a policy shows none, or does not have one of the sites."""
    from forensics.policies.sites import locate

    if "activations" not in getattr(policy, "capabilities", ()):
        raise UserError("this policy shows no activations; leave out --linear-probes, or give a checkpoint directory")
    for site in sites if hasattr(policy, "model") else ():
        locate(policy.model, site)
