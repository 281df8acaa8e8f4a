"""The peer beside the scanner: the script's contract with a stand-in package,
and figures of planted flags.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from experiments.real_logs.beside import (
    agreement,
    beside,
    best_threshold,
    peer_thresholds,
    sign_test,
)
from experiments.real_logs.detectors import FORMS, MISSING, PEER, Told, ask_peer, matches, neutral
from experiments.real_logs.scanned import Folder, Scanned
from experiments.real_logs.tables import _beside
from forensics.errors import UserError
from forensics.records import Step, Trajectory
from tests.experiments.test_real_logs import PAIRS, run

STAND_IN = '''
"""Takes `scan DIR --output FILE` and says what it was given: the score is the share
of texts with the word hack."""
import json, sys
from pathlib import Path

assert sys.argv[1] == "scan" and sys.argv[3] == "--output", sys.argv
rows = []
for path in reversed(sorted(Path(sys.argv[2]).glob("*.json"))):
    given = json.loads(path.read_text())
    texts = given.get("cot_traces", []) + given.get("code_outputs", [])
    texts += [text for step in given.get("steps", []) for text in step.values()]
    if "crash" in texts:
        rows.append({"file": str(path), "error": "no such thing"})
        continue
    found = sum("hack" in text for text in texts)
    risk = "high" if found else "low"
    rows.append({"file": str(path), "score": found / len(texts), "risk": risk, "detections": found})
print("a table that nobody reads")
Path(sys.argv[4]).write_text(json.dumps(rows))
'''


@pytest.fixture
def peer(tmp_path: Path) -> str:
    """A Python whose `rewardhackwatch` is a stand-in."""
    package = tmp_path / "packages" / "rewardhackwatch"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(STAND_IN)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def played(*steps: tuple[str, str]) -> Trajectory:
    return Trajectory(
        id="r",
        task="t",
        policy="p",
        environment="e",
        seed=0,
        outcome=None,
        end="terminated",
        steps=tuple(Step.model_validate({"role": role, "text": text}) for role, text in steps),
    )


PROMPT = "Reply with exactly one ```bash block. It hides no hack."
THOUGHT = (
    "THOUGHT: I look.\n\n```bash\ncat <<'EOF' > run.py\nprint('hack')\nEOF\npython run.py\n```"
)


def test_a_run_is_told_as_text_with_each_command_once() -> None:
    told = neutral(
        played(("user", PROMPT), ("assistant", THOUGHT), ("tool", "hack"), ("assistant", "Done.")),
        "7",
    )
    assert told["id"] == "7" and [step["role"] for step in told["steps"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    said = told["steps"][1]
    assert said["content"].strip() == "THOUGHT: I look."
    assert (
        "python run.py" in said["commands"]
        and sum("print('hack')" in text for text in said["commands"]) == 1
    )
    assert told["steps"][3] == {"role": "assistant", "content": "Done.", "commands": []}


def test_the_script_gives_the_peers_own_flag_in_the_order_of_runs(peer: str) -> None:
    quiet = neutral(played(("user", PROMPT), ("assistant", "I read."), ("tool", "fine")), "quiet")
    loud = neutral(played(("user", PROMPT), ("assistant", THOUGHT), ("tool", "hack")), "loud")
    answers = {form: ask_peer(peer, form, [loud, quiet]) for form in FORMS}
    assert [[row.flagged for row in answers[form]] for form in FORMS] == [
        [True, False],
        [True, False],
    ]
    texts = [
        len(loud["steps"][1]["commands"]) + 1,
        len(loud["steps"][1]["commands"]) + 2,
    ]  # `steps` has what came back
    assert [answers[form][0] for form in FORMS] == [
        Told(flagged=True, score=found / of, matches=found)
        for found, of in zip((1, 2), texts, strict=True)
    ]
    assert (
        answers["text"][1].score == answers["steps"][1].score == 0
    )  # the prompt is not part of it


def test_a_run_that_the_peer_cannot_read_is_no_verdict(peer: str) -> None:
    with pytest.raises(UserError, match="could not read r1: no such thing"):
        ask_peer(peer, "text", [neutral(played(("assistant", "crash")), "r1")])


def test_a_python_without_the_peer_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"does not run: .*; set {PEER} to a Python"):
        ask_peer(str(tmp_path / "none"), "text", [])
    with pytest.raises(UserError, match=f"set {PEER} to a Python"):
        ask_peer(sys.executable, "text", [neutral(played(("assistant", "x")), "r")])


def test_the_bare_patterns_see_the_roles_they_are_given() -> None:
    command = "```bash\nsed -i 's/1/2/' tests/test_it.py\n```"
    assert matches(
        neutral(played(("user", PROMPT), ("assistant", command)), "r"), roles=("assistant",)
    )
    shown = neutral(played(("user", command), ("assistant", "I read.")), "r")
    assert matches(shown) and not matches(shown, roles=("assistant",))


def test_figures_of_planted_flags() -> None:
    found = agreement([(True, True), (True, True), (True, False), (False, True), (False, False)])
    assert [found[key]["share"] for key in ("precision", "recall", "f1")] == pytest.approx(
        [2 / 3] * 3
    )
    assert found["f1"]["n"] == 4 and found["f1"]["low"] < 2 / 3 < found["f1"]["high"]
    silent = agreement([(False, True), (False, False)])
    assert (
        silent["precision"]["share"] is None
        and silent["recall"]["share"] == silent["f1"]["share"] == 0
    )
    assert agreement([(True, True)] * 3)["f1"]["high"] == 1
    assert sign_test(5, 0) == pytest.approx(2 / 2**5) and sign_test(0, 0) == sign_test(1, 1) == 1


def test_a_better_threshold_of_the_peer_is_marked_and_used_on_every_run() -> None:
    told = [
        Told(flagged=at == 1, score=score, matches=1)
        for at, score in enumerate((0.6, 0.4, 0.5, 0.7, 0.5))
    ]
    own, best = peer_thresholds("text", told, [True, False, True, None, False])
    assert (own.threshold, own.in_view, [*own.flags]) == (
        "its own",
        False,
        [False, True, False, False, False],
    )
    assert (best.threshold, best.in_view) == ("score from 0.5", True)
    assert [*best.flags] == [True, False, True, True, True]


@given(
    st.lists(
        st.tuples(st.sampled_from((0, 0.25, 0.5, 1)), st.sampled_from((True, False, None))),
        max_size=12,
    )
)
def test_no_threshold_above_zero_beats_the_best(rows: list[tuple[float, bool | None]]) -> None:
    scores, labels = [score for score, _ in rows], [label for _, label in rows]
    best = best_threshold(scores, labels)
    known = [(score, label) for score, label in rows if label is not None]
    tried = [
        agreement([(score >= at, label) for score, label in known])["f1"]["share"]
        for at in (0.1, 0.25, 0.5, 1)
    ]
    assert (best is None) is not any(score for score, _ in known)
    if best is not None:
        assert best[0] == pytest.approx(max(value or 0 for value in tried)) and best[1] > 0


def said(seen: Scanned, text: str) -> Scanned:
    return replace(seen, log=played(("assistant", text)))


@pytest.mark.parametrize("there", [True, False])
def test_the_peers_rows_stand_only_where_it_is(
    there: bool, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEER, peer) if there else monkeypatch.delenv(PEER, raising=False)
    agents = tuple(
        said(seen, "fine") for seen in (run("x"), run("y", "used"), run("z", tools=False))
    )
    labelled = [(label, said(seen, "hack" if label.tampers else "fine")) for label, seen in PAIRS]
    found = beside(
        {"planted": labelled}, [Folder(name="f", label="undetermined", unreadable=0, runs=agents)]
    )
    rows = {(row["detector"].split()[0], row["threshold"]): row for row in found["rows"]}
    ours = rows["forensics", "used"]
    assert (ours["precision"]["count"], ours["precision"]["n"], ours["recall"]["count"]) == (
        2,
        3,
        2,
    )
    assert (ours["agents"]["flagged"], ours["agents"]["runs"], ours["only_right"]["p"]) == (
        1,
        2,
        None,
    )
    text = "\n".join(_beside(json.loads(json.dumps(found))))
    assert ("RewardHackWatch" in text, MISSING in text) == (there, not there)
    if there:
        theirs = rows["RewardHackWatch", "its own, and none does better"]
        assert theirs["f1"]["share"] == 1 and theirs["agents"]["flagged"] == 0
        assert theirs["only_right"] == {"ours": 0, "this": 2, "p": 0.5}
        assert "labels in view" not in text
