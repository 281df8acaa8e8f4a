"""The record of an episode: JSON lines, one an event, written as it happens (`Recorder`), and read
back whole (`read_record`).

A record holds no key, no header, no address and no time. Lines: `episode` (settings and seed);
`call` (what was asked: of the messages those behind the call that it `extends`); `drawn` (an
answer, refused or not, with what the server told of its tokens; of the tokens before it those
behind what the last draw has in common with them); `left` (the agent hung up), `declined` (the
request was refused), `errored`, `closed`.

`Ticket`: what an episode may draw, from whom, and where it is kept. `trajectory_of`: its record as
a run.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from forensics.errors import UserError
from forensics.policies.completions import LONGEST_PAUSE
from forensics.protocols import Constraint, SamplingSettings
from forensics.proxy.chat_calls import Answer, Asked, Descent, Message
from forensics.readers.messages import steps_of
from forensics.readers.submission import submission_of
from forensics.readers.values import End, run_of
from forensics.records import Step, Trajectory
from forensics.records.trajectory import TOKEN_LIMIT


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """One episode. `upstream_url`: the server's address up to and with `/v1`; `model`: the name
    that it serves; `upstream_key` is sent to it and stands nowhere else.

    `settings`: of every call, whatever the agent asks; `max_turn_tokens` bounds a call,
    `max_tokens` the conversation that it extends. `seed`: the episode's; each draw has one of its
    own (`draw_seed`). `record`: the file to write, which must not be there yet. `environment`:
    whose language the actions are read in (entry points `forensics.languages`), where a
    `constraint` judges them. Raises `UserError` for an address that is none.
    """

    upstream_url: str
    model: str
    settings: SamplingSettings
    seed: int
    record: Path
    upstream_key: str | None = field(default=None, repr=False)
    constraint: Constraint | None = None
    environment: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.upstream_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"the server's address must be http://HOST/v1 or https://HOST/v1, not"
                f" '{self.upstream_url}'"
            )

    def draw_seed(self, call: int, redraw: int) -> int:
        """The seed of a draw, in [0, 2**31), by episode, call and redraw."""
        told = f"{self.seed} {call} {redraw}".encode()
        return int.from_bytes(hashlib.sha256(told).digest()[:4]) >> 1


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a server is waited for. `timeout`: seconds for one answer, `silence`: for its next
    piece; `tries`: times a request is sent; `pause`: seconds before the second try (`busy`: after
    a 429 that names no time), doubled for each further one, `longest_pause` at most (`retries`).
    """

    timeout: float = 600.0
    silence: float = 300.0
    tries: int = 4
    pause: float = 0.5
    busy: float = 5.0
    longest_pause: float = LONGEST_PAUSE


UNCLOSED: Final = "the record ends before its episode was closed"
FORMAT: Final = 1
ONCE: Final = ("redraw", "seed", "message", "finish", "usage")  # of a draw, as it is written


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One answer that the server drew. `kinds`: of its actions, where a constraint judged them;
    `refused`: by it. `prompt_ids`, `token_ids`, `logprobs` (nats, one for each of `token_ids`):
    `None` where the server did not tell them, then named in `missing`.
    """

    redraw: int
    seed: int
    message: Message
    finish: str | None
    usage: dict[str, int] | None
    kinds: tuple[str, ...] = ()
    refused: bool = False
    malformed: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. `extends`: the call whose messages and answer it begins with, `messages` what
    stands behind these; else all of them, and `follows`: the call whose answer is the last one in
    them. `unheeded`: what the agent wished that was not done. `end`: `answered`, `left` (the
    agent hung up), `declined` (with the words), `open` (the record ends before).
    """

    number: int
    dialect: str
    extends: int | None
    follows: int | None
    messages: tuple[Message, ...]
    tools: tuple[Any, ...]
    more: Mapping[str, Any]
    unheeded: Mapping[str, Any]
    draws: tuple[Draw, ...] = ()
    end: str = "open"
    words: str | None = None

    @property
    def answer(self) -> Draw | None:
        """What the agent was given."""
        last = self.draws[-1] if self.draws else None
        return last if last is not None and not last.refused and self.end == "answered" else None


