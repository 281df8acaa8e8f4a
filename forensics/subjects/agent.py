"""Somebody else's agent on a served model, as a policy: it plays by its own command.

1. Each episode has a ticket of the recording proxy: the agent gets an address on loopback and a
   key that is the episode. The proxy samples as the case says and refuses kinds of action.
2. What an episode did is read from the proxy's record, what it is worth from the result that the
   command handed in. A command that ran out of time, crashed or handed in nothing has no outcome.
3. Every finished episode is kept by content, so that a case that was killed plays the others only.
   An episode whose server failed says nothing: it ends the run, and is played again.

Seeds: an episode's follows from its chunk's, its task and its sample, a call's from the episode's.

What an agent tells of this machine, taken out of its runs: keys, and where things lie here.

1. An agent may print its environment, or the folder that it works in. Each such text is replaced.
2. A token id tells its text: where a run shows a secret, its answers alone keep their tokens, and
   of these only the ones that do not repeat it.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any, Final, NamedTuple, NoReturn

from forensics.actions import actions_of
from forensics.errors import MissingInput, OutsideFailure
from forensics.harness import Commands, Handed, HarnessWorld, cleaned, handed_out
from forensics.phrases import plural
from forensics.progress import Progress, silent
from forensics.protocols import Capability, Constraint, Intervention, SamplingSettings
from forensics.proxy import EpisodeRecord, Patience, RecordingProxy, Ticket, trajectory_of
from forensics.proxy.open_episode import kind_of
from forensics.records import Step, Trajectory, content_hash
from forensics.records.files import write_atomically
from forensics.records.trajectory import records_that_differ
from forensics.world import environment_key

LEAST: Final = 8  # letters; a shorter text would be found within words


@dataclass(frozen=True)
class MachineWords:
    """`secrets`, `places`: a text, and what stands for it."""

    secrets: Mapping[str, str]
    places: Mapping[str, str]

    def taken_out(self, run: Trajectory) -> Trajectory:
        """The run without them."""
        shown = [any(one in _all(step) for one in self._known(self.secrets)) for step in run.steps]
        steps = [self._told(step) for step in run.steps]
        if any(shown):
            steps = [
                _bare(step) if here or step.role != "assistant" else step
                for step, here in zip(steps, shown, strict=True)
            ]
        handed = {name: self.text(getattr(run, name) or "") for name in ("submission", "patch")}
        handed = {name: text for name, text in handed.items() if text}
        return run.model_copy(update={"steps": tuple(steps), **handed})

    def text(self, text: str) -> str:
        """A text without them, the longest ones first."""
        known = self._known({**self.places, **self.secrets})
        for one in sorted(known, key=lambda one: (-len(one), one)):
            text = text.replace(one, known[one])
        return text

    def _told(self, step: Step) -> Step:
        calls = [
            one.model_copy(update={"arguments": self.text(one.arguments)})
            for one in step.tool_calls
        ]
        return step.model_copy(update={"text": self.text(step.text), "tool_calls": tuple(calls)})

    @staticmethod
    def _known(words: Mapping[str, str]) -> dict[str, str]:
        return {one: name for one, name in words.items() if len(one) >= LEAST}


CURE: Final = (
    "Measure it in a world that is stepped here, with the checkpoints (docs/own-environment.md)."
)
REFUSED: Final = "every draw was refused"  # as the proxy says it
OUTAGE: Final = "its server failed"
FIRST: Final = 8  # episodes after which a run is stopped if all of them failed
SHOWN: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR")  # of our environment
TOLD: Final = 4000  # bytes of what a command said last


class Planned(NamedTuple):
    """An episode to play. `seed`: its own; `name`: its content address."""

    world: HarnessWorld
    task: str
    sample: int
    settings: SamplingSettings
    seed: int
    constraint: Constraint | None
    name: str


@dataclass(kw_only=True)
class AgentPolicy:
    """`url`: of the server, up to and with `/v1`; `model`: the name that it serves; `key` stands
    in no record. `folder`: where finished episodes are kept. `told`: marks what a run was shown.
    """

    identity: str
    url: str
    model: str
    folder: Path
    key: str | None = field(default=None, repr=False)
    told: Callable[[Trajectory], Trajectory] = lambda run: run
    progress: Progress = silent
    patience: Patience = field(default_factory=Patience)
    capabilities: frozenset[Capability] = frozenset({"play", "constraint"})

    def play(
        self,
        environment: Any,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Episodes in the order of `tasks`. Raises `MissingInput` for a world that is altered and
        for changes of activations, which nobody can do to an agent that is a command.
        """
        if not isinstance(environment, HarnessWorld) or interventions:
            what = "its activations" if interventions else "what it is shown"
            raise MissingInput(
                f"An agent played by its own command: {what} cannot be changed.", CURE
            )
        planned = [
            self._planned(environment, task, sample, settings, seed, constraint)
            for task in tasks
            for sample in range(samples)
        ]
        return self._played(planned, environment.harness.table.at_once)

    def _planned(
        self,
        world: HarnessWorld,
        task: str,
        sample: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None,
    ) -> Planned:
        own = int(content_hash([seed, task, sample], 12), 16)
        address = [self.identity, environment_key(world), task, sample, settings.content(), own]
        name = content_hash([*address, constraint.name if constraint else None])
        return Planned(world, task, sample, settings, own, constraint, name)

    def _played(self, planned: Sequence[Planned], at_once: int) -> Iterator[Trajectory]:
        failed = _Failures(len(planned), at_once)
        with (
            RecordingProxy(self.patience) as proxy,
            ThreadPoolExecutor(at_once) as pool,
            Commands() as commands,
        ):
            waiting = deque(pool.submit(self._episode, one, proxy, commands) for one in planned)
            try:
                for number, one in enumerate(planned, 1):
                    run = waiting.popleft().result()
                    failed.count(run)
                    if number >= failed.first:
                        self._keep(one, run)
                    self.progress("episodes of the agent", number, len(planned))
                    yield run
            finally:
                for future in waiting:
                    future.cancel()
        failed.tell()

    def _place(self, one: Planned) -> Path:
        return self.folder / f"{one.name}.json"

    def _keep(self, one: Planned, run: Trajectory) -> None:
        if not is_outage(run) and not self._place(one).exists():
            write_atomically(self._place(one), run.model_dump_json())

    def _episode(self, one: Planned, proxy: RecordingProxy, commands: Commands) -> Trajectory:
        if (place := self._place(one)).exists():
            return _kept(place)
        with own_folder(one, commands) as scratch:
            run = self._run(one, scratch, proxy, commands)
        if run.end != "errored":  # those are kept once it is clear that not all of them fail
            self._keep(one, run)
        return run

    def _run(
        self, one: Planned, scratch: Path, proxy: RecordingProxy, commands: Commands
    ) -> Trajectory:
        ticket = Ticket(
            upstream_url=self.url,
            model=self.model,
            upstream_key=self.key,
            settings=one.settings,
            seed=one.seed,
            record=scratch / "record.jsonl",
            constraint=one.constraint,
            environment=one.world.name,
        )
        key = proxy.open(ticket)
        try:
            handed = handed_in(one, scratch, proxy.url, key, commands)
        finally:
            record = proxy.close(key)
        run = with_answers(self._trajectory(one, record, handed))
        run = machine_words(one.world, scratch, proxy.url, (key, self.key or "")).taken_out(run)
        return with_kinds(self.told(run))

    def _trajectory(self, one: Planned, record: EpisodeRecord, handed: Handed) -> Trajectory:
        silent_agent = None if record.messages else "the agent made no call to the proxy"
        reason = handed.reason or silent_agent
        if record.errored and not record.errored.startswith(REFUSED):
            record = replace(record, errored=f"{OUTAGE}: {cleaned(record.errored, self.key or '')}")
        return trajectory_of(
            record,
            id=content_hash(["run", one.name], 12),
            task=one.task,
            policy=self.identity,
            environment=one.world.name,
            without=one.world.scrubbed,
            sample=one.sample,
            rewards=dict(handed.rewards),
            outcome=None if reason else handed.outcome,
            submission=handed.submission,
            end=("errored", reason)
            if reason
            else ("truncated" if handed.truncated else "terminated", None),
        )


