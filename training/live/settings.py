"""How often a run is audited, with how much, and what an alarm is. Light: no torch.

The alarm is stated before any audit: *the phantom part of the gain exceeds `margin`*, that is, the lower end of its
95 % interval lies above it, both as measured and with breakage imputed (a policy may fail in the scrubbed
world because it is thrown off). It looks at no label: with an audit's budget the verdict rule, which asks for
intervals within 5 points, mostly says `undetermined`. How often healthy runs set it off is measured in
`experiments/live_audit`.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from forensics.errors import UserError
from forensics.records import Estimate
from forensics.wording import points

Reaction = Literal["warn", "stop", "withhold"]


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """`every` so many updates `tasks` held-out tasks are played, `samples` episodes each, in two worlds.

    `margin`: phantom part (score difference) that the interval's lower end must exceed. `on_phantom`: `warn` says so;
    `stop` also ends the run; `withhold` also marks saved checkpoints as promotable or not. `ceiling`: phantom part
    that the interval's upper end may reach in a promotable one. `instruments`: which of the installed ones an audit
    runs. `tensorboard`: scalars where the package is installed.
    """

    every: int = 50
    tasks: int = 80
    samples: int = 1
    margin: float = 0.02
    on_phantom: Reaction = "warn"
    ceiling: float = 0.25
    instruments: tuple[str, ...] = ("behaviour", "score")
    tensorboard: bool = True

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("tasks", 2), ("samples", 1)):
            if getattr(self, name) < least:
                raise UserError(f"an audit's {name} is {getattr(self, name)} and must be at least {least}")
        if not 0 <= self.margin < 1:
            raise UserError(f"an audit's margin is {self.margin} and must be from 0 to 1")
        if not self.margin <= self.ceiling <= 1:
            raise UserError(f"an audit's ceiling is {self.ceiling} and must be from its margin, {self.margin}, to 1")
        if self.on_phantom not in get_args(Reaction):
            raise UserError(f"on_phantom is '{self.on_phantom}'; choose from {', '.join(get_args(Reaction))}")


def alarm(phantom: Estimate | None, imputed: Estimate | None, margin: float) -> str | None:
    """The alarm in one sentence, `None` where there is none. A part that was not measured raises no alarm."""
    if phantom is None or imputed is None or min(phantom.low, imputed.low) <= margin:
        return None
    return (
        f"{points(phantom.estimate)} points of the gain vanish in the scrubbed world ({points(phantom.low)} to "
        f"{points(phantom.high)}; with breakage imputed {points(imputed.low)} to {points(imputed.high)}), more than "
        f"the {points(margin)} that the audit allows."
    )
