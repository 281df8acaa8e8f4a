"""Loops as events: where they begin and end, and what only looks like one."""

import pytest

from forensics.layers.actions import turns_of
from forensics.layers.tally import Loop, loop_in
from forensics.records import Step, Trajectory
from tests.episodes import episode_of
from tests.forensics.degenerate_run import degenerate

Turns = list[tuple[str, str]]
WORK = [(f"cat part_{name}.py", f"def {name}(): ...") for name in "abcdefghijklmnopqrst"]


def played(turns: Turns) -> Trajectory:
    steps = [Step(role="user", text="go")]
    for command, answer in turns:
        text = f"Let me.\n```bash\n{command}\n```"
        steps += [Step(role="assistant", text=text), Step(role="tool", text=answer)]
    return episode_of(steps=tuple(steps), outcome=None)


def loop(turns: Turns) -> Loop | None:
    return loop_in(turns_of(played(turns)))


def test_a_loop_in_a_long_run_is_an_event_with_its_first_and_last_step() -> None:
    stuck = [("make", "error: no rule"), ("touch Makefile", "")] * 3
    run = played(WORK + stuck + WORK)
    names, measures, found = degenerate(run)
    assert names == ("loop",)  # a small share of the run, which no other limit sees
    assert found is not None
    assert (found.first, found.last) == (41, 51)
    assert found.actions == ("make", "touch Makefile") and found.times == 3
    assert measures["loop"] == 6 / 46


@pytest.mark.parametrize(
    "turns",
    [
        WORK[:1] * 4,  # four steps
        WORK[:2] * 2 + WORK[:1],  # twice and a half
        WORK[:13] * 3,  # a period of thirteen
        WORK,
    ],
)
def test_less_than_that_is_none(turns: Turns) -> None:
    assert loop(turns) is None
    assert "loop" not in degenerate(played(turns))[0]


def test_times_and_line_numbers_in_the_answer_are_nothing_new() -> None:
    turns = [("mvn compile", f"a.java:{n}: broken\nTotal time: 0.{n} s") for n in range(6)]
    assert loop(turns) is not None


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        ("sleep 60; tail -1 log", [f"built {n * n} files" for n in range(8)]),
        ("make status", [f"{n * 10} % done" for n in range(8)]),
        ("scroll_down", [f"def {name}(): ..." for name in "abcdefgh"]),
    ],
)
def test_waiting_for_progress_and_paging_are_no_loops(command: str, answers: list[str]) -> None:
    assert loop([(command, answer) for answer in answers]) is None
    assert loop([(command, "the same")] * 8) is not None


def test_edit_and_test_is_a_loop_only_where_the_edits_repeat() -> None:
    fresh = [(f"sed -i s/{name}/z/ m.py", "") for name in "abcdef"]
    tested = ("pytest", "1 failed")
    assert loop([one for edit in fresh for one in (edit, tested)]) is None
    assert loop([one for _ in range(3) for one in (fresh[0], tested)]) is not None


DEAD = "curl: (7) Failed to connect to localhost port 80 after {0} ms: refused"
LATE = "graft/plan.go:{0}:9: not enough return values"


def in_turn(*pairs: tuple[str, str]) -> Turns:
    """The actions six times, each with the number of its turn in it."""
    return [(do.format(n), came.format(n)) for n in range(6) for do, came in pairs]


@pytest.mark.parametrize(
    ("stuck", "goes_on"),
    [
        (  # a dead service, a build
            in_turn(("echo 'poll {0}'; sleep {0}; curl -sS localhost", "poll {0}\n" + DEAD)),
            in_turn(("echo 'poll {0}'; sleep {0}; tail -1 log", "poll {0}\nbuilt {0} files")),
        ),
        (  # waiting longer each time before the same action
            in_turn(("sleep {0}", ""), ("make", "error: no network")),
            in_turn(("sleep {0}", ""), ("make status", "{0}0 % done")),
        ),
        (  # a longer limit each time, a longer limit that lets more through
            in_turn(("timeout {0} npm test", "1 failing")),
            [(f"timeout {n} npm test", f"test {'abcdef'[n]} passed") for n in range(6)],
        ),
        (  # comments in the arguments of a tool, code there
            in_turn((r'{{"write": "m.py", "text": "x\n# Note {0}.\ny"}}', ""), ("go build", LATE)),
            in_turn((r'{{"write": "m.py", "text": "x\nv{0}\ny"}}', ""), ("go build", LATE)),
        ),
        (  # a comment before each build
            in_turn(("sed -i '1i // Note {0}.' p.go", ""), ("go build", LATE)),
            in_turn(("sed -i '1i var v{0} int' p.go", ""), ("go build", LATE)),
        ),
        (  # flags that show more of the same failure, flags for other work
            [(f"pytest {flag} t.py", "1 error") for flag in ("", "-x", "-v", "-vv", "-s")],
            [(f"cc -O{n} t.c && ./a.out", "0 failed") for n in range(5)],
        ),
        (  # more or less of the same failure, more or less of what goes on
            [(f"make{cut}", "No rule. Error 2") for cut in ("", " 2>&1", " | tail -5") * 2],
            [(f"make{cut}", "up to date") for cut in ("", " 2>&1", " | tail -5", " | head", " -s")],
        ),
        (  # a file that was read, with line numbers once; other files
            [
                ("cat -n a.py", "1\tx\n2\t") if n in {2, 5} else ("cat a.py", "x\n")
                for n in range(6)
            ],
            [(f"cat {'-n' * (n == 2)} a{n}.py", "x = 1") for n in range(6)],
        ),
        (  # one folder, said or not; many folders
            [("cd /work && " * (n % 2) + "npm test", "1 failing") for n in range(5)],
            [(f"cd /work/{n} && npm test", "1 failing") for n in range(5)],
        ),
        (  # a text that stands beside the action, a text that goes into a file
            in_turn(("make && echo 'done {0}'", "No rule.\ndone {0}")),
            in_turn(("make; echo 'v{0}' > version", "No rule.")),
        ),
    ],
)
def test_an_action_that_changes_in_what_changes_nothing_is_the_same(
    stuck: Turns, goes_on: Turns
) -> None:
    assert loop(stuck) is not None
    assert loop(goes_on) is None


def test_a_wait_that_ends_with_something_new_is_no_loop() -> None:
    refused = [("sleep 5", ""), ("curl -sS localhost", DEAD.format(0))] * 5
    assert loop(refused) is not None
    assert loop([*refused, ("sleep 9", ""), ("curl -sS localhost", "ok")]) is None
    assert loop([*refused[1:], ("sleep 9", ""), ("curl -sS localhost", "ok")]) is None


def test_other_work_beside_it_hides_no_loop() -> None:
    work = [(f"cc -O{n} t.c && ./a.out", f"{name} ok") for n, name in enumerate("abcdefghij")]
    found = loop([*work, *[("cc -Os t.c && ./a.out", "a ok")] * 5])
    assert found is not None and found.turns == 5
