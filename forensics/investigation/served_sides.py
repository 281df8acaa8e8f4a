"""Servers as the sides of a case (`--before-server`, `--after-server`): they play and score, the
checkpoint directories have the tokenizer.

What a server serves cannot be hashed. A side is named, in `case.json` and in the report, by the
name that it is served under, and

1. by the content hash of the weights in its directory, where they are there: whether these are
   served, `served_draws` (`forensics check-server`) asks;
2. else by the log-probabilities of fixed texts (nats a token). A case that is gone on with takes
   its old name where they agree within `NOISE`, which an engine's arithmetic does not reach; a
   server whose weights have moved further is another side, and refused as one.

Somebody else's agent as the sides of a case (`--harness`): its world, and one policy for each
served model (`forensics.subjects.agent`).

A served model is named by the name that it is served under and, where the server scores texts, by
the log-probabilities of fixed ones (`served_sides`); else by its name alone, which its name says.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

import httpx

from forensics.actions import actions_of
from forensics.errors import UserError
from forensics.harness import Harness, HarnessWorld, read_harness
from forensics.investigation.folder import ANSWERS
from forensics.phrases import plural, printable
from forensics.policies import (
    ServerConfig,
    ServerPolicy,
    inspect_checkpoint,
    read_environment_hint,
)
from forensics.policies.server import rendering
from forensics.progress import Progress, silent
from forensics.protocols import Policy, SamplingSettings
from forensics.records import Trajectory
from forensics.shortcuts import families, scan_trajectory
from forensics.subjects.agent import AgentPolicy

KEY = "OPENAI_API_KEY"  # the environment variable with the servers' key, where they want one
NOT_SCORED = "known by its name alone: the server scores no texts"
WAIT = 60.0  # seconds
LEAST = 2  # tasks
TEXTS: Final = (
    "The quick brown fox jumps over the lazy dog, and then it goes home.",
    "def add(left, right):\n    return left + right\n\nassert add(2, 3) == 5\n",
    "Question: what is 17 times 24? Answer: 17 times 24 is 408.",
    "1 2 3 5 8 13 21 34 55 89 144 233 377 610 987",
)
NOISE: Final = 0.02  # nats a token, the mean over the texts
MARK: Final = "log-probabilities of fixed texts"


def served_sides(
    directories: Sequence[Path], servers: Sequence[str | None], out: Path
) -> list[Path | Policy]:
    """The side before training and those after it. `servers`: the address of each up to and with
    `/v1`, `#` and the model's name behind it where the server has several; `None`: the directory
    itself. `out`: the case's folder. Raises `UserError`.
    """
    known = stated_names(out)
    return [
        directory if server is None else _side(directory, server, known)
        for directory, server in zip(directories, servers, strict=True)
    ]


def paired_servers(before: str | None, after: Sequence[str], afters: int) -> list[str | None]:
    """Who serves each side. Raises `UserError` where servers and checkpoints after do not pair."""
    if after and len(after) != afters:
        raise UserError(
            f"there are {afters} of --after and {len(after)} of --after-server; give each"
            " checkpoint after training its server, in the same order"
        )
    others: Sequence[str | None] = after or [None] * afters
    return [before, *others]


def hinted_world(
    directory: Path, name: str | None, options: Mapping[str, str]
) -> tuple[str | None, dict[str, str]]:
    """The world that a directory's `environment.json` names, unless another is named."""
    hint = read_environment_hint(directory)
    if hint is None or name not in (None, hint.name):
        return name, dict(options)
    return hint.name, {**hint.options, **options}


def _side(directory: Path, server: str, known: Sequence[str]) -> Policy:
    url, _, model = server.partition("#")
    policy = ServerPolicy(ServerConfig(url=url, model=model or None), **rendering(directory))
    policy.identity = _name(policy, directory, known)
    side: Any = policy
    found: Policy = side
    return found


def _name(policy: ServerPolicy, directory: Path, known: Sequence[str]) -> str:
    name = f"served {policy.served_as}"
    if any(directory.expanduser().glob("*.safetensors")):
        return f"{name}, weights {inspect_checkpoint(directory).identity} as its directory has them"
    ids = [list(policy.tokenizer(text)["input_ids"]) for text in TEXTS]
    return earlier_name(
        name, [float(row.mean()) for row in policy.logprobs(ids, SamplingSettings())], known
    )


def earlier_name(name: str, told: Sequence[float], known: Sequence[str]) -> str:
    """A side by the log-probabilities of the fixed texts: its old name where they agree with those
    in it.
    """
    for earlier in known:
        begin, _, numbers = earlier.partition(f", {MARK} ")
        apart = [abs(a - float(b)) for a, b in zip(told, numbers.split(), strict=False)]
        if begin == name and apart and sum(apart) / len(apart) <= NOISE:
            return earlier
    return f"{name}, {MARK} {' '.join(format(one, '.4f') for one in told)}"


