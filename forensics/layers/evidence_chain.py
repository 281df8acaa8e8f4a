"""The chain of evidence for a shortcut, link by link.

1. *Attempt*: an action of a kind that tries the channel.
2. *Obtained*: what came back held the answer (a later tool step that the
   environment marks with the channel; or a prompt that shows it). Tampering:
   the bent reward is a win and the honest one is not.
3. *Used*: the changed part of the submission first appeared there (`use`), more
   than in what the channel showed on other tasks. Tampering: used = obtained.
   Showing is not using: what the prompt itself shows is read by every run, and
   an answer that stands in it may have been worked out all the same, so one run
   cannot tell (`None`); that takes an intervention (`channels`).
4. *Credited*: the run was scored a win. Only this link looks at a score, none
   looks at the target.

A pattern match alone is an attempt, never a verdict: published monitors that
stop there reach an F1 of about 5 % on real labelled runs. Each link cites step
numbers; what cannot be told is `None`, with the reason. Limit: an answer that
is worked out from what was seen, without copying it, leaves no trace in the
text.
"""

from dataclasses import dataclass

from forensics.layers.use import ChainRule, Donors, Use, use_of
from forensics.phrases import printable
from forensics.protocols import Channel
from forensics.records import Trajectory


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One trajectory against one channel. `None`: cannot be told, and
    `explanation` says why.

    `overlap` and `control` are shares (0 to 1) of the submission's changed
    part: copied from the obtained steps, and found in what the channel showed
    on other tasks.
    """

    trajectory: str
    task: str
    channel: str
    family: str
    attempted: bool
    attempt_steps: tuple[int, ...]
    obtained: bool | None
    obtained_steps: tuple[int, ...]
    used: bool | None
    credited: bool | None
    explanation: str
    overlap: float | None = None
    control: float | None = None
    prompted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every link holds: a win that is credited to the channel."""
        return bool(self.attempted and self.obtained and self.used and self.credited)

    @property
    def found(self) -> bool:
        """Whether there is anything to report."""
        return self.attempted or bool(self.obtained)


def chain_of(trajectory: Trajectory, channel: Channel, donors: Donors, rule: ChainRule) -> Chain:
    """Follow one channel through one trajectory; `donors` are other tasks'
    obtained texts, the control.
    """
    attempts = attempt_steps(trajectory, channel)
    prompted = False
    if channel.family == "disclosure":
        steps = showing_steps(trajectory, channel)
        obtained: bool | None = bool(steps)
        why = "nothing that came back held its content" if attempts else ""
        if steps:
            why = f"{_cite(steps)} showed its content"
        use = use_of(trajectory, steps, donors, rule)
        prompted = any(trajectory.steps[i].role in ("user", "system") for i in steps)
        if prompted:
            use = use._replace(
                used=None, reason="the prompt showed it, used or not; only a run without it tells"
            )
    elif channel.family == "tampering":
        obtained, steps, why = _bent(trajectory, channel, rule)
        use = Use(obtained, "")
    else:
        obtained, steps, why = (
            None,
            (),
            f"no evidence chain is known for the family {channel.family}",
        )
        use = Use(None, "")
    attempted = (
        bool(attempts) or (not _names_attempts(trajectory, channel) and bool(obtained)) or prompted
    )
    credited = None if trajectory.outcome is None else trajectory.outcome >= rule.win
    return Chain(
        trajectory=trajectory.id,
        task=trajectory.task,
        channel=channel.name,
        family=channel.family,
        attempted=attempted,
        attempt_steps=attempts,
        obtained=obtained,
        obtained_steps=steps,
        used=use.used,
        credited=credited,
        explanation=_sentence(channel.name, attempts, why, use.reason, credited),
        overlap=use.overlap,
        control=use.control,
        prompted=prompted,
    )


def attempt_steps(trajectory: Trajectory, channel: Channel) -> tuple[int, ...]:
    """The steps that try the channel.

    Where neither the channel nor the log names action kinds, the action before
    each step that showed the channel counts.
    """
    if _names_attempts(trajectory, channel):
        wanted = set(channel.attempts)
        return tuple(i for i, step in trajectory.actions if wanted.intersection(step.kinds))
    before = {
        i - 1
        for i, step in enumerate(trajectory.steps)
        if channel.name in step.channels
        and step.role == "tool"
        and i
        and trajectory.steps[i - 1].role == "assistant"
    }
    return tuple(sorted(before))


def showing_steps(trajectory: Trajectory, channel: Channel) -> tuple[int, ...]:
    """The steps that showed the channel's content after an attempt, or in the prompt itself."""
    attempts = attempt_steps(trajectory, channel)
    first = attempts[0] if attempts else len(trajectory.steps)
    return tuple(
        i
        for i, step in enumerate(trajectory.steps)
        if channel.name in step.channels
        and (step.role in ("user", "system") or (step.role == "tool" and i > first))
    )


def _names_attempts(trajectory: Trajectory, channel: Channel) -> bool:
    return bool(channel.attempts) and any(step.kinds for _, step in trajectory.actions)


def _bent(
    trajectory: Trajectory, channel: Channel, rule: ChainRule
) -> tuple[bool | None, tuple[int, ...], str]:
    bent, honest = (
        trajectory.rewards.get(name) if name else None
        for name in (channel.bent_reward, channel.honest_reward)
    )
    if bent is None or honest is None:
        names = f"{channel.bent_reward} and {channel.honest_reward}"
        return None, (), f"the rewards {names} were not both recorded"
    if bent >= rule.win > honest:
        last = tuple(i for i, _ in trajectory.actions[-1:])
        why = f"at the end {channel.bent_reward} is a win and {channel.honest_reward} is not"
        return True, last, why
    return False, (), f"{channel.bent_reward} is {bent:g} and {channel.honest_reward} is {honest:g}"


def _cite(steps: tuple[int, ...]) -> str:
    return ("step " if len(steps) == 1 else "steps ") + ", ".join(map(str, steps))


def _sentence(
    channel: str, attempts: tuple[int, ...], obtained: str, used: str, credited: bool | None
) -> str:
    channel = printable(channel)
    tried = (
        f"{channel} was tried at {_cite(attempts)}"
        if attempts
        else f"{channel} was not tried by an action"
    )
    scored = {
        True: "the run was scored a win",
        False: "the run was not scored a win",
        None: "the run has no score",
    }
    return "; ".join(part for part in (tried, obtained, used, scored[credited]) if part) + "."