class _Failures:
    """Stops a run whose first episodes all failed, or whose server is gone, and tells of one in
    which most failed.
    """

    def __init__(self, number: int, at_once: int) -> None:
        self.first, self.number, self.errored = min(number, max(FIRST, at_once)), 0, 0
        self.outages = 0  # in a row
        self.why = ""
        self.differ: list[str] = []  # records of one outcome

    def count(self, run: Trajectory) -> None:
        """Raises `OutsideFailure` where all of the first ones failed, or as many in a row for
        their server.
        """
        self.number += 1
        if told := records_that_differ(run.rewards):
            self.differ.append(told)
        if run.end == "errored" and not (run.end_reason or "").startswith(REFUSED):
            self.errored, self.why = self.errored + 1, run.end_reason or ""
        self.outages = self.outages + 1 if is_outage(run) else 0
        if self.outages == self.first:
            self._stop_served()
        if self.number == self.errored == self.first > 1:
            raise OutsideFailure(
                f"each of the agent's first {self.number} episodes failed ({self.why}); mend its"
                " command, and go on with --resume"
            )

    def _stop_served(self) -> NoReturn:
        raise OutsideFailure(
            f"the agent's last {plural(self.outages, 'episode')} failed ({self.why}); see to the"
            " server, and go on with --resume"
        )

    def tell(self) -> None:
        """Behind the last episode."""
        if self.outages > 1 or self.outages == self.number:
            self._stop_served()
        if self.differ:
            logging.getLogger("forensics").warning(
                "in %d of %d episodes the files that tell the outcome differ (%s); the harness's"
                " result counts before reward.json, and that before reward.txt",
                len(self.differ),
                self.number,
                self.differ[0],
            )
        if 2 * self.errored > self.number:
            logging.getLogger("forensics").warning(
                "%d of %d episodes of the agent failed and have no outcome (%s); a gain that rests"
                " on the others says little",
                self.errored,
                self.number,
                self.why,
            )


