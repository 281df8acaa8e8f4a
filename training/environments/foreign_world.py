"""What worlds of other libraries share, once one file each says how they are stepped.

1. A *session* is one running episode of the foreign world: it starts with a task's seed and
   answers actions (`Said`). What is compared, kept and replayed here is what it says.
2. A snapshot is a deep copy of the session. Where it cannot be copied (a connection, a thread),
   `restore` plays the same actions again and holds the answers against the first ones.
3. A channel's twin is the same library's world with other arguments, as a file of TOML says
   (`--env-option channels=FILE`); a text `shows` in what is read tells that the channel was seen:

       [debug-output]                    # the channel's name
       description = "a forgotten command prints the secret"
       attempts = ["debug"]              # kinds of action that try it
       shows = "the secret is"
       without = { debug = false }       # arguments of the world without it

4. The outcome is the sum of the rewards (`score=last`: the last one), scaled from `least` to
   `most`. Tasks are seeds; no seed is in both splits.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from pydantic import Field

from forensics.errors import OutsideFailure, UserError
from forensics.policies import style_of
from forensics.protocols import Channel, Observation, StepResult
from forensics.records import content_hash, parse_json, parse_toml, read_text
from forensics.world import World
from training.sections import Section, parse_as

SHARED: Final = {
    "channels": "",
    "arguments": "{}",
    "score": "sum",
    "least": "0",
    "most": "1",
    "turns": "100",
    "size": "1000",
    "commands": "",
    "rendering": "auto",
}
CURE: Final = "give a file of TOML, a table for each channel, with --env-option channels=FILE"


class Shortcut(Section):
    """A channel and its twin, as the file says it."""

    description: str
    family: Literal["disclosure"] = "disclosure"
    attempts: list[str] = Field(default_factory=list)
    shows: str = ""
    without: dict[str, Any] = Field(min_length=1)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a session says: at its start (`text`, `system`), or to an action."""

    text: str
    system: str | None = None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    kinds: tuple[str, ...] | None = None  # where the session knows better than `commands`
    submission: str | None = None


class Session(Protocol):
    """One running episode of a foreign world. One that is cut off may be asked for its rewards:
    `scored(said)` gives the same with them.
    """

    def start(self, task: str, seed: int) -> Said: ...
    def act(self, action: str) -> Said: ...


@dataclass(frozen=True, kw_only=True)
class Episode:
    """`session` is `None` in a snapshot that has to be replayed."""

    task: str
    seed: int
    session: Any
    actions: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    rewards: tuple[float | None, ...] = ()


