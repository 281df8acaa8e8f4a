"""The record that TRL's public reward interface allows: every reward function is
wrapped and notes what it sees.

A reward function is given prompts, completions, their token ids and the
trainer's state, and gives rewards. So there are no prompt tokens, no masks, no
log-probabilities and no advantages: `GAPS`, which `run.json` names. Use it
where the trainer is a subclass of your own or another TRL; otherwise `attach`
records everything.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from forensics.errors import UserError
from training.live.trl_record import GenerationLog, known_reward, total

GAPS = (
    "prompt token ids: `token_ids` hold the completion alone",
    "sampler, old and reference log-probabilities, and entropies",
    "advantages, and the total reward: `reward` is the unweighted sum",
    "masks: tokens of tools are not told from sampled ones, so such rows have no token ids",
    "how a completion ended",
    "reward models (modules): only reward functions are recorded",
)


Note = Callable[[str, Sequence[float | None], dict[str, Any]], None]


class Watched:
    """A reward function that tells what it was given and gave. A copy in another process
    (pickled) is the function alone.
    """

    def __init__(self, function: Callable[..., Any], name: str, note: Note | None = None) -> None:
        functools.update_wrapper(self, function)
        self.__name__ = name
        self._function, self._note = function, note

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rewards = self._function(*args, **kwargs)
        if self._note is not None:
            self._note(self.__name__, rewards, kwargs)
        return rewards

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, self.__name__)


class WatchedLater(Watched):
    """The same for a coroutine function."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rewards = await self._function(*args, **kwargs)
        if self._note is not None:
            self._note(self.__name__, rewards, kwargs)
        return rewards


class RewardWatch:
    """Collects the rewards of one batch over all watched functions, then adds
    the batch to the log.
    """

    def __init__(self, log: GenerationLog) -> None:
        self._log = log
        self._names: list[str] = []
        self._seen: dict[str, list[float | None]] = {}

    def wrap(self, functions: Sequence[Any]) -> list[Any]:
        """The functions, watched. Raises `UserError` where there is none that can be."""
        callables = [f for f in functions if callable(f) and not hasattr(f, "forward")]
        if not callables:
            raise UserError(
                "none of the reward functions is a plain function, so nothing can be recorded; use"
                " attach"
            )
        self._log.watch("rewards only", GAPS)
        self._names = [str(getattr(f, "__name__", type(f).__name__)) for f in callables]
        if len(set(self._names)) < len(self._names):
            raise UserError(
                f"two reward functions have one name ({', '.join(self._names)}); name them apart"
            )
        names = iter(self._names)
        return [self._watched(f, next(names)) if f in callables else f for f in functions]

    def _watched(self, function: Callable[..., Any], name: str) -> "Watched":
        kind = WatchedLater if inspect.iscoroutinefunction(function) else Watched
        return kind(function, name, self._note)

    def _note(self, name: str, rewards: Sequence[float | None], batch: dict[str, Any]) -> None:
        if not self._log.training:
            return
        self._seen[name] = list(map(known_reward, rewards))
        if len(self._seen) < len(self._names):
            return
        seen, self._seen = self._seen, {}
        fields = []
        for i, (prompt, completion) in enumerate(
            zip(batch["prompts"], batch["completions"], strict=True)
        ):
            named = {key: seen[key][i] for key in self._names}
            tools = isinstance(completion, list) and any(
                message.get("role") == "tool" for message in completion
            )
            ids = None if tools else tuple(batch["completion_ids"][i])
            fields.append(
                {
                    "prompt": prompt,
                    "token_ids": ids,
                    "sampled": None if ids is None else (True,) * len(ids),
                    "rewards": named,
                    "reward": total(named.values(), [1.0] * len(named)),
                    "end": None,
                    "turns": 1,
                }
            )
        self._log.add(fields)
