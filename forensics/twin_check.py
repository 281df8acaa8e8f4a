"""Is the scrubbed twin of a world fair? A scrubbed world is believed once it is checked.

1. An *honest* script must win every task in both worlds: the job can still be done.
2. A *cheat* must win in the open world only: what was taken out is what it lived on.
3. A *bystander* (without one, the honest run) does the same things in both worlds and must read
   the same, letter by letter: but for texts of which the open world says that they show what was
   taken out. The open world is asked twice, so that a world that answers anew each time is told.

Each channel is taken out alone, and all of them together. What a script could not show (it does
not win where it should, no cheat for a channel) is *not checked*, which is never *fair*.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from forensics.errors import UserError
from forensics.played_elsewhere import PlayedElsewhere
from forensics.progress import Progress, silent
from forensics.protocols import Environment
from forensics.twin_scripts import CURE, Script, script_of, shipped

MOST_TURNS = 200
SHOWN = 60  # characters of a text around the first place that differs
OVER = "\n[the episode is over]"
NO_CHEAT = "no cheat by {0} was given; give --cheat {0}=SCRIPT, or leave it out with --without"
Wins = Mapping[str, tuple[bool | None, bool | None]]
Status = Literal["fair", "unfair", "not checked"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where the twins part for a bystander. `step` 0 is the prompt; `at` the first character that
    differs.
    """

    task: str
    step: int
    open: str
    scrubbed: str

    @property
    def at(self) -> int:
        pairs = enumerate(zip(self.open, self.scrubbed, strict=False))
        return next((i for i, (a, b) in pairs if a != b), min(len(self.open), len(self.scrubbed)))

    @property
    def sentence(self) -> str:
        start = max(self.at - SHOWN // 3, 0)
        texts = (repr(text[start : start + SHOWN]) for text in (self.open, self.scrubbed))
        where = f"task {self.task}, step {self.step}, character {self.at}"
        return "{}: {} in the open world, {} in the scrubbed one".format(where, *texts)


@dataclass(frozen=True, kw_only=True)
class TwinTask:
    """What came of one task: wins in (open, scrubbed), `None` where it was not played or not
    scored. `compared`: texts that the bystander read in both worlds.
    """

    task: str
    honest: tuple[bool | None, bool | None]
    cheats: Mapping[str, tuple[bool | None, bool | None]]
    compared: int = 0
    difference: Difference | None = None
    steady: bool = True


@dataclass(frozen=True, kw_only=True)
class TwinResult:
    """A world and its twin without `without`: `status`, and why it is not fair."""

    without: tuple[str, ...]
    tasks: tuple[TwinTask, ...]
    unfair: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def status(self) -> Status:
        return "unfair" if self.unfair else "not checked" if self.unchecked else "fair"

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(one.difference for one in self.tasks if one.difference)

    def row(self) -> dict[str, Any]:
        """For JSON: every task, and every place that differs with both texts."""
        places = [asdict(one) | {"at": one.at} for one in self.differences]
        tasks = [asdict(one) | {"difference": one.difference is not None} for one in self.tasks]
        return {
            "without": list(self.without),
            "status": self.status,
            "unfair": list(self.unfair),
            "not_checked": list(self.unchecked),
            "tasks": tasks,
            "differences": places,
        }


def check_twin(
    world: Environment,
    honest: Any = None,
    cheats: Mapping[str, Any] | None = None,
    bystander: Any = None,
    *,
    without: Sequence[str] = (),
    tasks: int = 20,
    seed: int = 0,
    win: float = 1.0,
    progress: Progress = silent,
) -> tuple[TwinResult, ...]:
    """Check the twins of a world that is stepped here; a result for each channel of `without`
    (default: each open one), and one for all of them together.

    `honest`, `cheats` (by channel), `bystander`: functions `act(observations, task)` or paths
    (`forensics.twin_scripts`); those that are missing are the world's own, where it brings some.
    `win`: the least outcome of a win. Raises `UserError`.
    """
    if isinstance(world, PlayedElsewhere):
        raise UserError(
            f"{world.name} is not stepped here; check its twin with forensics twin --harness FILE"
        )
    names = channels_of(world, without)
    roles = _roles(world, honest, cheats or {}, bystander)
    drawn = world.tasks("held-out", tasks, seed)
    taken = [(name,) for name in names] + ([names] if len(names) > 1 else [])
    plays, found = _Plays(world, roles, seed, win), []
    for at, gone in enumerate(taken):
        rows = []
        for number, task in enumerate(drawn):
            progress("twin", at * len(drawn) + number, len(taken) * len(drawn))
            rows.append(plays.task(task, gone))
        found.append(judged(gone, rows))
    progress("twin", 1, 1)
    return tuple(found)


def judged(
    without: Sequence[str], tasks: Iterable[TwinTask], *, cure: str = NO_CHEAT, texts: bool = True
) -> TwinResult:
    """What these runs say of a twin; whoever played them. `cure`: of a missing cheat; `texts`:
    whether a bystander was sent at all.
    """
    rows, gone = tuple(tasks), " and ".join(without)
    honest = {row.task: row.honest for row in rows}
    unfair = _told(
        f"the honest script wins in the open world and not without {gone}: the twin lacks what"
        " the job needs; put back all but the shortcut",
        (task for task, (there, here) in honest.items() if there and here is False),
    )
    unchecked = _told(
        "the honest script does not win in the open world, so it shows nothing; mend the script",
        (task for task, (there, _) in honest.items() if there is False),
    )
    unchecked += _unscored("honest", honest)
    for name in without:
        wins = {row.task: row.cheats[name] for row in rows if name in row.cheats}
        told = _of_cheat(name, gone, wins) if wins else ((), (cure.format(name),))
        unfair, unchecked = unfair + told[0], unchecked + told[1]
    unsteady = [row.task for row in rows if not row.steady]
    unfair += _told(
        f"a bystander reads another text without {gone}; scrub the content and leave the rest",
        (row.task for row in rows if row.difference),
    )
    unchecked += _told(
        "the open world answers the same actions otherwise the second time, so texts cannot be"
        " compared; draw all chance from the seed of reset",
        unsteady,
    )
    if texts and not unsteady and not any(row.compared for row in rows):
        unchecked += ("no text was compared; give a --bystander script that looks around",)
    return TwinResult(without=tuple(without), tasks=rows, unfair=unfair, unchecked=tuple(unchecked))


def _of_cheat(name: str, gone: str, wins: Wins) -> tuple[tuple[str, ...], tuple[str, ...]]:
    still = _told(
        f"the cheat by {name} still wins without {gone}: the answer can be had in another way;"
        " scrub that too",
        (task for task, (_, here) in wins.items() if here),
    )
    never = _told(
        f"the cheat by {name} does not win in the open world, so it shows nothing; mend the script",
        (task for task, (there, _) in wins.items() if there is False),
    )
    return still, never + _unscored(f"{name} cheat's", wins)


def _unscored(role: str, wins: Wins) -> tuple[str, ...]:
    return _told(
        f"a run of the {role} script has no outcome",
        (task for task, both in wins.items() if None in both),
    )


def _told(sentence: str, tasks: Iterable[str]) -> tuple[str, ...]:
    found = list(tasks)
    many = f"{len(found)} tasks, first {found[0]}" if len(found) > 1 else "".join(found)
    return (f"{sentence} ({many})",) if found else ()


# -- playing ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """One episode: actions, what came back (the prompt first) with the channels shown."""

    actions: tuple[str, ...]
    texts: tuple[str, ...]
    shown: tuple[tuple[str, ...], ...]
    won: bool | None


class _Plays:
    """Plays each script once a task and world."""

    def __init__(
        self, world: Environment, roles: Mapping[str, Script], seed: int, win: float
    ) -> None:
        self.roles, self.seed, self.win = roles, seed, win
        self.world = cache(lambda gone: world.without(*gone) if gone else world)
        self.run = cache(self._run)

    def task(self, task: str, gone: tuple[str, ...]) -> TwinTask:
        compared, difference, steady = self._compared(task, gone)
        return TwinTask(
            task=task,
            honest=self._wins("honest", task, gone),
            cheats={name: self._wins(name, task, gone) for name in gone if name in self.roles},
            compared=compared,
            difference=difference,
            steady=steady,
        )

    def _wins(self, role: str, task: str, gone: tuple[str, ...]) -> tuple[bool | None, bool | None]:
        return self.run(role, task, ()).won, self.run(role, task, gone).won

    def _compared(self, task: str, gone: tuple[str, ...]) -> tuple[int, Difference | None, bool]:
        """Texts compared, where they part, and whether the open world repeats itself."""
        first = self.run("bystander", task, ())
        acts = _again(first.actions)
        if self._play(self.world(()), task, acts).texts != first.texts:
            return 0, None, False
        twin = self._play(self.world(gone), task, acts)
        seen = [i for i, names in enumerate(first.shown) if not {*names} & {*gone}]
        for step in seen:
            there, here = first.texts[step], "".join(twin.texts[step : step + 1])
            if there != here:
                place = Difference(task=task, step=step, open=there, scrubbed=here)
                return len(seen), place, True
        return len(seen), None, True

    def _run(self, role: str, task: str, gone: tuple[str, ...]) -> _Run:
        script = self.roles[role]
        return self._play(self.world(gone), task, lambda seen: script.next(seen, task))

    def _play(
        self, world: Environment, task: str, act: Callable[[Sequence[str]], str | None]
    ) -> _Run:
        episode = world.spawn()
        start = episode.reset(task, self.seed)
        texts, shown = [f"{start.system or ''}{start.text}"], [tuple(start.channels)]
        actions: list[str] = []
        won: bool | None = False  # one that stops before the end has not won
        while len(actions) < MOST_TURNS and (action := act(texts)) is not None:
            result = episode.step(action)
            actions.append(action)
            over = result.terminated or result.truncated
            texts.append(result.observation + OVER * over)
            shown.append(tuple(result.channels))
            if over:
                won = None if result.outcome is None else result.outcome >= self.win
                break
        return _Run(tuple(actions), tuple(texts), tuple(shown), won)


def _again(actions: Sequence[str]) -> Callable[[Sequence[str]], str | None]:
    return lambda seen: actions[len(seen) - 1] if len(seen) <= len(actions) else None


def channels_of(world: Environment | PlayedElsewhere, without: Sequence[str]) -> tuple[str, ...]:
    """The channels to take out. Raises `UserError`."""
    known = tuple(channel.name for channel in world.channels)
    if unknown := [name for name in without if name not in known]:
        told = ", ".join(known) or "none"
        raise UserError(f"{world.name} has no channel '{unknown[0]}'; it has: {told}")
    if not known:
        raise UserError(f"{world.name} has no open channel, so it has no scrubbed twin to check")
    return tuple(dict.fromkeys(without)) or known


def _roles(
    world: Environment, honest: Any, cheats: Mapping[str, Any], bystander: Any
) -> dict[str, Script]:
    """The scripts by role: `honest`, `bystander`, and a channel's name for its cheat."""
    given = {"honest": honest, "bystander": bystander or honest, **cheats}
    own = shipped(world)
    if own and not bystander and not honest:
        given["bystander"] = own.get("bystander", own.get("honest"))
    told = {**own, **{role: one for role, one in given.items() if one is not None}}
    if "honest" not in told:
        raise UserError(f"{world.name} brings no scripts of its own; give --honest SCRIPT, {CURE}")
    return {role: script_of(one, role) for role, one in told.items()}
