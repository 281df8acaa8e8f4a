"""What a pair of logs says beyond the gain: parts that add up, planted changes
that come out where they were put, and nothing where nothing changed.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from forensics.investigation.scan_run import scan
from forensics.layers.bounds import BOXED, HASHES, SAID, TAGS, RunShape, ScoredRun, forms_in
from forensics.layers.pair_split import PARTS, QUESTIONS, pair_answers
from forensics.records import Evidence, Provenance, Undefined
from forensics.report.data import load_case
from forensics.report.first_screen import pair_told

PROVENANCE = Provenance(instrument="test")
GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k_pair"


def run(n, task, outcome, *, finished=True, form=True, reward=None, told=True, characters=100):
    shape = RunShape(
        finished=finished,
        end_told=told,
        forms=BOXED if form else 0,
        format=reward,
        characters=characters,
        turns=1,
    )
    return ScoredRun(id=f"{n:06d}", task=task, outcome=float(outcome), shape=shape)


def played(seed, finished, form, right, *, outside=0.0, tasks=30, runs=8, spread=2.0):
    """Runs of a policy with these rates. A task is right by its own difficulty, which is the
    same on all sides; what is hard is in format more rarely too.
    """
    generator = np.random.default_rng(seed)
    found = []
    for task in range(tasks):
        hard = spread * ((task + 0.5) / tasks - 0.5)
        for _ in range(runs):
            ended = generator.random() < finished
            formed = ended and generator.random() < np.clip(form - 0.1 * hard, 0, 1)
            rate = np.clip(right - 0.3 * hard, 0, 1) if formed else outside
            won = generator.random() < rate
            size = int(generator.integers(50, 5000))
            shape = {"finished": ended, "form": formed, "characters": size}
            found.append(run(len(found), f"t{task:03d}", won, **shape))
    return found


def answers(before, *afters):
    return {answer.question: answer for answer in pair_answers(before, afters, PROVENANCE)}


def parts(found):
    return {name: found[name].estimate for name in PARTS if isinstance(found[name], Evidence)}


def holds_zero(found):
    return found.interval.low - 1e-12 <= 0 <= found.interval.high + 1e-12


runs = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0]), st.booleans(), st.booleans()
    ),
    max_size=14,
).map(
    lambda rows: [
        run(n, task, outcome, finished=finished, form=form)
        for n, (task, outcome, finished, form) in enumerate(
            [*rows, ("a", 1.0, True, True), ("b", 0.0, True, True)]
        )
    ]
)


@settings(max_examples=150, deadline=None)
@given(before=runs, first=runs, second=runs)
def test_the_parts_add_up_to_the_gain(before, first, second):
    found = answers(before, first, second)
    assert set(found) == set(QUESTIONS)
    told = parts(found)
    if isinstance(found["pair.correctness"], Evidence) and len(told) == len(PARTS):
        assert sum(told.values()) == pytest.approx(found["pair.gain_plain"].estimate, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(before=runs, after=runs)
def test_swapped_sides_flip_every_sign(before, after):
    there, back = answers(before, after), answers(after, before)
    for name in ("pair.gain_plain", *PARTS):
        assert isinstance(there[name], Evidence) == isinstance(back[name], Evidence)
        if isinstance(there[name], Evidence):
            assert there[name].estimate == pytest.approx(-back[name].estimate, abs=1e-9)
            assert there[name].interval.low == pytest.approx(-back[name].interval.high, abs=1e-9)


def test_the_chain_by_hand():
    """Two tasks, alike: 1 of 2 finished in format and won, then 2 of 2: all of it is format."""
    before = [
        run(n, task, form, form=form)
        for n, (task, form) in enumerate([("a", 1), ("a", 0), ("b", 1), ("b", 0)])
    ]
    after = [run(n, task, 1) for n, task in enumerate("aabb")]
    found = answers(before, after)
    assert found["pair.gain_plain"].estimate == 0.5
    assert parts(found) == pytest.approx(dict(zip(PARTS, (0, 0.5, 0, 0), strict=True)), abs=1e-12)


@pytest.mark.parametrize("runs_each", [1, 8])
@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ((0.9, 0.5, 0.6), (0.9, 0.9, 0.6), "pair.format"),
        ((0.9, 0.7, 0.4), (0.9, 0.7, 0.8), "pair.correctness"),
        ((0.5, 0.9, 0.6), (0.95, 0.9, 0.6), "pair.finishing"),
    ],
)
def test_a_planted_change_is_found_where_it_is(before, after, part, runs_each):
    """Over seeds the mean of the other parts is 0, with one run a task too, and their
    intervals hold 0.
    """
    tasks = 60 if runs_each > 1 else 200
    size = {"tasks": tasks, "runs": runs_each}
    held, others, own, gains = 0, [], [], []
    repeats = 20
    for seed in range(repeats):
        found = answers(played(seed, *before, **size), played(1000 + seed, *after, **size))
        told = parts(found)
        own.append(told.pop(part))
        others.append(list(told.values()))
        gains.append(found["pair.gain_plain"].estimate)
        held += sum(holds_zero(found[name]) for name in told)
    assert held >= 0.9 * repeats * (len(PARTS) - 1)
    assert np.abs(np.mean(others, axis=0)).max() < 0.03
    assert np.mean(own) == pytest.approx(np.mean(gains), abs=0.04) and np.mean(own) > 0.15


def test_halves_of_one_policy_are_silent():
    names = ("pair.gain_plain", *PARTS, "pair.length")
    silent = dict.fromkeys(names, 0)
    repeats = 60
    for seed in range(repeats):
        sides = (played(seed + offset, 0.9, 0.8, 0.5, outside=0.1) for offset in (0, 5000))
        found = answers(*sides)
        for name in names:
            silent[name] += holds_zero(found[name])
    assert min(silent.values()) >= 0.9 * repeats, silent


def test_what_rows_do_not_tell_is_undefined_with_its_reason():
    before = [run(n, task, n % 2, form=False, told=False) for n, task in enumerate("aabb")]
    after = [run(n, task, 1, form=False, told=False) for n, task in enumerate("aabb")]
    found = answers(before, after)
    for name in PARTS:
        assert isinstance(found[name], Undefined)
    assert "format" in found["pair.format"].reason
    assert "how runs ended" in found["pair.finishing"].reason
    assert found["pair.gain_plain"].estimate == 0.5  # the rest is told all the same
    assert isinstance(found["pair.length"], Evidence)


def test_a_reward_for_the_format_comes_before_the_text():
    before = [run(n, t, n % 2, reward=0.2 * (n % 2)) for n, t in enumerate("aabb")]
    after = [run(n, t, 1, reward=0.2) for n, t in enumerate("aabb")]
    found = answers(before, after)
    assert found["pair.format"].estimate == pytest.approx(0.5)
    assert found["pair.format"].diagnostics["asked format"] == "a reward named after it"


def test_texts_that_stop_at_one_length_did_not_finish():
    before = [
        run(n, t, n % 2, form=n % 2, told=False, characters=100 + n if n % 2 else 4000)
        for n, t in enumerate("aabbccdd")
    ]
    after = [run(n, t, 1, told=False) for n, t in enumerate("aabbccdd")]
    found = answers(before, after)
    assert found["pair.finishing"].estimate == pytest.approx(0.5)
    assert found["pair.finishing"].diagnostics["ends by"] == "texts that stop at 4,000 characters"


def test_newly_solved_and_sharpened():
    """`a` goes from 0 to 2 of 8, `b` from 2 to 8, `c` from 3 to 0."""
    rows = {"a": (0, 2), "b": (2, 8), "c": (3, 0)}
    before, after = (
        [
            run(n, task, n % 8 < wins[side])
            for n, (task, wins) in enumerate((t, w) for t, w in rows.items() for _ in range(8))
        ]
        for side in (0, 1)
    )
    found = answers(before, after)
    assert found["pair.newly_solved"].estimate == pytest.approx(2 / 8)
    assert found["pair.sharpened"].estimate == pytest.approx(6 / 8)
    assert found["pair.lost"].estimate == pytest.approx(-3 / 24)
    facts = found["pair.lost"].diagnostics
    assert (facts["new wins"], facts["on tasks never won before"], facts["wins lost"]) == (8, 2, 3)
    assert (facts["tasks that fell"], facts["tasks never won after"]) == (1, 1)
    assert facts["unseen rate"] == pytest.approx(0.312, abs=1e-3)


@pytest.mark.parametrize(
    ("answer", "forms"),
    [
        ("so\n\\[\\boxed{52}\\]", BOXED),
        ("it is \\boxed{5", 0),
        ("<answer> 7 </answer>", TAGS),
        ("<answer>", 0),
        ("12 + 3 = 15\n#### 15", HASHES),
        ("#### Step 1\nadd\n#### Step 2\nnothing more", 0),
        ("**Final Answer:** 12", SAID),
        ("Answer:", 0),
        ("An answer: hard to find", 0),
        ("", 0),
    ],
)
def test_forms_of_answers(answer, forms):
    assert forms_in(answer) == forms


def write_chats(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def told_by_scan(tmp_path, before, after):
    files = [
        write_chats(tmp_path / f"{name}.jsonl", rows)
        for name, rows in (("before", before), ("after", after))
    ]
    scan(files[1], files[0], out=tmp_path / "case")
    data = load_case(tmp_path / "case")
    return {answer.question: answer for answer in data.findings}, pair_told(data)


def chats(wins):
    """Chat rows of tasks with so many wins of 8."""
    return [
        {
            "id": f"{task}-{n}",
            "task_id": str(task),
            "model": "m",
            "reward": float(n < won),
            "finish_reason": "stop",
            "messages": [
                {"role": "user", "content": f"Task {task}. Put the answer in \\boxed{{}}."},
                {"role": "assistant", "content": f"It is \\boxed{{{n}}}"},
            ],
        }
        for task, won in enumerate(wins)
        for n in range(8)
    ]


def test_a_scan_of_two_logs_tells_it(tmp_path):
    before, after = [2, 3, 4, 0, 5, 3] * 3, [6, 7, 8, 4, 8, 6] * 3
    found, told = told_by_scan(tmp_path, chats(before), chats(after))
    assert found["pair.correctness"].estimate == pytest.approx(found["pair.gain_plain"].estimate)
    assert found["pair.finishing"].estimate == found["pair.format"].estimate == 0
    assert told[0].startswith("The score rose from 35 % to 81 %: +45.8 points")
    assert "finishing in the form \\boxed{}" in told[1] and "mostly sharpening" in told[2]
    assert len(told) == 3  # the length did not change


@pytest.mark.skipif(not GSM8K.exists(), reason="the data are not on this machine")
def test_a_real_pair(tmp_path):
    """240 answers each, before and after a real RL; figures worked out by hand."""

    def rows(side):
        lines = (GSM8K / f"{side}.jsonl").read_text(encoding="utf-8").splitlines()
        return [
            {
                "id": f"{row['qid']}-{one['rollout']}",
                "task_id": str(row["qid"]),
                "model": row["model_name"],
                "reward": float(one["correct"]),
                "messages": [
                    {"role": "user", "content": row["question"]},
                    {"role": "assistant", "content": one["text"]},
                ],
            }
            for row in map(json.loads, lines)
            for one in row["rollouts"]
        ]

    found, told = told_by_scan(tmp_path, rows("before"), rows("after"))
    gain = found["pair.gain_plain"]
    assert gain.estimate == pytest.approx(0.175)
    assert (gain.interval.low, gain.interval.high) == pytest.approx((0.09, 0.26), abs=0.005)
    assert found["pair.correctness"].estimate == pytest.approx(0.15, abs=0.005)
    outside = found["pair.outside_format"].estimate
    assert 0.02 < found["pair.format"].estimate + outside < 0.03
    facts = found["pair.newly_solved"].diagnostics
    assert (facts["new wins"], facts["on tasks never won before"]) == (46, 4)
    lengths = found["pair.length"].diagnostics
    assert (round(lengths["before"]), round(lengths["after"])) == (2048, 1300)
    assert "4 of 46 new wins" in told[2] and "2,048 to 1,300 characters" in told[3]
