"""`gymnasium`: text environments of Gymnasium (text in, text out), by their id.

    --env gymnasium --env-option id=package:Env-v0 --env-option channels=channels.toml

`id` in a channel's `without` names another environment, everything else there and in `arguments` (a
JSON object) goes to `gymnasium.make`. The rest is `foreign_world`'s.
"""

from collections.abc import Mapping
from typing import Any

from forensics.errors import UserError
from training.environments.foreign_world import SHARED, ForeignWorld, Said, task_seed


class GymnasiumWorld(ForeignWorld):
    """The environment (see the module's text)."""

    name = "gymnasium"
    defaults = {"id": "", **SHARED}

    def __init__(self, **options: str) -> None:
        super().__init__(**options)
        if not self.chosen["id"]:
            raise UserError(
                "gymnasium needs an environment; give it with --env-option id=package:Name-v0"
            )
        self.open_session(self.arguments)

    def open_session(self, arguments: Mapping[str, Any]) -> "GymnasiumSession":
        """A new environment. Raises `UserError` where it cannot be made."""
        try:
            import gymnasium
        except ImportError:
            raise UserError(
                "the environment gymnasium needs the package gymnasium; install it with `pip"
                " install gymnasium`"
            ) from None
        given = {"id": self.chosen["id"], **arguments}
        try:
            made = gymnasium.make(given.pop("id"), disable_env_checker=True, **given)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise UserError(
                f"gymnasium cannot make {self.chosen['id']} ({error}); give package:Name-v0 and"
                " arguments that it takes"
            ) from error
        return GymnasiumSession(made)


class GymnasiumSession:
    """One environment of Gymnasium."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def start(self, task: str, seed: int) -> Said:
        text, _ = self.environment.reset(seed=task_seed(task, seed))
        return Said(text=_text(text))

    def act(self, action: str) -> Said:
        text, reward, terminated, truncated, _ = self.environment.step(action)
        ended, cut = bool(terminated), bool(truncated)
        return Said(text=_text(text), reward=float(reward), terminated=ended, truncated=cut)


def _text(observation: Any) -> str:
    if not isinstance(observation, str):
        raise UserError(
            f"this environment observes {type(observation).__name__}, not text; wrap it in one"
            " whose observations and actions are texts (gymnasium.spaces.Text)"
        )
    return observation
