"""What the formats have in common: values of any kind as objects, lists, numbers
and scores, and what a log says of a run as a trajectory.

1. What is no number stays `None`, never 0.
2. `run_of` makes the trajectory: what a log does not say has one form for all
   formats (a task without a name is the hash of its prompt, a model without one
   is `unknown`).
3. `ending` reads how the run ended from the words of its log.

A whole ReAct transcript that stands in one answer, taken apart: `with_observations`.

What stands between `Observation:` and the next `Thought:`, `Action:` or `Final Answer:`
came back from a tool, where an `Action:` stands before it. A policy may write
observations itself: its text cannot be told from a real answer in such a log.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, NamedTuple

from forensics.actions.untrusted import word_tables
from forensics.records import Step, Trajectory, content_hash
from forensics.records.trajectory import Ending

MOST = 1000  # observations of one text
_OBSERVED = re.compile(r"^[ \t]*\**Observation(?: \d{1,4})?:\**[ \t]*", re.M)
_SAID = re.compile(r"^[ \t]*\**(?:Thought|Action|Final Answer)(?: \d{1,4})?:", re.M)
_ACTED = re.compile(r"^[ \t]*\**Action(?: \d{1,4})?:", re.M)
TABLES = word_tables("forensics.readers", "field_names.toml")
WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
LONGEST_REASON = 500  # characters


def field_names(table: str) -> Any:
    """What logs call things: the words of a table, each list under its name."""
    return SimpleNamespace(**TABLES[table])


def number(value: Any) -> float | None:
    """A finite number: of a number, of Inspect's letters (C, P, I, N), of yes
    and no, or of digits in a text.
    """
    if isinstance(value, str):
        found = WORDS.get(value, WORDS.get(value.strip().lower()))
        try:
            value = float(value) if found is None else found
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def score_of(value: Any) -> float | None:
    """The value as an outcome: a number in [0, 1], else `None`."""
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def named(name: str, value: Any) -> Iterator[tuple[str, float | None]]:
    """A score as named numbers: one, or one for each entry of an object or a list."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name}.{key}", number(part)
    elif isinstance(value, list):
        for key, part in enumerate(value):
            yield f"{name}.{key}", number(part)
    else:
        yield name, number(value)


def integer(value: Any) -> int | None:
    """A whole number as it stands in a record, small enough for a file; `None`
    for anything else.
    """
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31
    return value if fits else None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def dig(value: Any, *keys: str) -> Any:
    """`value[key][key]...`, `None` where one of them is missing."""
    for key in keys:
        value = as_mapping(value).get(key)
    return value


End = tuple[Ending, str | None]  # how a run ended, and the words for it


class Work(NamedTuple):
    """What a run handed in: `submission` and `patch` of its trajectory."""

    submission: str | None = None
    patch: str | None = None


NO_WORK = Work()


def ending(
    told: Any, cut_off: Sequence[str] = (), otherwise: Ending = "terminated", error: Any = None
) -> End:
    """How a run ended. `told`: what its log says of that; the run was cut off where
    one of the words `cut_off` is in it. An `error` is an error.
    """
    if error:
        return "errored", str(error)
    if told is None:
        return otherwise, None
    text = str(told)
    return "truncated" if any(word in text.lower() for word in cut_off) else otherwise, text


def prompt_of(steps: Iterable[Step]) -> list[list[str]]:
    """What stands before the first answer: role and text of each message."""
    return [[step.role, step.text] for step in takewhile(lambda s: s.role != "assistant", steps)]


def prompt_hash(steps: Iterable[Step]) -> str:
    """A name for a task that has none, the same for the same prompt."""
    return f"prompt-{content_hash(prompt_of(steps), 12)}"


def run_of(
    steps: Iterable[Step],
    end: End = ("terminated", None),
    *,
    id: Any,
    environment: Any,
    task: Any = None,
    policy: Any = None,
    seed: Any = None,
    sample: Any = None,
    rewards: Mapping[str, Any] | None = None,
    outcome: Any = None,
    work: Work = NO_WORK,
) -> Trajectory:
    """A run by what its log says of it, whatever kind these values are of; `None`:
    the log does not say it. An outcome that is no number in [0, 1] is none.
    """
    steps = with_observations(tuple(steps))
    return Trajectory(
        id=str(id),
        task=str(task or prompt_hash(steps)),
        policy=str(policy or "unknown"),
        environment=str(environment),
        seed=integer(seed) or 0,
        sample=max(integer(sample) or 0, 0),
        steps=steps,
        rewards={str(name): number(value) for name, value in (rewards or {}).items()},
        outcome=score_of(outcome),
        submission=work.submission,
        patch=work.patch,
        end=end[0],
        end_reason=end[1] and end[1][:LONGEST_REASON],
    )


def with_observations(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, a single answer that holds its observations taken apart."""
    if not steps or steps[-1].role != "assistant" or "Observation" not in steps[-1].text:
        return steps
    last = steps[-1]
    single = sum(step.role == "assistant" for step in steps) == 1
    if not single or last.tool_calls or last.token_ids is not None or "Action" not in last.text:
        return steps
    return (*steps[:-1], *_apart(last.text))


def _apart(text: str) -> list[Step]:
    found: list[Step] = []
    at = 0
    while len(found) < 2 * MOST and (observed := _OBSERVED.search(text, at)):
        said = text[at : observed.start()]
        if not _ACTED.search(said):
            break
        following = _SAID.search(text, observed.end())
        end = following.start() if following else len(text)
        found.append(Step(role="assistant", text=said.rstrip("\n")))
        found.append(Step(role="tool", text=text[observed.end() : end].rstrip("\n")))
        at = end
    rest = [Step(role="assistant", text=text[at:])] if text[at:].strip() or not found else []
    return [*found, *rest]