def stated_names(out: Path) -> list[str]:
    """How a case that is there names its sides."""
    try:
        inputs = json.loads((out / "case.json").read_text())["inputs"]
        return [str(side.get("policy", "")) for side in (inputs["before"], *inputs["after"])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def agent_sides(
    harness: Path,
    before: str,
    after: Sequence[str],
    out: Path,
    progress: Progress = silent,
) -> tuple[HarnessWorld, list[Policy]]:
    """The world of a `harness.toml`, and the policies before and after training. `before`,
    `after`: addresses up to and with `/v1`, `#` and the model's name behind where there are
    several. `out`: the case's folder. Raises `UserError` for what cannot be meant, and for a
    server that does not answer.
    """
    read = read_harness(harness.expanduser())
    if (number := sum(task.split == "held-out" for task in read.tasks.values())) < LEAST:
        raise UserError(
            f"{harness} has {plural(number, 'held-out task')}, of which no gain can be told; give"
            f" {LEAST} at least"
        )
    world, told, known = HarnessWorld(read), marker(read), stated_names(out)
    sides: Any = [_agent_side(server, out, known, told, progress) for server in (before, *after)]
    return world, sides


def _agent_side(
    server: str,
    out: Path,
    known: Sequence[str],
    told: Callable[[Trajectory], Trajectory],
    progress: Progress,
) -> AgentPolicy:
    url, _, model = server.partition("#")
    config = ServerConfig(url=url.rstrip("/"), key=os.environ.get(KEY))
    with httpx.Client(
        headers={"Authorization": f"Bearer {config.key}"} if config.key else {}, timeout=WAIT
    ) as client:
        model = _model(client, config.url, model)
        scores = _scores(client, config.url, model)
    name = f"agent on served {model}"
    named = f"{name}, {NOT_SCORED}" if scores is None else earlier_name(name, scores, known)
    return AgentPolicy(
        identity=named,
        url=config.url,
        model=model,
        key=config.key,
        folder=out.expanduser() / ANSWERS / "episodes",
        told=told,
        progress=progress,
    )


def _model(client: httpx.Client, url: str, named: str) -> str:
    """The model that is named, or the only one. Raises `UserError` where there are several, and
    for a name that the server neither lists nor answers to: before anything is played.
    """
    try:
        answer = client.get(f"{url}/models").raise_for_status().json()
        names = [str(one["id"]) for one in answer["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        if not named:
            raise _no_answer(url, error) from None
        names = []  # it may well have this one
    serves = f"the server {url} " + (f"serves {', '.join(names)}" if names else "lists no model")
    if not named and len(names) != 1:
        raise UserError(f"{serves}; name one: {url}#NAME")
    if named and named not in names:
        body = {"model": named, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        try:
            status = client.post(f"{url}/chat/completions", json=body).status_code
        except httpx.HTTPError as error:
            raise _no_answer(url, error) from None
        if status in (400, 404, 422):
            raise UserError(
                f"{serves}, and declined '{printable(named)}' (status {status}); mend the name"
                f" behind {url}#"
            )
    return named or names[0]


def _no_answer(url: str, error: Exception) -> UserError:
    why = str(error).partition("\n")[0] or type(error).__name__
    return UserError(f"the server {url} does not answer as it should ({why}); start it, or mend it")


def _scores(client: httpx.Client, url: str, model: str) -> list[float] | None:
    """The mean log-probability of each fixed text (nats a token), `None` where the server scores
    none. Raises `UserError` where there is no server.
    """
    body = {"model": model, "prompt": list(TEXTS), "max_tokens": 1, "echo": True, "logprobs": 1}
    try:
        answer = client.post(f"{url}/completions", json=body | {"temperature": 0.0})
    except httpx.HTTPError as error:
        raise _no_answer(url, error) from None
    try:
        rows = [one["logprobs"]["token_logprobs"][1:-1] for one in answer.json()["choices"]]
        means = [sum(row) / len(row) for row in rows]
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        return None
    return means if len(means) == len(TEXTS) and all(map(isfinite, means)) else None


def marker(harness: Harness) -> Callable[[Trajectory], Trajectory]:
    """What marks in a run which of its steps tried a channel, or showed what it holds: the
    families of the scan that the channels name. Raises `UserError` for an unknown family.
    """
    there = {one.id: one for one in families(harness.table.name)}
    channel_of: dict[str, str] = {}
    for channel in harness.table.channels:
        for name in channel.families:
            if name not in there:
                raise UserError(
                    f"the channel {channel.name} names the family '{name}', which does not look at"
                    f" {harness.table.name}; there are: {', '.join(there)}"
                )
            channel_of[name] = channel.name
    wanted = tuple(there[name] for name in channel_of)

    def told(run: Trajectory) -> Trajectory:
        if not wanted:
            return run
        marks: dict[int, list[str]] = {}
        for found in scan_trajectory(run, actions_of(run), wanted):
            for step in (*found.attempt_steps, *found.obtained_steps):
                marks.setdefault(step, []).append(channel_of[found.family])
        return _marked(run, marks)

    return told


def _marked(run: Trajectory, marks: Mapping[int, Sequence[str]]) -> Trajectory:
    steps = [
        step.model_copy(update={"channels": tuple(dict.fromkeys(marks[at]))})
        if at in marks
        else step
        for at, step in enumerate(run.steps)
    ]
    return run.model_copy(update={"steps": tuple(steps)})
