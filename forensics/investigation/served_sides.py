"""Servers as the sides of a case (`--before-server`, `--after-server`): they play and score, the
checkpoint directories have the tokenizer.

What a server serves cannot be hashed. A side is named, in `case.json` and in the report, by the
name that it is served under, and

1. by the content hash of the weights in its directory, where they are there: whether these are
   served, `served_draws` (`forensics check-server`) asks;
2. else by the log-probabilities of fixed texts (nats a token). A case that is gone on with takes
   its old name where they agree within `NOISE`, which an engine's arithmetic does not reach; a
   server whose weights have moved further is another side, and refused as one.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.policies import (
    ServerConfig,
    ServerPolicy,
    inspect_checkpoint,
    read_environment_hint,
)
from forensics.policies.server import rendering
from forensics.protocols import Policy, SamplingSettings

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
