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

from forensics.case import Case
from forensics.layers.evidence_chain import Chain, chain_of
from forensics.layers.use import ChainRule, Donors
from forensics.protocols import Channel
from forensics.records import Trajectory

COLUMNS = (
    "task",
    "steps.list.element.role",
    "steps.list.element.text",
    "steps.list.element.channels.list.element",
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
    kept: dict[str, dict[str, str]] = {}
    for side in sides:
        log = case.rollouts(side)
        for row in log.rows(*COLUMNS) if log.holds(COLUMNS[-1]) else ():
            shown: dict[str, list[str]] = {}
            for step in row["steps"]:
                for channel in step["channels"] or ():
                    if step["role"] != "assistant":
                        shown.setdefault(channel, []).append(step["text"])
            for channel, texts in shown.items():
                keep_donor(kept.setdefault(channel, {}), row["task"], "\n".join(texts), tasks)
    channels = case.channels or tuple(
        Channel(name=name, family="disclosure", attempts=(), description="Marked in the log.")
        for name in sorted(kept)
    )
    return Survey(
        channels=channels,
        donors={name: dict(sorted(shown.items())) for name, shown in kept.items()},
    )


def has_side(case: Case, side: str, without: tuple[str, ...] = ()) -> bool:
    """Whether the case has logs of a side in this world, or a policy to make them with."""
    return side in case.policies or (side, without) in case.stored


def keep_donor(kept: dict[str, str], task: str, text: str, most: int) -> None:
    """Keep one text a task (the one with the smallest hash), and the `most`
    tasks with the smallest hashes.
    """
    kept[task] = min(kept.get(task, text), text, key=digest)
    if len(kept) > most:
        del kept[max(kept, key=digest)]


def digest(text: str) -> str:
    """What orders texts, whatever the order in which they come."""
    return hashlib.sha256(text.encode()).hexdigest()


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
    # the same donors as the behaviour instrument takes
    sides = dict.fromkeys(("before", *chosen)) if has_side(case, "before") else chosen
    found = survey(case, sides, control_tasks)
    for side in chosen:
        for trajectory in case.rollouts(side):
            for chain in found.chains(trajectory, rule or ChainRule()):
                if chain.found:
                    yield chain_row(side, chain)


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
