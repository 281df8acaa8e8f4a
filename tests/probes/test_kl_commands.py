"""Commands, phrases and the trie of their beginnings."""

import numpy as np
from hypothesis import given, strategies as st

from forensics.records import Step, ToolCall
from probes.kl.command_tokens import ELSE, TEXT, UNNAMED, Phrase, Phrases, commands_of, learn_trie
from tests.episodes import episode_of
from tests.tiny import tiny_tokenizer


def told(text: str, *kinds: str) -> list[tuple[str, str]]:
    """Each command's kind and the text from its start on."""
    return [(command.kind, text[command.start :]) for command in commands_of(text, kinds)]


def test_commands_begin_where_a_shell_begins_them() -> None:
    text = "cd a && git -C log ; X=1 sudo python run.py | grep 'a;b'"
    assert [kind for kind, _ in told(text)] == ["cd", "git log", "python", "grep"]
    assert told(text)[1][1].startswith("git -C") and told(text)[3][1] == "grep 'a;b'"


def test_thoughts_and_words_around_a_block_do_not_act() -> None:
    thought = "<think>git log; ls</think>\nhistory"
    assert told(thought) == [("history", "history")]
    fenced = "I look.\n```bash\nls\npwd\n```\n"
    assert [kind for kind, _ in told(fenced)] == ["ls", "pwd"]


def test_named_kinds_are_dealt_out_in_order_and_the_last_has_the_rest() -> None:
    assert told("open 1 ; test ; list", "open-file", "submit") == [
        ("open-file", "open 1 ; test ; list"),
        ("submit", "test ; list"),
    ]
    assert told("Well.\nIt is 4.", "answer") == [("answer", "Well.\nIt is 4.")]
    assert told("", "invalid") == [("invalid", "")] and told("") == [(UNNAMED, "")]


def test_tool_calls_stand_where_they_are_named() -> None:
    text = 'Look: {"name": "read", "x": 1} {"name": "bash"}'
    found = commands_of(text, (), ("read", "bash"))
    assert [(one.kind, text[one.start : one.start + 4]) for one in found] == [
        ("read", "read"),
        ("bash", "bash"),
    ]
    assert [one.start for one in commands_of("nothing here", (), ("read",))] == [0]


def phrases_of(text: str, *kinds: str, calls: tuple[str, ...] = ()) -> tuple[Phrase, ...]:
    ids = tuple(tiny_tokenizer()(text, add_special_tokens=False)["input_ids"])
    step = Step(
        role="assistant",
        text=text,
        kinds=kinds,
        token_ids=ids,
        sampled=(True,) * len(ids),
        tool_calls=tuple(ToolCall(name=name, arguments="{}") for name in calls),
    )
    one = episode_of(id="a", steps=(step,), outcome=None)
    ((_, found),) = Phrases(tiny_tokenizer()).of(one)
    assert sum((phrase.tokens for phrase in found), ()) == ids
    return found


def test_phrases_of_a_byte_pair_vocabulary() -> None:
    decode = tiny_tokenizer().decode
    found = phrases_of("<think>é 😀 ok</think>history ; edit 2 x * 3\n", "history", "edit-file")
    assert [phrase.kind for phrase in found] == [TEXT, "history", "edit-file"]
    assert [decode(list(phrase.tokens)).strip() for phrase in found][1:] == [
        "history ;",
        "edit 2 x * 3",
    ]


@given(
    st.lists(
        st.sampled_from(["ls", "cat é", "open 1", "git log", "'a;b'", "😀"]), min_size=1, max_size=8
    )
)
def test_phrases_hold_every_token_once(parts: list[str]) -> None:
    assert len([phrase for phrase in phrases_of(" ; ".join(parts)) if phrase.kind != TEXT]) == len(
        parts
    )


def test_choice_tokens_go_on_until_the_kind_is_decided() -> None:
    """`1 2` is history, `1 3` is help (a common first piece), `4` submits:
    three histories, one help, one submit.
    """
    lexicon = learn_trie(
        [Phrase((1, 2, 9), "history")] * 3 + [Phrase((1, 3, 9), "help"), Phrase((4, 9), "submit")]
    )
    assert lexicon.kinds == ("help", "history", "submit", ELSE) and lexicon.choices == ((), (1,))
    first, second, third = lexicon.places((1, 3, 9))
    np.testing.assert_allclose(
        first.weights, [0.25, 0.75, 0, 0]
    )  # undecided: in the shares it led to
    np.testing.assert_allclose(second.weights, [1, 0, 0, 0])
    np.testing.assert_allclose(third.weights, [1, 0, 0, 0])
    assert [place.choice >= 0 for place in (first, second, third)] == [True, True, False]
    unseen = list(lexicon.places((1, 7, 9)))
    assert [place.choice >= 0 for place in unseen] == [True, True, False]
    np.testing.assert_allclose([unseen[1].weights, unseen[2].weights], [[0, 0, 0, 1]] * 2)


def test_kinds_beyond_the_most_frequent_are_something_else() -> None:
    many = [Phrase((number,), f"kind {number:02d}") for number in range(60)] + [
        Phrase((0,), "kind 00")
    ]
    lexicon = learn_trie(many)
    assert (
        len(lexicon.kinds) == 41 and "kind 00" in lexicon.kinds and "kind 59" not in lexicon.kinds
    )
    np.testing.assert_allclose(lexicon.nodes[()].sum(), 1)