@dataclass(frozen=True, kw_only=True)
class EpisodeRecord:
    """All that one episode asked and was answered. `errored`: why it says nothing of the policy;
    `cut`: a call was declined since the conversation was at its token limit.
    """

    seed: int
    model: str
    settings: Mapping[str, Any]
    constraint: str | None
    calls: tuple[Call, ...]
    errored: str | None
    cut: bool = False

    @property
    def main(self) -> tuple[int, ...]:
        """The calls of the main conversation, in order: of the chains of answered calls that go on
        from each other the longest, the last of several.
        """
        depth, by_number = dict[int, int](), {call.number: call for call in self.calls}
        for call in self.calls:
            if call.answer is not None:
                depth[call.number] = depth.get(self._before(call), 0) + 1
        at = max(depth, key=lambda number: (depth[number], number), default=-1)
        found = []
        while at >= 0:
            found.append(at)
            at = self._before(by_number[at])
        return tuple(found[::-1])

    @property
    def conversation(self) -> tuple[Call, ...]:
        """The calls of `main`."""
        numbers = {*self.main}
        return tuple(call for call in self.calls if call.number in numbers)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The main conversation: what the agent said first, answers, what came back."""
        found: list[Message] = []
        for call in self.conversation:
            found += call.messages if call.follows is None else _behind_answers(call.messages)
            assert call.answer is not None
            found.append(call.answer.message)
        return tuple(found)

    @property
    def forks(self) -> int:
        """How many calls but the first do not extend the one before them."""
        return sum(one.extends != before.number for before, one in pairwise(self.calls))

    @property
    def aside(self) -> int:
        """How many answered calls are no part of the main conversation."""
        return sum(call.answer is not None for call in self.calls) - len(self.main)

    @property
    def redraws(self) -> int:
        """How many draws were refused."""
        return sum(draw.refused for call in self.calls for draw in call.draws)

    @staticmethod
    def _before(call: Call) -> int:
        found = call.extends if call.extends is not None else call.follows
        return -1 if found is None else found


class Recorder:
    """Writes one record, each line whole before the next thing happens. Raises `UserError` where
    there is one already.
    """

    def __init__(self, path: Path, ticket: Ticket) -> None:
        self._path, self._text, self._tools = path, list[int](), list[Any]()
        self._closed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.open("x").close()
        except FileExistsError:
            raise UserError(
                f"{path} holds an episode already; give another file, or delete it"
            ) from None
        constraint = ticket.constraint
        model = ticket.model.rstrip("/").rpartition("/")[2]  # a path of the server's otherwise
        self._line(
            episode=FORMAT,
            seed=ticket.seed,
            model=model if ticket.model.startswith(("/", "~", ".")) else ticket.model,
            settings=asdict(ticket.settings),
            constraint=None if constraint is None else constraint.name,
        )

    def asked(self, number: int, asked: Asked, descent: Descent) -> None:
        """A request came in; tools are told where they are other than before."""
        tools = {} if asked.tools == self._tools else {"tools": asked.tools}
        self._tools = asked.tools
        self._line(
            call=number,
            dialect=asked.dialect,
            extends=descent.extends,
            follows=descent.follows,
            messages=asked.messages[descent.known :],
            **tools,
            more=asked.more,
            unheeded=asked.unheeded,
        )

    def drawn(
        self,
        number: int,
        redraw: int,
        seed: int,
        answer: Answer,
        declined: frozenset[str],
        **more: Any,
    ) -> None:
        """An answer is whole."""
        told = ("prompt_ids", "token_ids", "logprobs", "finish", "usage")
        ids = tuple(answer.ids or ())
        logprobs = answer.logprobs if len(answer.logprobs or ()) == len(ids) or not ids else None
        values = (answer.prompt_ids, answer.ids, logprobs, answer.finish, answer.usage)
        lacks = [name for name, value in zip(told, values, strict=True) if value is None]
        self._line(
            drawn=number,
            redraw=redraw,
            seed=seed,
            message=answer.message,
            finish=answer.finish,
            usage=answer.usage,
            malformed=answer.malformed,
            missing=sorted({*lacks, *declined}),
            **self._prompt(answer.prompt_ids),
            token_ids=answer.ids,
            logprobs=logprobs,
            **more,
        )
        if answer.prompt_ids is not None:
            self._text = [*answer.prompt_ids, *ids]

    def _prompt(self, ids: list[int] | None) -> dict[str, Any]:
        if ids is None:
            return {}
        kept = _common(self._text, ids)
        return {"kept": kept, "prompt_more": ids[kept:]}

    def left(self, number: int, answer: Answer) -> None:
        """The agent hung up; `answer`: what had come."""
        self._line(left=number, message=answer.message)

    def declined(self, number: int, status: int, words: str, cut: bool = False) -> None:
        self._line(declined=number, status=status, words=words, cut=cut)

    def errored(self, words: str) -> None:
        self._line(errored=words)

    def closed(self) -> None:
        self._line(closed=True)
        self._closed = True

    def _line(self, **event: Any) -> None:
        if self._closed:
            return
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        with self._path.open("a", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text + "\n")


class _Reading:
    """What the lines have told so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.text, self.tools = path, tuple[int, ...](), tuple[Any, ...]()
        self.calls: dict[int, Call] = {}
        self.errored: str | None = UNCLOSED
        self.why: str | None = None
        self.cut = False

    def read(self, events: Sequence[Any]) -> EpisodeRecord:
        try:
            for event in events[1:]:
                self._take(event)
            first = {name: events[0][name] for name in ("seed", "model", "settings", "constraint")}
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{self.path} is no whole record ({error} is missing); give it as written"
            ) from None
        calls = tuple(self.calls[number] for number in sorted(self.calls))
        return EpisodeRecord(**first, calls=calls, errored=self.why or self.errored, cut=self.cut)

    def _take(self, event: dict[str, Any]) -> None:
        if "call" in event:
            self._called(event)
        elif "drawn" in event:
            self._drawn(event)
        elif "left" in event:
            self._end(event["left"], "left")
        elif "declined" in event:
            self._end(event["declined"], "declined", event["words"])
            self.cut = self.cut or event["cut"]
        elif "errored" in event:
            self.why = self.why or event["errored"]
        elif event.get("closed"):
            self.errored = None

    def _called(self, event: dict[str, Any]) -> None:
        self.tools = tuple(event.get("tools", self.tools))
        self.calls[event["call"]] = Call(
            number=event["call"],
            messages=tuple(event["messages"]),
            tools=self.tools,
            **{key: event[key] for key in ("dialect", "extends", "follows", "more", "unheeded")},
        )

    def _drawn(self, event: dict[str, Any]) -> None:
        call, ids, prompt = self.calls[event["drawn"]], event["token_ids"], None
        if "kept" in event:
            prompt = (*self.text[: event["kept"]], *event["prompt_more"])
            self.text = (*prompt, *(ids or ()))
        told: dict[str, Any] = {key: event[key] for key in ONCE}
        told |= {key: tuple(event.get(key, ())) for key in ("kinds", "malformed", "missing")}
        draw = Draw(
            prompt_ids=prompt,
            token_ids=None if ids is None else tuple(ids),
            logprobs=None if event["logprobs"] is None else tuple(event["logprobs"]),
            refused=event.get("refused", False),
            **told,
        )
        end = "open" if draw.refused else "answered"
        self.calls[call.number] = replace(call, draws=(*call.draws, draw), end=end)

    def _end(self, number: int, end: str, words: str | None = None) -> None:
        self.calls[number] = replace(self.calls[number], end=end, words=words)


