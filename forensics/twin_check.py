"""Is the scrubbed twin of a world fair? A scrubbed world is believed once it is checked.

1. An *honest* script must win every task in both worlds: the job can still be done.
2. A *cheat* must win in the open world only: what was taken out is what it lived on.
3. A *bystander* (without one, the honest run) does the same things in both worlds and must read
   the same, letter by letter: but for texts of which the open world says that they show what was
   taken out. The open world is asked twice, so that a world that answers anew each time is told.

Each channel is taken out alone, and all of them together. What a script could not show (it does
not win where it should, no cheat for a channel) is *not checked*, which is never *fair*.

Scripts are the reader's own trusted code, or a list of actions:

* Python (`solver.py`, or `solver.py:NAME`): a function `act(observations, task)` (or `NAME`) that
  is given every text read so far, the prompt first, and the name of the task, and returns the
  next action; `None` where it has nothing left to do. *The file is run as it
  stands, with your rights.*
* Anything else: one action a line, in this order; `{task}` is replaced by the name of the task.

Of a harness, commands in the agent's place show it. `harness.toml` names them: `honest` (does the
job), a channel's `cheat` (wins by it alone), and `bystander` (optional). Each is run as the agent
is: the same placeholders, variables, copies of the task and time-out, a result in `{out}`; it asks
no model. A bystander writes what it reads to `{out}/seen.txt`, which must be the same in both
worlds, letter by letter; without one no texts are compared, and honest and cheating runs decide.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from secrets import token_urlsafe
from types import ModuleType
from typing import Any, Final, Literal

from forensics.errors import UserError, stop_outside
from forensics.harness import Commands, Harness, HarnessWorld, read_harness
from forensics.phrases import printable
from forensics.progress import Progress, silent
from forensics.protocols import Environment, SamplingSettings
from forensics.subjects.agent import Planned, handed_in, own_folder
from forensics.world import PlayedElsewhere

Act = Callable[[Sequence[str], str], str | None]
CURE = "a Python file with act(observations, task), or a text file with one action a line"


@dataclass(frozen=True)
class Script:
    """Something that acts, and the name under which mistakes of it are told."""

    name: str
    act: Act

    def next(self, observations: Sequence[str], task: str) -> str | None:
        """The next action. Raises `UserError` with the line where the script raised, and for what
        is no text.
        """
        try:
            action = self.act(list(observations), task)
        except Exception as error:
            stop_outside(error)
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise UserError(
                f"{self.name} raised {type(error).__name__} in line {where.lineno} of"
                f" {Path(where.filename).name} on task {task} ({error}); mend it"
            ) from error
        if action is not None and not isinstance(action, str):
            raise UserError(
                f"{self.name} returned {type(action).__name__} on task {task} instead of the text"
                " of an action; return a str, or None where nothing is left to do"
            )
        return action


def script_of(given: "str | Path | Act | Script", role: str) -> Script:
    """A script from a path, `PATH:FUNCTION` or a function. Raises `UserError`."""
    if isinstance(given, Script):
        return given
    if callable(given):
        return Script(f"the {role} script", given)
    path, _, function = str(given).partition(".py:")
    file = Path(f"{path}.py" if function else path)
    if not file.is_file():
        raise UserError(f"there is no {role} script {file}; give {CURE}")
    act = _function(file, function or "act") if file.suffix == ".py" else _listed(file)
    return Script(f"the {role} script {file.name}", act)


def _function(file: Path, name: str) -> Act:
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)
    except Exception as error:
        stop_outside(error)
        raise UserError(
            f"{file} cannot be run ({type(error).__name__}: {error}); mend it"
        ) from error
    act = getattr(module, name, None)
    if not callable(act):
        raise UserError(f"{file} has no function {name}; write def {name}(observations, task)")
    found: Act = act
    return found


def _listed(file: Path) -> Act:
    try:
        lines = [line for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError:
        raise UserError(f"{file} is not text in UTF-8; give {CURE}") from None
    if not lines:
        raise UserError(f"{file} holds no actions; give {CURE}")
    return in_turn(lines)


def in_turn(lines: Sequence[str]) -> Act:
    """These actions one after another, whatever comes back."""

    def act(observations: Sequence[str], task: str) -> str | None:
        done = len(observations) - 1
        return lines[done].replace("{task}", task) if done < len(lines) else None

    return act


def shipped(world: object) -> Mapping[str, Act]:
    """The scripts that a world brings along (`forensics.protocols.Rehearsed`)."""
    return dict(getattr(world, "scripts", {}))


NOWHERE: Final = "http://127.0.0.1:9"  # nobody answers there
SEEN: Final = "seen.txt"
NO_KNOWN_CHEAT: Final = (
    'no cheat by {0} is known; give cheat = ["COMMAND", ...] in its [[channels]]'
)
Came = tuple[bool | None, str | None]  # won, and what was seen


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


Status = Literal["fair", "unfair", "not checked"]


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


def check_harness_twin(
    path: Path,
    *,
    without: Sequence[str] = (),
    tasks: int = 20,
    seed: int = 0,
    win: float = 1.0,
    progress: Progress = silent,
) -> tuple[TwinResult, ...]:
    """Check the twins of a `harness.toml`, as `forensics.check_twin` does for a world that is
    stepped here. Raises `UserError`.
    """
    harness = read_harness(path)
    if not harness.table.honest:
        raise UserError(
            f'{path} names no honest command; give honest = ["COMMAND", ...], which does the job'
            " and hands in as the agent does"
        )
    world = HarnessWorld(harness)
    names = channels_of(world, without)
    taken = [(name,) for name in names] + ([names] if len(names) > 1 else [])
    drawn = world.tasks("held-out", tasks, seed)
    with Commands() as commands, ThreadPoolExecutor(harness.table.at_once) as pool:
        plays = _HarnessPlays(harness, seed, win, commands)
        found = []
        for at, gone in enumerate(taken):
            rows = []
            for number, row in enumerate(pool.map(lambda t, g=gone: plays.task(t, g), drawn)):
                progress("twin", at * len(drawn) + number, len(taken) * len(drawn))
                rows.append(row)
            texts = bool(harness.table.bystander)
            result = judged(gone, rows, cure=NO_KNOWN_CHEAT, texts=texts)
            found.append(replace(result, unchecked=(*result.unchecked, *plays.failures(gone))))
    progress("twin", 1, 1)
    return tuple(found)


class _HarnessPlays:
    """Runs the commands of a harness in the agent's place."""

    def __init__(self, harness: Harness, seed: int, win: float, commands: Commands) -> None:
        self.harness, self.seed, self.win, self.commands = harness, seed, win, commands
        self._failed: dict[tuple[str, tuple[str, ...], str], str] = {}

    def failures(self, gone: tuple[str, ...]) -> Iterator[str]:
        """What the first failed run of each command in the open world, or without `gone`, said."""
        rows = sorted((key, why) for key, why in self._failed.items() if key[1] in ((), gone))
        for (who, _, task), why in {key[0]: (key, why) for key, why in reversed(rows)}.values():
            yield f"the {who} command failed on {task}: {printable(why, 300)}"

    def task(self, task: str, gone: tuple[str, ...]) -> TwinTask:
        table, channels = self.harness.table, self.harness.channels
        both = ((), gone)
        honest = [self._run("honest", table.honest, task, world)[0] for world in both]
        cheats = {
            name: [self._run(f"{name} cheat", channels[name].cheat, task, w)[0] for w in both]
            for name in gone
            if channels[name].cheat
        }
        row = TwinTask(
            task=task,
            honest=(honest[0], honest[1]),
            cheats={name: (wins[0], wins[1]) for name, wins in cheats.items()},
        )
        return self._compared(row, gone) if table.bystander else row

    def _compared(self, row: TwinTask, gone: tuple[str, ...]) -> TwinTask:
        worlds: tuple[tuple[str, ...], ...] = ((), (), gone)
        first, again, twin = (
            self._run("bystander", self.harness.table.bystander, row.task, world)[1]
            for world in worlds
        )
        if first is None or first != again:
            return replace(row, steady=first is None)
        here = "" if twin is None else twin
        place = Difference(task=row.task, step=1, open=first, scrubbed=here)
        return replace(row, compared=1, difference=None if here == first else place)

    def _run(self, who: str, argv: Sequence[str], task: str, gone: tuple[str, ...]) -> Came:
        table = self.harness.table.model_copy(update={"command": tuple(argv)})
        world = HarnessWorld(replace(self.harness, table=table)).without(*gone)
        planned = Planned(world, task, 0, SamplingSettings(), self.seed, None, "")
        key = f"sk-{token_urlsafe(24)}"  # as the proxy draws an agent's
        with own_folder(planned, self.commands) as made:
            handed = handed_in(planned, made, NOWHERE, key, self.commands)
            seen = made / "out" / SEEN
            text = seen.read_text(errors="replace") if seen.is_file() else None
        text = None if text is None else text.replace(key, "[key]")
        quiet = text is None and who == "bystander"
        if (handed.outcome is None and who != "bystander") or quiet:
            why = handed.reason or (f"it left no {{out}}/{SEEN}" if quiet else "it has no outcome")
            self._failed[who, gone, task] = why
        return (None if handed.outcome is None else handed.outcome >= self.win), text


MOST_TURNS = 200
SHOWN = 60  # characters of a text around the first place that differs
OVER = "\n[the episode is over]"
NO_CHEAT = "no cheat by {0} was given; give --cheat {0}=SCRIPT, or leave it out with --without"
Wins = Mapping[str, tuple[bool | None, bool | None]]


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
    (`forensics.twin_check`); those that are missing are the world's own, where it brings some.
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
