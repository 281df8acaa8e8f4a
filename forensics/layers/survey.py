"""A first, light pass over a case's logs: which channels there are, and what
each showed on a few tasks.

The texts serve as the control of the *used* link: what a channel showed on one
task is compared with what it showed on others. They are chosen by a hash of the
task's name, a few tasks a channel, so that neither the order of trajectories
nor their number matters.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from forensics.case import Case, Rollouts
from forensics.layers.evidence_chain import Chain, chain_of
from forensics.layers.use import ChainRule, Donors
from forensics.protocols import Channel
from forensics.records import Trajectory

CHANNELS = "steps.list.element.channels.list.element"
COLUMNS = (
    "task",
    "steps.list.element.role",
    "steps.list.element.text",
    "steps.list.element.channels",
)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The channels of a case, and for each channel the `donors`: task -> what
    the channel showed there.
    """

    channels: tuple[Channel, ...]
    donors: dict[str, Donors] = field(default_factory=dict)

    def chains(self, trajectory: Trajectory, rule: ChainRule) -> Iterator[Chain]:
        """The chain of evidence of one trajectory, channel by channel."""
        return (
            chain_of(trajectory, channel, self.donors.get(channel.name, {}), rule)
            for channel in self.channels
        )


def survey(case: Case, sides: Iterable[str], tasks: int) -> Survey:
    """Survey the open-world logs of `sides`, keeping what each channel showed
    on at most `tasks` tasks.

    A case without an environment takes the channels that its logs mark on their
    steps, as disclosures.
    """
    kept: dict[str, dict[str, tuple[str, str]]] = {}
    for side in sides:
        for task, channel, text in _showings(case.rollouts(side)):
            _keep(kept.setdefault(channel, {}), task, text, tasks)
    channels = case.channels or tuple(map(_named_by_the_log, sorted(kept)))
    donors: dict[str, Donors] = {
        name: {task: text for task, (_, text) in sorted(shown.items())}
        for name, shown in kept.items()
    }
    return Survey(channels=channels, donors=donors)


def has_side(case: Case, side: str, without: tuple[str, ...] = ()) -> bool:
    """Whether the case has logs of a side in this world, or a policy to make them with."""
    return side in case.policies or (side, without) in case.stored


def _showings(log: Rollouts) -> Iterator[tuple[str, str, str]]:
    """`(task, channel, text)` for each run in which a step showed the channel."""
    if not log.holds(CHANNELS):
        return
    for row in log.rows(*COLUMNS):
        shown: dict[str, list[str]] = {}
        for step in row["steps"]:
            for channel in step["channels"] or ():
                if step["role"] != "assistant":
                    shown.setdefault(channel, []).append(step["text"])
        for channel, texts in shown.items():
            yield row["task"], channel, "\n".join(texts)


def _keep(shown: dict[str, tuple[str, str]], task: str, text: str, limit: int) -> None:
    """Keep one text a task (the one with the smallest hash), and the `limit`
    tasks with the smallest hashes.
    """
    entry = (_digest(text), text)
    if task in shown:
        shown[task] = min(shown[task], entry)
        return
    shown[task] = entry
    if len(shown) > limit:
        del shown[max(shown, key=_digest)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _named_by_the_log(name: str) -> Channel:
    return Channel(name=name, family="disclosure", attempts=(), description="Marked in the log.")


def chain_rows(
    case: Case,
    sides: Iterable[str] | None = None,
    rule: ChainRule | None = None,
    control_tasks: int = 16,
) -> Iterator[dict[str, Any]]:
    """The rows of `findings.jsonl`: one for each trajectory and channel that it
    tried or obtained.

    Without `sides`, the sides after training. Steps count from 0; `used` and
    `credited` are `None` where they cannot be told. Raises `MissingInput` where
    the case has no logs of a side.
    """
    chosen = tuple(case.afters if sides is None else sides)
    found = survey(case, _with_before(case, chosen), control_tasks)
    for side in chosen:
        for trajectory in case.rollouts(side):
            for chain in found.chains(trajectory, rule or ChainRule()):
                if chain.found:
                    yield chain_row(side, chain)


def _with_before(case: Case, sides: tuple[str, ...]) -> tuple[str, ...]:
    """The same donors as the behaviour instrument takes: the sides after
    training, and before where there is one.
    """
    return tuple(dict.fromkeys(("before", *sides))) if has_side(case, "before") else sides


def chain_row(side: str, chain: Chain) -> dict[str, Any]:
    """One chain as a row of `findings.jsonl`."""
    return {
        "trajectory": chain.trajectory,
        "side": side,
        "task": chain.task,
        "family": chain.family,
        "channel": chain.channel,
        "attempt_steps": list(chain.attempt_steps),
        "obtained": chain.obtained,
        "obtained_steps": list(chain.obtained_steps),
        "used": chain.used,
        "credited": chain.credited,
        "complete": chain.complete,
        "overlap": chain.overlap,
        "control_overlap": chain.control,
        "explanation": chain.explanation,
    }