def _behind_answers(messages: Sequence[Message]) -> list[Message]:
    behind = takewhile(lambda one: one.get("role") != "assistant", reversed(messages))
    return list(behind)[::-1]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first tokens are equal."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(at for at in range(most) if one[at] != other[at])


def read_record(path: Path) -> EpisodeRecord:
    """The record in a file. One that ends in the middle (its writer was killed) is `errored`, with
    all that is there. Raises `UserError` for a file that is no record.
    """
    events = list(_events(path))
    if not events or events[0].get("episode") != FORMAT:
        raise UserError(f"{path} is no record of an episode; give one that the proxy wrote")
    return _Reading(path).read(events)


def _events(path: Path) -> Iterator[Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a record") from None
    *lines, _ = content.split(b"\n")  # behind the last line end stands nothing, or a half line
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line.decode("utf-8", "surrogatepass"))
        except ValueError:
            event = None
        if not isinstance(event, dict):
            raise UserError(f"line {number} of {path} is no line of a record; give it as written")
        yield event


def trajectory_of(
    record: EpisodeRecord,
    *,
    id: str,
    task: str,
    policy: str,
    environment: str,
    sample: int = 0,
    without: Sequence[str] = (),
    rewards: Mapping[str, float | None] | None = None,
    outcome: float | None = None,
    submission: str | None = None,
    end: End = ("terminated", None),
) -> Trajectory:
    """The main conversation of an episode as the run that a log of the same chat gives, with the
    tokens that the server told. `end`: how it ended by its harness's word; an episode that is
    errored has no outcome, whatever was said of it.

    Every step has its token ids where each call's prompt goes on from the last one's text; else
    answers alone have theirs.
    """
    end = ("truncated", TOKEN_LIMIT) if record.cut and end[0] == "terminated" else end
    failed = record.errored is not None
    run = run_of(
        _with_tokens(steps_of(list(record.messages)), record),
        ("errored", record.errored) if failed else end,
        id=id,
        task=task,
        policy=policy,
        environment=environment,
        sample=sample,
        rewards=rewards,
        outcome=None if failed or end[0] == "errored" else outcome,
        work=submission_of(submission, finished=end[0] == "terminated"),
    )
    known = {"seed": record.seed, "without": tuple(without), "redraws": record.redraws}
    return run.model_copy(update=known)


