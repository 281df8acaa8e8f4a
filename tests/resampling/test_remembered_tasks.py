"""Memory finds a gain on tasks that repeat trained ones, in other words too, and
spares whoever is as good on the others.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forensics.case import Case
from forensics.instruments import run_instrument
from forensics.records import Evidence, Undefined
from forensics.records.files import write_json
from forensics.records.train_tables import write_shard
from resampling.gain_tests.memory import ABOUT, memory
from resampling.gain_tests.trained_tasks import Showing, TrainedTasks, near
from tests.resampling.remembered_world import TRAINED, Mechanic, Shop, shop_case
from tests.subjects import playing
from tests.training.record_rows import RUN, row
from training import MiniRepo

BASE = Mechanic(0.3)
HEART = Mechanic(0.3, remembers=TRAINED)


def answers(case: Case) -> dict[tuple[str, str | None], Evidence | Undefined]:
    return {(a.question, a.about): a for a in run_instrument(memory, case)}


def over_bar(case: Case) -> Any:
    return answers(case)["memory.over_bar", None]


@pytest.mark.parametrize("by_file", [False, True], ids=["prompt", "file"])
def test_a_gain_by_heart_is_found(tmp_path: Path, by_file: bool) -> None:
    """40 % of the held-out tasks: .4 * .7 = 28 points, all of them on these."""
    case = shop_case(tmp_path, BASE, HEART, world=Shop(repeats=0.4, by_file=by_file))
    found: Any = answers(case)
    whole, carried = found["memory.over_bar", None], found["memory.carried", ABOUT]
    assert whole.diagnostics["twins"] == 60 and whole.diagnostics["told_by_prompt"] is not by_file
    assert whole.interval.low > 0
    assert carried.interval.low < 0.28 < carried.interval.high
    assert abs(whole.diagnostics["gain_on_others"]) < 0.06


@pytest.mark.parametrize("by_file", [False, True], ids=["prompt", "file"])
def test_skill_is_cleared(tmp_path: Path, by_file: bool) -> None:
    case = shop_case(tmp_path, BASE, Mechanic(0.8), world=Shop(repeats=0.4, by_file=by_file))
    found = over_bar(case)
    assert found.interval.high <= 0 and found.diagnostics["twins"] == 60


def test_both_sides_of_the_bar(tmp_path: Path) -> None:
    """Skill .3 to .6, and some by heart: 4 of 34 points, 16 of 46, each of a fifth."""
    half = Mechanic(0.6, remembers=TRAINED)
    below = shop_case(tmp_path / "1", BASE, half, world=Shop(repeats=0.1), tasks=300)
    above = shop_case(tmp_path / "4", BASE, half, world=Shop(repeats=0.4), tasks=300)
    assert over_bar(below).interval.high <= 0
    assert over_bar(above).interval.low > 0


def test_a_list_says_what_was_trained_on(tmp_path: Path) -> None:
    """Names or prompts, and no other than those; a prompt tells nothing where all are one."""
    world = Shop(repeats=0.4)
    names = tuple(f"train-{i}" for i in range(50))
    lists = {
        "names": (names, 20),
        "prompts": (tuple(map(world.asked, names)), 20),
        "others": (("train-5", "train-6", "Something else.", "word"), 0),
        "itself": (("held-out-5",), 1),
    }
    for kind, (given, twins) in lists.items():
        case = shop_case(tmp_path / kind, BASE, HEART, world=world, trained=given)
        assert over_bar(case).diagnostics.get("twins", 0) == twins
    hidden = Shop(repeats=0.4, by_file=True)
    case = shop_case(tmp_path / "h", BASE, HEART, world=hidden, trained=lists["prompts"][0])
    assert "only the prompts are known" in over_bar(case).reason


class Words:
    """A tokenizer of which each number is a word."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def encode(self, text: str) -> tuple[int, ...]:
        words = text.split()
        self.known += [word for word in words if word not in self.known]
        return tuple(map(self.known.index, words))

    def decode(self, token_ids: list[int], skip_special_tokens: bool) -> str:
        return " ".join(self.known[i] for i in token_ids)


