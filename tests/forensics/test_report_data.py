"""Reading a case folder: the right runs, the right twins, the right counts, and
no more than a few in memory.
"""

import json
from collections import Counter

import pytest

from forensics.errors import UserError
from forensics.records.tables import read_trajectories
from forensics.report.case_logs import won
from forensics.report.data import load_case
from forensics.report.rows import index_chains
from forensics.report.shown_runs import PER_KIND
from tests.forensics.report_case import CHANNEL, CasePlan, build_case, rate_of


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    return build_case(tmp_path_factory.mktemp("case"), CasePlan(seeds=2))


def stored(folder):
    """Every trajectory of the folder by side, world and id, read by the records alone."""
    runs = {}
    for path in sorted((folder / "trajectories").glob("*.parquet")):
        side = "before" if path.name.startswith("before") else path.name[:7]
        runs |= {(side, run.without, run.id): run for run in read_trajectories(path)}
    return runs


def test_totals_are_the_planted_wins(phantom):
    data = load_case(phantom)
    plan = CasePlan(seeds=2)
    places = {
        (side, world) for side in ("before", "after-0", "after-1") for world in ((), (CHANNEL,))
    }
    assert set(data.browser.totals) == places
    for (side, world), tally in data.browser.totals.items():
        assert (tally.runs, tally.scored) == (240, 240)
        assert tally.wins == round(240 * rate_of(plan, side, world))


def test_each_example_is_what_it_says(phantom):
    data, runs = load_case(phantom), stored(phantom)
    for example in data.browser.examples:
        run = runs[example.pick.side, (), example.run.id]
        assert [step.text for step in example.run.steps] == [step.text for step in run.steps]
        assert won(example.run.outcome) == (example.pick.kind != "loss")
        assert any(row.complete for row in example.chains) == (example.pick.kind == "shortcut")
        assert {row.trajectory for row in example.chains} <= {run.id}
    shown = Counter(example.pick.kind for example in data.browser.examples)
    assert shown == {
        "shortcut": PER_KIND["shortcut"],
        "win": PER_KIND["win"],
        "loss": PER_KIND["loss"],
    }


def test_twins_are_the_same_task_elsewhere(phantom):
    data, runs = load_case(phantom), stored(phantom)
    for example in data.browser.examples:
        scrubbed, before = example.twins
        assert scrubbed.run.task == before.run.task == example.run.task
        assert (scrubbed.side, scrubbed.run.without) == (example.pick.side, (CHANNEL,))
        assert (before.side, before.run.without) == ("before", ())
        for twin in example.twins:
            same = [
                run
                for (side, world, _), run in runs.items()
                if (side, world, run.task) == (twin.side, twin.run.without, example.run.task)
            ]
            assert (twin.runs, twin.wins) == (len(same), sum(run.outcome == 1.0 for run in same))
            assert twin.run.id == next(run.id for run in same if run.sample == 0)


def test_the_order_of_files_and_rows_does_not_matter(tmp_path, phantom):
    twice = load_case(phantom), load_case(phantom)
    assert twice[0].browser.examples == twice[1].browser.examples
    other = build_case(tmp_path / "other", CasePlan(seeds=2))
    rows = (other / "findings.jsonl").read_text().splitlines()
    (other / "findings.jsonl").write_text("\n".join(reversed(rows)) + "\n")
    lines = (other / "evidence.jsonl").read_text().splitlines()
    (other / "evidence.jsonl").write_text("\n".join(reversed(lines)) + "\n")
    again = load_case(other)
    assert [e.pick for e in again.browser.examples] == [e.pick for e in twice[0].browser.examples]
    assert [f.id for f in again.findings] == [f.id for f in twice[0].findings]


def test_runs_under_a_constraint_are_not_taken_for_plain_ones(tmp_path):
    folder = build_case(tmp_path / "case", CasePlan(tasks=4))
    before = load_case(folder).browser.totals
    plain = next((folder / "trajectories").glob("after-0-open-*.parquet"))
    plain.with_name("after-0-altered-open-0123456789abcdef-0000.parquet").write_bytes(
        plain.read_bytes()
    )
    assert load_case(folder).browser.totals == before


@pytest.mark.parametrize(("spoil", "says"), [
    (lambda folder: (folder / "case.json").unlink(), "does not exist"),
    (lambda folder: (folder / "case.json").write_text("{"), "not valid JSON"),
    (lambda folder: (folder / "case.json").write_text("[]"), "not of a case"),
    (lambda folder: (folder / "case.json").write_text('{"verdict": null}'), "no verdict yet"),
    (lambda folder: (folder / "case.json").write_text('{"verdict": {"label": "fine"}}'),
     "cannot be read"),
    (lambda folder: (folder / "evidence.jsonl").unlink(), "does not exist"),
    (lambda folder: (folder / "evidence.jsonl").write_text("{}\n"), "line 1"),
    (lambda folder: (folder / "evidence.jsonl").write_bytes(b"\xff\n"), "not UTF-8"),
    (lambda folder: (folder / "findings.jsonl").write_text("{}\n"), "line 1"),
    (lambda folder: (folder / "findings.jsonl").write_text("[1]\n"), "line 1"),
    (lambda folder: next((folder / "trajectories").iterdir()).write_bytes(b"PAR1"),
     "not a Parquet file"),
])  # fmt: skip
def test_what_is_broken_is_named_in_one_sentence(tmp_path, spoil, says):
    folder = build_case(tmp_path / "case", CasePlan(tasks=2))
    spoil(folder)
    with pytest.raises(UserError, match=says) as error:
        load_case(folder)
    assert "\n" not in str(error.value)


def test_rows_with_the_fields_of_the_contract_alone_are_read(tmp_path):
    row = {
        "trajectory": "a",
        "task": "t",
        "family": "disclosure",
        "channel": "c",
        "attempt_steps": [1],
        "obtained_steps": [2],
        "used": None,
        "credited": True,
        "explanation": "",
    }
    lines = [
        row,
        {**row, "trajectory": "b", "used": True},
        {**row, "trajectory": "c", "used": False},
    ]
    (tmp_path / "findings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = index_chains(tmp_path)
    # credited without a word on its use: an empty hand-in uses nothing
    assert index.channel_of("after-3", "b") == "c" and index.channel_of("after-0", "a") == "c"
    assert [index.is_untold("after-0", name) for name in "abc"] == [False, False, False]
    assert index.complete == {("", "a"): "c", ("", "b"): "c"}