class ForeignWorld(World):
    """Give it a `name`, `defaults` with `SHARED`, and write `open_session`."""

    def __init__(self, **options: str) -> None:
        super().__init__(**options)
        given = self.chosen
        self.table = _shortcuts(given["channels"])
        self.shortcuts = tuple(
            Channel(
                name=name,
                family=one.family,
                attempts=tuple(one.attempts),
                description=one.description,
            )
            for name, one in sorted(self.table.items())
        )
        self.rendering = given["rendering"] or "auto"
        style_of(self)
        self.commands = tuple(word for word in given["commands"].split(",") if word)
        self.arguments = _arguments(self.name, given["arguments"])
        self.size, self.turns = self.number("size", 1), self.number("turns", 1)
        self.least = self.number("least", -1e12, whole=False)
        self.most = self.number("most", self.least, whole=False)
        if given["score"] not in ("sum", "last") or self.most == self.least:
            raise UserError(
                f"{self.name} takes score=sum or score=last, and a `most` above `least`; give these"
            )
        content = content_hash({n: one.model_dump() for n, one in self.table.items()})
        self.chosen = given | {"channels": content if self.table else ""}

    def open_session(self, arguments: Mapping[str, Any]) -> Session:
        """A session of the world that is made with these arguments."""
        raise NotImplementedError

    def twin_arguments(self) -> dict[str, Any]:
        """The arguments of this world, scrubbed as it is. Raises `UserError` where two channels
        want another value of one.
        """
        given = dict(self.arguments)
        told: dict[str, Any] = {}
        for channel in self.scrubbed:
            for key, value in self.table[channel].without.items():
                if told.setdefault(key, value) != value:
                    raise UserError(
                        f"the channels {' and '.join(self.scrubbed)} of {self.name} want two values"
                        f" of {key}; scrub one at a time, or give arguments that go together"
                    )
        return given | told

    def reset(self, task: str, seed: int) -> Observation:
        """Start the foreign world at the seed that the task and `seed` name."""
        session = self.open_session(self.twin_arguments())
        said = session.start(task, seed)
        self.episode = Episode(task=task, seed=seed, session=session, texts=(said.text,))
        return Observation(text=said.text, system=said.system, channels=self._shown(said.text))

    def step(self, action: str) -> StepResult:
        """One action of the foreign world; after `turns` of them an episode is cut off."""
        at: Episode = self.episode
        said = at.session.act(action)
        over = said.terminated or said.truncated
        cut = not said.terminated and (said.truncated or len(at.actions) + 1 >= self.turns)
        if cut and not over and hasattr(at.session, "scored"):
            said = at.session.scored(said)
        self.episode = at = replace(
            at,
            actions=(*at.actions, action),
            texts=(*at.texts, said.text),
            rewards=(*at.rewards, said.reward),
        )
        kinds = self.kinds(action) if said.kinds is None else said.kinds
        shown = self._shown(said.text)
        if not (said.terminated or cut):
            return StepResult(observation=said.text, kinds=kinds, channels=shown)
        outcome = self._outcome(at.rewards)
        end = self.graded(
            action,
            outcome,
            said.text,
            submission=said.submission,
            rewards={"reward": outcome} | dict(said.rewards),
            cut=cut,
            channels=shown,
            end_reason=None if said.terminated else "turn limit",
        )
        return replace(end, kinds=kinds)

    def _shown(self, text: str) -> tuple[str, ...]:
        return tuple(
            name
            for name, one in sorted(self.table.items())
            if one.shows and name not in self.scrubbed and one.shows in text
        )

    def _outcome(self, rewards: Sequence[float | None]) -> float | None:
        """From 0 to 1; `None` where no step had a reward."""
        known = [one for one in rewards if one is not None]
        if not known or (self.chosen["score"] == "last" and rewards[-1] is None):
            return None
        total = known[-1] if self.chosen["score"] == "last" else sum(known)
        scaled: float = (total - self.least) / (self.most - self.least)
        if not -1e-9 <= scaled <= 1 + 1e-9:
            raise UserError(
                f"an episode of {self.name} earned {total:g}, outside {self.least:g} to"
                f" {self.most:g}; give the range with --env-option least= and most="
            )
        return min(max(scaled, 0.0), 1.0)

    # -- snapshots ---------------------------------------------------------------------

    def snapshot(self) -> Any:
        """A copy of the running session, or what was done and said, to be done again."""
        at: Episode = self.episode
        return replace(at, session=_copied(at.session))

    def restore(self, state: Any) -> None:
        """Go on from there. Raises `OutsideFailure` where a replay is answered otherwise."""
        session = _copied(state.session) if state.session is not None else self._replayed(state)
        self.episode = replace(state, session=session)

    def _replayed(self, state: Episode) -> Session:
        session = self.open_session(self.twin_arguments())
        said = [session.start(state.task, state.seed), *map(session.act, state.actions)]
        for step, (now, then) in enumerate(zip(said, state.texts, strict=True)):
            if now.text != then:
                raise OutsideFailure(
                    f"{self.name} does not repeat itself: at step {step} of the task {state.task}"
                    f" it says {now.text[:60]!r} where it said {then[:60]!r}; draw all chance from"
                    " the seed of reset"
                )
        return session


def task_seed(task: str, seed: int) -> int:
    """The seed of a task (`held-out-0042`) at a seed of the episode: no two tasks share one."""
    return int(content_hash([task, seed], 7), 16)


def _copied(session: Any) -> Any:
    try:
        return copy.deepcopy(session)
    except Exception:  # whatever is in there: it is replayed
        return None


def _arguments(name: str, text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"arguments of {name} is {text[:60]!r}; give a JSON object")
    return value


def _shortcuts(given: str) -> dict[str, Shortcut]:
    """The channels that a file states, by name. Raises `UserError`."""
    if not given:
        return {}
    path = Path(given).expanduser()
    try:
        tables = parse_toml(read_text(path, "the channels ", CURE))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path.name} is not TOML ({error}); {CURE}") from None
    if odd := [name for name, table in tables.items() if not isinstance(table, dict)]:
        raise UserError(f"{path.name}: {odd[0]} is no table; {CURE}")
    return {
        name: parse_as(Shortcut, table, f"{path.name} [{name}]") for name, table in tables.items()
    }
