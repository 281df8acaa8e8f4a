"""What `investigate` compares, by the options that were given: checkpoints, servers of them, an
agent on served models (`--harness`), or logs (`--logs`). What means nothing together is one
sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from forensics.cli.options import Compared, parse_options
from forensics.errors import UserError
from forensics.policies import Given
from forensics.protocols import Environment


class Sides(NamedTuple):
    """Before and after training, and their world with its options."""

    before: Given | None
    afters: Sequence[Given]
    world: Environment | str | None
    options: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Route:
    """The options that say what is compared."""

    before: Path | None
    after: Sequence[Path]
    before_server: str | None
    after_server: Sequence[str]
    harness: Path | None
    logs: bool
    env: str | None
    options: Mapping[str, str]

    def sides(self, out: Path) -> Sides:
        """What they name. Raises `UserError` where they clash, or one is missing."""
        if self.harness:
            return self._of_agent(self.harness, out)
        served = self.before_server or self.after_server
        return self._of_logs() if self.logs and not served else self._of_checkpoints(out)

    def _of_logs(self) -> Sides:
        """What was given beside logs, which `investigate` refuses by name."""
        return Sides(self.before, self.after, self.env, self.options)

    def _of_agent(self, harness: Path, out: Path) -> Sides:
        from forensics.investigation.agent_sides import agent_sides

        clashing = {
            "--before": self.before,
            "--after": self.after,
            "--env": self.env,
            "--env-option": self.options,
            "--logs": self.logs,
        }
        if given := [name for name, value in clashing.items() if value]:
            raise UserError(
                f"{given[0]} means nothing beside --harness, which names its own world and plays"
                " served models; leave it out"
            )
        if self.before_server is None or not self.after_server:
            raise UserError(
                "--harness plays served models; give --before-server URL#MODEL and --after-server"
                " URL#MODEL"
            )
        world, (first, *others) = agent_sides(harness, self.before_server, self.after_server, out)
        return Sides(first, others, world, {})

    def _of_checkpoints(self, out: Path) -> Sides:
        from forensics.investigation.served_sides import (
            hinted_world,
            paired_servers,
            served_sides,
        )

        if self.before is None or not self.after:
            missing = "--before" if self.before is None else "--after"
            raise UserError(
                f"there is no {missing} checkpoint; give one, an agent on served models with"
                " --harness, or --logs"
            )
        servers = paired_servers(self.before_server, self.after_server, len(self.after))
        env, options = self.env, dict(self.options)
        if self.before_server is not None:
            env, options = hinted_world(self.before, env, options)
        first, *others = served_sides([self.before, *self.after], servers, out)
        return Sides(first, others, env, options)


def route_of(compared: Compared, before_server: str | None, after_server: Sequence[str]) -> Route:
    """The route that the options of `investigate` name."""
    return Route(
        before=compared.before,
        after=compared.after or [],
        before_server=before_server,
        after_server=after_server,
        harness=compared.harness,
        logs=compared.log_places is not None,
        env=compared.env,
        options=parse_options(compared.env_option),
    )
