"""Arms of equal size, a bill that counts every sampled token, and a rate that
is not chosen at the end of its grid.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cliffs.cliff_dpo import MINIBATCH, trained, weighted_tokens
from experiments.cliffs.collecting import start, world
from experiments.cliffs.matched import learning
from experiments.cliffs.matched.arms import affordable, pairs_of, stored_tokens, task_row
from experiments.cliffs.matched.learning import (
    CHOOSING,
    HELD_OUT,
    RATES,
    REPORTING,
    above,
    best,
    learnt,
    rates_tried,
)
from experiments.cliffs.matched.tables import KEYS, markdown, result_of
from forensics.records import PreferencePair, Provenance
from forensics.records.files import write_json, write_json_lines
from tests.training.trajectories import trajectory


def pair(number: int, length: int = 1) -> dict[str, Any]:
    return PreferencePair(
        id=f"{number}",
        prefix=(1, 2),
        chosen=(3,) * length,
        rejected=(4,) * length,
        task=f"t{number}",
        policy="p",
        provenance=Provenance(instrument="test"),
    ).model_dump(mode="json")


def rows(number: int, tokens: int = 100) -> list[dict[str, Any]]:
    """Every third task has no pair."""
    return [
        {"task": f"t{i}", "tokens": tokens, "pair": None if i % 3 == 2 else pair(i, 10)}
        for i in range(number)
    ]


def quiet(what: str, done: int, of: int) -> None:
    pass


def test_a_task_is_paid_for_with_all_its_runs_and_gives_its_first_win_against_its_first_loss() -> (
    None
):
    runs = [
        trajectory("t", outcome, sample) for sample, outcome in enumerate((None, 0.0, 1.0, 0.0))
    ]
    runs[2] = runs[2].model_copy(
        update={
            "steps": (
                runs[2].steps[0],
                runs[2].steps[1].model_copy(update={"token_ids": (5, 6)}),
            )
        }
    )
    row = task_row("t", runs, "p")
    made = PreferencePair.model_validate(row["pair"])
    assert (made.prefix, made.chosen, made.rejected, made.task) == ((1, 2), (5, 6), (3, 4), "t")
    assert row["tokens"] == 8
    assert task_row("t", runs[:2], "p") == {"task": "t", "tokens": 4, "pair": None}
    assert task_row("t", runs[2:3], "p")["pair"] is None


@pytest.mark.parametrize(
    ("budget", "most", "numbers", "spent"),
    [
        (1000, None, "013467 9", 1000),
        (1000, 3, "013", 400),
        (999, None, "013467", 900),
        (99, None, "", 0),
        (100, 5, "0", 100),
    ],
)
def test_pairs_are_bought_until_the_budget_or_the_number_is_reached(
    budget: int, most: int | None, numbers: str, spent: int
) -> None:
    pairs, cost = affordable(iter(rows(30)), budget, most)
    assert [one.id for one in pairs] == list(numbers.replace(" ", ""))
    assert cost == spent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A seed whose sampling is done: 4 pairs at cliffs for 1,000 tokens, whole
    answers at 100 tokens a task.
    """
    for name in ("cliff", "random"):
        write_json_lines(tmp_path / f"{name}.jsonl", [pair(i) for i in range(4)])
    write_json(tmp_path / "bill.json", {"runs": 200, "rollouts": 800})
    write_json(tmp_path / "whole" / "000.json", rows(30))
    return tmp_path


def test_arms_have_equal_pairs_and_none_was_sampled_with_more_than_the_cliffs(folder: Path) -> None:
    found = {
        arm: pairs_of(arm, 11, folder, quiet)
        for arm in ("cliff", "random", "whole", "whole-budget")
    }
    assert {arm: len(pairs) for arm, (pairs, _) in found.items()} == {
        "cliff": 4,
        "random": 4,
        "whole": 4,
        "whole-budget": 7,
    }
    assert {arm: tokens for arm, (_, tokens) in found.items()} == {
        "cliff": 1000,
        "random": 200,
        "whole": 500,
        "whole-budget": 1000,
    }
    assert len({one.task for one in found["whole"][0]}) == 4


@pytest.mark.slow
def test_equal_weighted_tokens_are_a_part_of_the_whole_answers(folder: Path) -> None:
    write_json_lines(folder / "cliff.jsonl", [pair(i) for i in range(25)])
    write_json(folder / "bill.json", {"runs": 0, "rollouts": 3000})
    few, _ = pairs_of("whole-tokens", 11, folder, quiet)
    whole, _ = pairs_of("whole", 11, folder, quiet)
    assert weighted_tokens(few) == 40 and len(few) == 2
    assert {one.id for one in few} <= {one.id for one in whole}