def record(folder: Path, world: dict[str, Any], names: list[str], shop: Shop, words: Words) -> Path:
    """The record of a run that was trained on these tasks, in two steps."""
    write_json(
        folder / "record" / "run.json", RUN.model_copy(update={"environment": world}).model_dump()
    )
    for step, part in enumerate((names[::2], names[1::2])):
        rows = []
        for sample in (0, 1):
            for name in part:
                prompt = words.encode(shop.asked(name))
                told = {
                    "task": name,
                    "token_ids": (*prompt, 0),
                    "sampled": (*(False for _ in prompt), True),
                    "sampler_logprobs": (-0.5,),
                }
                rows.append(row(step, name, sample, **told))
        write_shard(folder, step, rows, {}, "test")
    return folder


@pytest.mark.parametrize("kind", ["this world", "another world"])
def test_a_record_says_what_was_trained_on(tmp_path: Path, kind: str) -> None:
    """By names where it is of this world; else by what stands before the first drawn token."""
    shop, words = Shop(repeats=0.4), Words()
    names = [f"train-{i}" for i in range(50)]
    told = {"name": "shop" if kind == "this world" else "other", "options": {}, "without": []}
    folder = record(tmp_path / "run", told, names, shop, words)
    made = shop_case(tmp_path / "case", BASE, HEART, world=shop, training=folder)
    policy: Any = SimpleNamespace(
        tokenizer=words,
        capabilities=frozenset({"tokens", "play"}),
        play=made.subject("before").open().play,
    )
    case = playing(made, {"before": lambda: policy})
    found = over_bar(case)
    assert found.diagnostics["twins"] == 20
    assert found.diagnostics["known_from"] == "the training record"
    both = replace(case, folder=tmp_path / "both", trained=("train-50", "train-62"))
    assert over_bar(both).diagnostics["twins"] == 22
    if kind == "another world":
        assert "cannot be read" in over_bar(made).reason


NEAR = (
    ("What is 17 + 25?", "what is   17+25"),
    ("Who wrote Hamlet?", "who wrote “Hamlet”, please"),
    ("Ａnn has 3 pears, Bob has 4.", "ann has 3 PEARS; bob has 4"),
)
FAR = (
    ("What is 17 + 25?", "What is 17 + 26?"),
    ("What is 17 + 25?", "What is 17 - 25?"),
    ("fail kiwi : 2 -> 7", "fail kiwi : 7 -> 2"),
    ("The capital of France", "The capital of Spain"),
    ("Who wrote Hamlet?", "Who wrote Faust?"),
)


@pytest.mark.parametrize(("one", "other"), [*NEAR, *FAR])
def test_what_is_near(one: str, other: str) -> None:
    filler = [f"{word} number {n} of many" for n, word in enumerate("abcdefghij")]
    found = near([one, *filler], [other])
    assert bool(found[0]) == ((one, other) in NEAR)


def test_a_prompt_that_is_met_again_is_no_task_that_is() -> None:
    """`mini-repo`: many repositories have one failing test, few are the same."""
    world = MiniRepo(world="open")
    held_out = world.tasks("held-out", 60, 7)
    known = TrainedTasks(source="the split", names=world.tasks("train", 800, 7))
    first = ("open 1", "open 2", "open 3")
    whole = Showing(world=world, trained=known, held_out=held_out, openings=first)
    prompts = Showing(world=world, trained=known, held_out=held_out, openings=())
    assert not whole.by_prompt and prompts.by_prompt

    assert not whole.twins and prompts.twins
    again = Showing(world=world, trained=known, held_out=known.names[:5], openings=first)
    assert again.twins == set(known.names[:5])
