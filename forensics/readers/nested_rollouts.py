"""Several answers to one question in one row, as evaluations and samplers write them.

1. A row holds the question (`ASKED`, a text or messages) and a list of what was
   answered (`LISTS`): objects that hold a text (`TEXTS`) or messages, or texts with
   lists of the same length beside them (`BESIDE`: rewards, scores, ...). Each answer
   is a run of its own: a row with eight of them gives eight.
2. The task is the question's id, else the hash of its prompt; the sample is the
   number that the answer has, else its place; the policy is the model that is named,
   else the file.
3. The outcome is what is named as a success, else a reward, in [0, 1]. Everything
   that judges an answer (a number, yes or no) is kept among the rewards; numbers
   that say what was answered or how long it is (`NO_REWARD`) are not.
4. `rewards["format"]` says whether the answer stood in the form that was asked for,
   where the row tells it: under that name (`FORMATS`), or by the way in which the
   answer was taken out of the text (`METHODS`). A way that looks for the form (a
   box, a tag, a mark) is 1; nothing found, or a way that guesses when the form is not
   there (the last number, a phrase), is 0; a way of another name says nothing.
5. A run was cut off where the row says so. Where it does not, an answer that is not
   in the form counts as cut off if its text stops within a thought or a sentence:
   then there was no answer to take out. It finished otherwise.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forensics.actions.untrusted import first_of
from forensics.readers.content import JsonObject, UnreadableContent, log_name
from forensics.readers.json_rows import Row, first_row
from forensics.readers.log_reader import Reader
from forensics.readers.messages import is_conversation, message_steps
from forensics.readers.rollout_text import (
    named_outcome,
    prompt_and_completion,
    prompt_steps,
)
from forensics.readers.values import (
    TABLES,
    End,
    as_mapping,
    field_names,
    number,
    prompt_hash,
    run_of,
    score_of,
)
from forensics.records import Step, Trajectory

_NAMES = field_names("nested")
BESIDE = {name: one for one, names in TABLES["beside"].items() for name in names}
NO_REWARD = re.compile(
    r"pred|gold|answer|token|length|chars|time|seed|index|idx|number|count|_id\b|^(?:id|step|value)$"
)
ASKED_FORM = re.compile(r"box|tag|xml|hash|####|json|strict|exact|format|delimiter|marker", re.I)
GUESSED = re.compile(r"last|phrase|fallback|flex|loose|guess|any|none|fail|number|heuristic", re.I)
LAST_SIGNS = ".!?)]}*`\"'>$|。！？"  # what a text that was brought to its end ends with
OPENED, CLOSED = "<think>", "</think>"


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file is of this format."""
    return _listed(first_row(head)) is not None


def _listed(row: JsonObject) -> str | None:
    """Under which name a row lists what was answered, `None` where it lists nothing."""
    if not any(_asked(row.get(key)) for key in _NAMES.asked):
        return None
    return next((key for key in _NAMES.lists if _are_answers(row.get(key))), None)


def _asked(value: Any) -> bool:
    return (isinstance(value, str) and bool(value)) or is_conversation(value)


def _are_answers(value: Any) -> bool:
    """Whether a value is a list of answers. A list of messages is one answer, no list of them."""
    if not isinstance(value, list) or not value or is_conversation(value):
        return False
    first = value[0]
    return (
        isinstance(first, str)
        or is_conversation(first)
        or (isinstance(first, Mapping) and any(_text(first.get(key)) for key in _NAMES.texts))
    )


def _text(value: Any) -> bool:
    return isinstance(value, str) or is_conversation(value)


def answers(row: Row) -> Iterator[Row]:
    """Each answer of a row with what the row says of all, as a row of its own."""
    key = _listed(as_mapping(row.value))
    if key is None:
        yield Row(row.where, None)  # told by `run`
        return
    listed = row.value[key]
    beside = _beside(row.value, len(listed))
    shared = {name: value for name, value in row.value.items() if name != key}
    for place, answer in enumerate(listed):
        own = answer if isinstance(answer, Mapping) else {"text": answer}
        found = {name: values[place] for name, values in beside.items()}
        yield Row(
            f"{row.where}, answer {place}",
            {"row": shared, "answer": {**found, **own}, "place": place},
        )