def test_every_rollout_of_a_store_is_on_the_bill(tmp_path: Path) -> None:
    for sampler, part, tokens in (("a", 0, ([1, 2], [])), ("a", 1, ([3],)), ("b", 0, ([4, 5, 6],))):
        path = tmp_path / sampler / f"part-{part:06d}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps({"tokens": row}) + "\n" for row in tokens))
    assert stored_tokens(tmp_path) == 6


def test_the_grid_goes_on_above_as_long_as_its_largest_rate_is_the_best() -> None:
    inside = rates_tried(RATES, {rate: -abs(rate - 3e-4) for rate in RATES}.__getitem__)
    assert tuple(inside) == RATES and best(inside) == 3e-4
    beyond = rates_tried(RATES, lambda rate: -abs(rate - 0.03))
    assert tuple(beyond) == (*RATES, 1e-2, 3e-2, 1e-1) and best(beyond) == 3e-2
    assert best({1e-4: 0.5, 1e-3: 0.5, 1e-5: 0.4}) == 1e-4
    assert max(rates_tried(RATES, lambda rate: rate)) == 1.0


def test_rates_above_are_of_the_row_of_one_and_three() -> None:
    assert [above(rate) for rate in (1e-4, 3e-4, 1e-3, 3e-3, 0.1, 0.3)] == [
        3e-4,
        1e-3,
        3e-3,
        1e-2,
        0.3,
        1.0,
    ]


def test_an_arm_chooses_on_tasks_that_do_not_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, tuple[str, ...], int]] = []

    def play(rate: float, tasks: tuple[str, ...], stream: int) -> dict[str, float]:
        asked.append((rate, tasks, stream))
        return {task: float(rate == 3e-4) for task in tasks}

    monkeypatch.setattr(learning, "trained", lambda pairs, seed, rate: (rate, []))
    monkeypatch.setattr(learning, "played", play)
    pairs = [PreferencePair.model_validate(pair(i)) for i in range(MINIBATCH + 1)]
    found = learnt("cliff", pairs, 1000, 11, tmp_path)
    *choosing, (rate, reporting, stream) = asked
    tasks = world().tasks("held-out", CHOOSING + REPORTING, HELD_OUT)
    assert {row[1] for row in choosing} == {tasks[:CHOOSING]} and reporting == tasks[CHOOSING:]
    assert stream not in {row[2] for row in choosing}
    assert (
        found["rate"] == rate == 3e-4
        and found["steps"] == 2
        and set(found["scores"]) == set(reporting)
    )
    assert learnt("cliff", pairs, 1000, 11, tmp_path) == found and len(asked) == len(RATES) + 1


def test_the_number_of_steps_is_that_of_the_training_loop() -> None:
    policy = start().identity
    for count in (1, MINIBATCH, MINIBATCH + 1):
        pairs = [PreferencePair.model_validate(pair(i) | {"policy": policy}) for i in range(count)]
        assert len(trained(pairs, 0, 1e-5)[1]) == learning.steps(pairs)


def seeds(gains: dict[str, float]) -> list[dict[str, Any]]:
    """Five seeds, 50 tasks, and arms above the start by what is given, up to a
    little noise by seed.
    """

    def score(gain: float, seed: int) -> dict[str, float]:
        return {f"{task}": 0.2 + 0.01 * (task % 3) + gain + 0.001 * seed for task in range(50)}

    return [
        {
            "start": score(0.0, -seed),
            "arms": {
                arm: {"scores": score(gain, seed), **dict.fromkeys(KEYS, 1)}
                for arm, gain in gains.items()
            },
        }
        for seed in range(5)
    ]


def test_words_follow_from_intervals_and_turn_with_the_sides() -> None:
    gains = {"cliff": 0.3, "random": -0.15, "whole": 0.5, "whole-tokens": 0.3, "whole-budget": 0.1}
    result = result_of(seeds(gains))
    assert (
        result["arms"]["cliff"]["word"] == "helps" and result["arms"]["random"]["word"] == "harms"
    )
    assert {arm: row["word"] for arm, row in result["cliff minus"].items()} == {
        "random": "better",
        "whole": "worse",
        "whole-tokens": "no difference told",
        "whole-budget": "better",
    }
    assert result["cliff minus"]["whole"]["estimate"] == pytest.approx(-0.2)
    assert result["arms"]["whole"]["gain"]["estimate"] == pytest.approx(0.504)
    page = markdown(result)
    assert "| whole | -20.0 (" in page and page.count("\n|") == 2 + 5 + 1 + 4
