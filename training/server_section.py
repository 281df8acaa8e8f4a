"""`[server]` of a recipe: who samples instead of this process, and what is on then."""

from typing import Any, Final

from pydantic import Field

from forensics.errors import UserError
from training.sections import MOST, Section

ON: Final[dict[str, dict[str, Any]]] = {
    "grpo": {"recompute_old": True},
    "objective": {"importance": "mask"},
}


class NotServed(UserError):
    """The server does not answer, or does not show that it serves the weights that it was given."""


class ServerSection(Section):
    """Episodes are sampled by a server of completions (vLLM, SGLang), not in this process.

    `url`: up to and with `/v1`. `model`: the name that it serves the start by (without it:
    its only one). `at_once`: requests under way at a time. `folder`: where the weights of
    each step are put for the server (without it `server/` in the run's). `reload`: without
    [lora], the command that makes the server read a checkpoint; `{folder}` in it is that
    directory. `largest_gap`: mean difference of log-probabilities in nats beyond which the
    sampler is taken to be at fault (`training.sampler_gap`).

    With a server `grpo.recompute_old` is on, and `objective.importance` is "mask" unless it
    is given: a token that one side finds twice as likely as the other is left out.
    """

    url: str
    model: str | None = None
    at_once: int = Field(64, ge=1, le=MOST)
    folder: str | None = None
    reload: str | None = None
    largest_gap: float = Field(0.02, gt=0)

    def check(self, recompute_old: bool, adapter: bool) -> None:
        """Raises `ValueError` for what cannot be done with a server."""
        if not recompute_old:
            raise ValueError(
                "what a server drew is compared with the trainer's own log-probabilities; leave"
                " recompute_old = false out of [grpo]"
            )
        if not adapter and self.reload is None:
            raise ValueError(
                "without [lora] a server must be told to read new weights; give the command as"
                " reload under [server], or train an adapter"
            )


def corrected(content: Any) -> Any:
    """A recipe's content with what is on where a server samples, unless it is given."""
    if not isinstance(content, dict) or content.get("server") is None:
        return content
    given = {name: content.get(name, {}) for name in ON}
    return content | {name: ON[name] | one for name, one in given.items() if isinstance(one, dict)}