def _beside(row: JsonObject, length: int) -> dict[str, Sequence[Any]]:
    """The lists of a row that hold one value for each answer, by what one of them is called."""
    named = [(BESIDE[key], value) for key, value in row.items() if key in BESIDE]
    named += [
        (str(key), value)
        for holder in ("rewards", "scores")
        for key, value in as_mapping(row.get(holder)).items()
    ]
    return {
        name: value for name, value in named if isinstance(value, list) and len(value) == length
    }


def run(row: Row) -> Trajectory:
    """The run of one answer."""
    if row.value is None:
        raise UnreadableContent("the row lists no answers to a question")
    shared, answer, place = (row.value[key] for key in ("row", "answer", "place"))
    steps = _steps(shared, answer)
    rewards = _rewards(answer)
    in_form = rewards.get("format")
    judged = (rewards[key] for key in _NAMES.outcome if key in rewards)
    outcome = named_outcome(rewards)
    if outcome is None:
        outcome = next((one for one in map(score_of, judged) if one is not None), None)
    task, numbered = _name(shared, _NAMES.task), first_of(answer, _NAMES.number, int)
    return run_of(
        steps,
        _ending(answer, steps[-1].text, in_form),
        id=f"{log_name(row.path)} {row.where}",
        task=prompt_hash(steps) if task is None else str(task),
        policy=_name(shared, _NAMES.policy) or log_name(row.path),
        environment=shared.get("dataset") or shared.get("benchmark") or "nested rollouts",
        seed=answer.get("seed"),
        sample=place if numbered is None else numbered,
        rewards=rewards,
        outcome=outcome,
    )


def _steps(shared: JsonObject, answer: JsonObject) -> tuple[Step, ...]:
    """The question and what was answered; an answer that repeats the question has it already."""
    asked = next(shared[key] for key in _NAMES.asked if _asked(shared.get(key)))
    given = next((answer[key] for key in _NAMES.texts if _text(answer.get(key))), None)
    if given is None:
        raise UnreadableContent("the answer is no text")
    if isinstance(given, str):
        return prompt_and_completion(asked, given)[0]
    steps = message_steps(given)
    before = prompt_steps(asked) if isinstance(asked, str) else message_steps(asked)
    return steps if steps[0].role in ("system", "user") else (*before, *steps)


def _rewards(answer: JsonObject) -> dict[str, float | None]:
    """What judges an answer, by name, and whether it stood in the form that was asked for."""
    named = {**as_mapping(answer.get("rewards")), **as_mapping(answer.get("scores")), **answer}
    found = {
        str(key): number(value)
        for key, value in named.items()
        if isinstance(value, bool | int | float)
        and key not in _NAMES.number
        and (isinstance(value, bool) or not NO_REWARD.search(str(key).lower()))
    }
    in_form = next(
        (score_of(answer[key]) for key in _NAMES.formats if key in answer), _form(answer)
    )
    return found if in_form is None else {**found, "format": in_form}


def _form(answer: JsonObject) -> float | None:
    """Whether the answer stood in its form, by how it was taken out; `None`: not told."""
    key = next((key for key in _NAMES.methods if key in answer), None)
    if key is None:
        return None
    method = answer[key]
    if not isinstance(method, str) or not method or GUESSED.search(method):
        return 0.0 if method is None or isinstance(method, str) else None
    return 1.0 if ASKED_FORM.search(method) else None


def _ending(answer: JsonObject, text: str, in_form: float | None) -> End:
    told = _name(answer, _NAMES.status)
    word = str(told or "").lower()
    if answer.get("truncated") is True or any(sign in word for sign in _NAMES.cut):
        return "truncated", str(told or "truncated")
    if told is None and in_form == 0.0 and breaks_off(text):
        return "truncated", "the text breaks off before an answer"
    return "terminated", None if told is None else str(told)


def breaks_off(text: str) -> bool:
    """Whether a text stops within a thought, a formula or a sentence."""
    if OPENED in text and CLOSED not in text:
        return True
    last = text.rstrip().rsplit("\n", 1)[-1]
    opens = last.endswith("$") and last.count("$") % 2 == 1
    return not last or last[-1] not in LAST_SIGNS or opens


def _name(values: JsonObject, keys: Sequence[str]) -> str | int | None:
    named = (values[key] for key in keys if isinstance(values.get(key), str | int))
    return next((one for one in named if one != ""), None)


reader = Reader(
    name="nested-rollouts",
    version="1 (a question with a list of answers)",
    rank=-5,  # a format that lists answers in its own way knows more about them
    recognises=recognises,
    parts=answers,
    run=run,
)
