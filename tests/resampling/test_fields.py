"""Fields are found where texts differ, named the same everywhere, and put
together again letter by letter.
"""

import random

import pytest

from forensics.errors import MissingInput
from resampling.gain_tests.altered_worlds import Kept, Plan, shadow
from resampling.gain_tests.fields import find_fields, longest_common, prompt_fields, whole_text
from tests.environment_checks import check_environment
from training import MiniRepo


def texts(written: str, number: int = 60, **choices: list[str]) -> dict[str, str]:
    stream = random.Random(1)
    return {
        f"t{i}": written.format(
            i=i, **{name: stream.choice(values) for name, values in choices.items()}
        )
        for i in range(number)
    }


NUMBERS = [str(i) for i in range(2, 40)]
LISTED = {"a": NUMBERS, "b": NUMBERS, "c": NUMBERS, "d": ["alpha", "beta", "gamma"]}


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("(note: {a}) What is {b} * {c}?", ("note", "is", "is-2")),
        ("{a} + {b}", ("start", "start-2")),
        ("Hint: {cue}.\nIs {a} larger than {b}?", ("hint", "is", "than")),
        ("Nothing varies.", ()),
    ],
)
def test_fields_are_what_varies(written: str, names: tuple[str, ...]) -> None:
    given = texts(written, a=NUMBERS, b=NUMBERS, c=NUMBERS, cue=["alpha", "beta gamma"])
    found = find_fields(given)
    assert found.names == names and set(found.template.values()) == {0}
    for task, text in given.items():
        assert "".join(piece.text for piece in found.pieces[task]) == text
    if "hint" in names:  # two values do not make two templates
        assert {found.values[task]["hint"] for task in given} == {"alpha", "beta gamma"}


def test_a_field_is_said_in_words() -> None:
    lists = find_fields(texts("What is largest of {a}, {b}, {c}? Code: {d}", **LISTED))
    assert [lists.said(name) for name in lists.names] == [
        "the first number after 'of'",
        "the second number after 'of'",
        "the third number after 'of'",
        "the value after 'code'",
    ]
    start = find_fields(texts("{d}: {a}", **LISTED), {f"t{i}": {} for i in range(60)})
    assert start.said("start") == "the first value at the start"
    assert start.said("start-2") == "the second value at the start", "one is no number"
    told = find_fields(
        {"t": "Code x7, is it 4?", "u": "Code y8, is it 5?"},
        {"t": {"code": "x7"}, "u": {"code": "y8"}},
    )
    assert told.said("code") == "the field 'code'" and told.said("it") == "the number after 'it'"


def test_kinds_of_prompts_are_kept_apart() -> None:
    first = texts("Compute {a} minus {b} for the shop.", a=NUMBERS, b=NUMBERS)
    second = {
        f"u{i}": text for i, text in enumerate(texts("Write {a} backwards", a=NUMBERS).values())
    }
    found = find_fields(first | second)
    assert found.names == ("compute", "minus", "write")
    assert len(set(found.template.values())) == 2
    donors = found.donors(tuple(first | second), seed=3)
    assert sorted(donors.values()) == sorted(donors) and all(a != b for a, b in donors.items())
    assert all(found.template[a] == found.template[b] for a, b in donors.items())


def test_declared_fields_come_first() -> None:
    given = texts("(note: {a}) What is {b} * {c}?", a=NUMBERS, b=NUMBERS, c=NUMBERS)
    said = {task: {"question": text[text.index("What") :]} for task, text in given.items()}
    found = find_fields(given, said)
    assert found.names == ("note", "question") and found.beside
    assert all(found.values[task]["question"] == said[task]["question"] for task in given)
    wrong = {**said, "t3": {"question": "Why?"}}
    with pytest.raises(MissingInput, match="does not stand in its prompt"):
        find_fields(given, wrong)


def test_prompts_that_share_nothing_do_not_align() -> None:
    given = {"a": "Who wrote Hamlet?", "b": "Name a prime above 10.", "c": "Count some legs!"}
    found = find_fields(given)
    assert found.names == () and not found.aligned and found.beside
    asked = find_fields(given, {task: {"question": text} for task, text in given.items()})
    assert asked.asked == ("a", "b", "c") and not asked.beside


def test_the_longest_common_subsequence() -> None:
    stream = random.Random(0)
    for _ in range(200):
        first, second = (
            [*map(str, stream.choices(range(4), k=stream.randint(0, 9)))] for _ in "ab"
        )
        lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
        for i, one in enumerate(first):
            for j, other in enumerate(second):
                lengths[i + 1][j + 1] = (
                    lengths[i][j] + 1 if one == other else max(lengths[i][j + 1], lengths[i + 1][j])
                )
        found = longest_common(first, second)
        assert len(found) == lengths[-1][-1]
        for text in (first, second):
            rest = iter(text)
            assert all(key in rest for key in found)


def test_a_shadow_shows_another_task_and_grades_its_own() -> None:
    world = MiniRepo()
    tasks = (*world.tasks("held-out", 60, 0), *world.tasks("train", 60, 0))
    fields = find_fields({task: world.spawn().reset(task, 0).text for task in tasks})
    declared = prompt_fields(world, tasks)
    assert declared.names == ("question",) and not declared.beside  # the test that fails
    donors = fields.donors(fields.aligned, seed=0)
    for kept in (Kept(), Kept(names=frozenset(fields.names[:1]))):
        altered = shadow(Plan(fields=fields, donors=donors, kept=kept)).of(world)
        check_environment(altered, ["list", "open 1 ; history", "nonsense", "submit"])
        task = tasks[0]
        shown, own = altered.spawn().reset(task, 0).text, fields.values[task]
        donor = fields.values[donors[task]]
        for name in fields.names:
            where = own if name in kept.names else donor
            assert where[name] in shown
    other = shadow(Plan(fields=fields, donors=donors, kept=Kept())).of(world).spawn()
    plain = world.spawn()
    other.reset(tasks[0], 0), plain.reset(donors[tasks[0]], 0)
    assert other.step("open 1").observation == plain.step("open 1").observation


def test_the_system_text_is_a_part_of_the_prompt() -> None:
    found = find_fields({f"t{i}": whole_text(f"Do {i}", f"Key {i * i}.") for i in range(30)})
    assert found.names == ("key", "do")