def _with_tokens(steps: tuple[Step, ...], record: EpisodeRecord) -> list[Step]:
    calls, found = record.conversation, list(steps)
    spoken = [at for at, step in enumerate(steps) if step.role == "assistant"]
    if not calls or len(spoken) < len(calls):
        return found
    drawn = spoken[len(spoken) - len(calls) :]  # what stands before was given as a prompt
    before = _between(calls)
    if before is not None and all(at and steps[at - 1].role != "assistant" for at in drawn):
        found = [_given(step, ()) for step in found]
        for at, ids in zip(drawn, before, strict=True):
            found[at - 1] = _given(found[at - 1], ids)
    for at, call in zip(drawn, calls, strict=True):
        found[at] = _answered(steps[at], call)
    return found


def _between(calls: Sequence[Call]) -> list[tuple[int, ...]] | None:
    """What was read before each answer and behind the one before; `None` where the texts do not
    go on from each other.
    """
    found, text = [], tuple[int, ...]()
    for call in calls:
        draw = call.answer
        assert draw is not None
        prompt, ids = draw.prompt_ids, draw.token_ids
        if prompt is None or ids is None or prompt[: len(text)] != text:
            return None
        found.append(prompt[len(text) :])
        text = (*prompt, *ids)
    return found


def _given(step: Step, ids: tuple[int, ...]) -> Step:
    return step.model_copy(update={"token_ids": ids, "sampled": (False,) * len(ids)})


def _answered(step: Step, call: Call) -> Step:
    draw = call.answer
    assert draw is not None
    if draw.token_ids is None:
        return step
    drawn = {"token_ids": draw.token_ids, "sampled": (True,) * len(draw.token_ids)}
    return step.model_copy(update={**drawn, "logprobs": draw.logprobs})