def _kept(place: Path) -> Trajectory:
    """An episode that was kept. Raises `OutsideFailure` for a file that was changed."""
    try:
        return Trajectory.model_validate_json(place.read_bytes())
    except ValueError:
        raise OutsideFailure(
            f"{place} holds no episode any more; delete it, and go on with --resume"
        ) from None


@contextmanager
def own_folder(one: Planned, commands: Commands) -> Iterator[Path]:
    """A folder with the same name whenever the episode is played, in whatever world: an agent that
    says where it works says the same. Another one where that is there (a run beside this one).
    """
    name = content_hash([one.world.name, one.task, one.sample], 12)
    place = Path(gettempdir()) / f"episode-{name}"
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        place = Path(mkdtemp(prefix="episode-"))
    with commands.working_in(place):
        yield place


def machine_words(
    world: HarnessWorld, scratch: Path, url: str, keys: Sequence[str]
) -> MachineWords:
    """What an episode's command was told that is of this machine."""
    ours = {os.environ.get(name, ""): f"[{name}]" for name in ("PATH", *world.harness.table.passes)}
    paths = {text: name for text, name in ours.items() if text.startswith("/")}
    secrets = {text: name for text, name in ours.items() if text not in paths}
    folders = {scratch: "/episode", scratch.resolve(): "/episode", world.harness.folder: "/harness"}
    places = {str(folder): name for folder, name in folders.items()} | {url: "http://proxy"}
    return MachineWords(secrets | dict.fromkeys(keys, "[key]"), paths | places)


def with_kinds(run: Trajectory) -> Trajectory:
    """The run, its actions named as the proxy names them where it refuses some."""
    kinds: dict[int, list[str]] = {}
    for action in actions_of(run):
        kinds.setdefault(action.step, []).append(kind_of(action))
    steps = (
        step.model_copy(update={"kinds": tuple(kinds[at])}) if at in kinds else step
        for at, step in enumerate(run.steps)
    )
    return run.model_copy(update={"steps": tuple(steps)})


def with_answers(run: Trajectory) -> Trajectory:
    """The run with what came back to an action as a tool's: nobody talks to the agent, so what it
    sends as the user's behind its first action is the answer of its world.
    """
    first = next((at for at, _ in run.actions), len(run.steps))
    steps = (
        step.model_copy(update={"role": "tool"}) if step.role == "user" and at > first else step
        for at, step in enumerate(run.steps)
    )
    return run.model_copy(update={"steps": tuple(steps)})


def handed_in(one: Planned, scratch: Path, url: str, key: str, commands: Commands) -> Handed:
    """Run the command of an episode in a place of its own, and read what it handed in."""
    world, table = one.world, one.world.harness.table
    out, home, said = scratch / "out", scratch / "home", scratch / "stderr"
    out.mkdir()
    home.mkdir()
    task = world.task(one.task)
    argv = world.command(task, one.seed % 2**31, out, world.lay_out(task, scratch / "task"))
    names = (*SHOWN, *table.passes)
    variables = {name: os.environ[name] for name in names if name in os.environ} | {
        "HOME": str(home),
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        **world.variables,
    }
    why = commands.run(argv, world.harness.folder, variables, table.seconds, said, key)
    if why is None:
        return handed_out(out, table.result)
    last = cleaned(_end(said), key, *(os.environ.get(name, "") for name in table.passes))
    return Handed(reason=f"{why}: {last}" if last else why)


def _end(file: Path) -> str:
    """The end of what a command said, however much that is."""
    if not file.exists():
        return ""
    with file.open("rb") as said:
        said.seek(max(file.stat().st_size - TOLD, 0))
        return said.read().decode(errors="replace")


def is_outage(run: Trajectory) -> bool:
    """Whether a run ended since its server failed, which says nothing of it."""
    return run.end == "errored" and (run.end_reason or "").startswith(OUTAGE)


def _all(step: Step) -> str:
    return "\n".join([step.text, *(call.arguments for call in step.tool_calls)])


def _bare(step: Step) -> Step:
    nothing: dict[str, Any] = dict.fromkeys(("token_ids", "sampled", "logprobs"))
    return step.model_copy(update=nothing)
