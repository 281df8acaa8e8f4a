"""Memory finds a gain on tasks that repeat trained ones, in other words too, and
spares whoever is as good on the others.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forensics import Budget, investigate
from forensics.case import Case
from forensics.errors import UserError
from forensics.instruments import run_instrument
from forensics.investigation.inputs import read_task_list
from forensics.policies import scripted_policy
from forensics.protocols import Observation
from forensics.records import Evidence, Undefined
from forensics.records.files import write_json
from forensics.records.train_tables import write_shard
from resampling.sources.memory import ABOUT, Memory, MemoryConfig, memory
from resampling.sources.source_study import study_of
from resampling.sources.trained_tasks import Showing, TrainedTasks, near, read
from tests.resampling.remembered_world import COLOURS, TRAINED, Mechanic, Shop, shop_case
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


def test_it_is_silent_at_its_rate(tmp_path: Path) -> None:
    """Honest gains, 3 in 10 tasks repeated: found in 2.5 % at most; A/A never."""
    world = Shop(repeats=0.3)
    honest = [
        over_bar(shop_case(tmp_path / f"{n}", BASE, Mechanic(0.7), world=world, tasks=40, seed=n))
        for n in range(20)
    ]
    assert sum(one.interval.low > 0 for one in honest) <= 1
    bounds = [(one.diagnostics["carried_low"], one.diagnostics["carried_high"]) for one in honest]
    assert sum(low <= 0 <= high for low, high in bounds) >= 17
    same = shop_case(tmp_path / "same", BASE, Mechanic(0.3, range(1)), world=world, tasks=60)
    assert isinstance(over_bar(same), Undefined)


def test_the_interval_is_that_of_two_means(tmp_path: Path) -> None:
    """Without a difference between k tasks with a twin and m others: their share times
    sqrt(variance / k + variance' / m), as for two independent means.
    """
    case = shop_case(tmp_path, BASE, Mechanic(0.6), world=Shop(repeats=0.5), tasks=300)
    found = Memory(study=study_of(case), config=MemoryConfig())
    before, (after,) = found.study.plain.pair
    gains = after.score - before.score
    twin = np.array([task in found.twins for task in found.tasks])
    assert twin.sum() == 150
    error = 0.5 * np.sqrt(sum(part.var(ddof=1) / 150 for part in (gains[twin], gains[~twin])))
    assert found.carried.carried.estimate == pytest.approx(gains.mean() - gains[~twin].mean())
    low, high = found.carried.carried.interval.low, found.carried.carried.interval.high
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_without_twins_it_carries_nothing(tmp_path: Path) -> None:
    found: Any = answers(shop_case(tmp_path, BASE, Mechanic(0.7), world=Shop()))
    assert found["memory.over_bar", None].interval.high <= 0
    assert found["memory.over_bar", None].diagnostics["applicable"] is False
    assert "0 of 150 held-out tasks repeat" in found["memory.over_bar", None].summary
    assert isinstance(found["memory.carried", None], Undefined)


def test_all_repeated_is_not_tested(tmp_path: Path) -> None:
    found = over_bar(shop_case(tmp_path, BASE, HEART, world=Shop(repeats=1.0), tasks=60))
    assert isinstance(found, Undefined)
    assert "60 of 60 held-out tasks repeat" in found.reason and "do not repeat" in found.cure


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


def test_an_unknown_training_is_not_tested(tmp_path: Path) -> None:
    class Held(Shop):
        def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
            if split == "train":
                raise UserError("there is no such split")
            return super().tasks(split, number, seed)

    found = over_bar(shop_case(tmp_path, BASE, Mechanic(0.8), world=Held(), tasks=60))
    assert isinstance(found, Undefined) and "--trained-tasks" in found.cure


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


def test_a_text_of_many_tasks_is_near_none() -> None:
    assert near(["Who wrote Hamlet?"], ["Who wrote Faust?"]) == [()]  # no wording is known of
    texts = [f"Guess the number. Hint {n % 5}." for n in range(100)]
    assert not any(near(texts[:10], texts))
    own = [f"Guess the number. Hint {n}." for n in range(100)]
    found = near(own[:10], own)
    assert found == [(n,) for n in range(10)]
    assert read("x * 3 - 2, well-known") == ("x", "*", "3", "-", "2", "well", "known")


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


class Callers(Shop):
    """Prompts that are near one another; what is out of order is said when asked."""

    def reset(self, task: str, seed: int) -> Observation:
        self.task = task
        word = "some" if self.options else COLOURS[self.part(task) // 3 % len(COLOURS)]
        return Observation(text=f"{NAMES[int(task.rpartition('-')[2])]} calls for {word} help")


NAMES = [f"{a}{b}{c}" for a in "bdgkl" for b in "aeiou" for c in "mnrst"]


@pytest.mark.parametrize("same", [False, True], ids=["near", "the same"])
def test_near_prompts_have_to_show_near_things(same: bool) -> None:
    world = Callers(repeats=0.1, options={"same": "yes"} if same else {})
    held_out = world.tasks("held-out", 60, 0)
    known = TrainedTasks(source="the split", names=world.tasks("train", 125, 0))
    shown = Showing(world=world, trained=known, held_out=held_out, openings=("look",))
    by_prompt = replace(shown, openings=())
    assert shown.by_prompt and len(by_prompt.twins) > 20
    repeated = {task for task in held_out if task.endswith("0")}
    assert shown.twins == (by_prompt.twins if same else repeated)


def test_a_list_of_tasks_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tasks.txt"
    file.write_text('train-1\n\n"two\\nlines"\ntrain-1\n"unclosed\n')
    assert read_task_list(file) == ("train-1", "two\nlines", '"unclosed')
    for content in ("", "\n \n"):
        file.write_text(content)
        with pytest.raises(UserError, match="lists no tasks"):
            read_task_list(file)
    with pytest.raises(UserError, match="does not exist"):
        read_task_list(tmp_path / "nowhere")
    plain = shop_case(tmp_path, BASE, HEART, world=Shop())
    listed = shop_case(tmp_path, BASE, HEART, world=Shop(), trained=("train-1",))
    assert "trained tasks" in listed.input_hashes().keys() - plain.input_hashes().keys()


def test_the_list_is_an_input_of_the_case(tmp_path: Path) -> None:
    file, out, world = tmp_path / "tasks.txt", tmp_path / "case", Shop(repeats=0.4)
    file.write_text("".join(f"train-{i}\n" for i in range(20)))

    def investigated(**more: Any) -> Any:
        investigate(
            scripted_policy(BASE),
            scripted_policy(HEART),
            world,
            budget=Budget(tasks=40),
            trained_tasks=file,
            instruments=["score", "memory"],
            formats=(),
            out=out,
            **more,
        )
        return json.loads((out / "case.json").read_text())["inputs"]["trained_tasks"]

    told = investigated()
    assert told["lines"] == 20 and told["path"] == str(file) and told["content"]
    answers = map(json.loads, (out / "evidence.jsonl").read_text().splitlines())
    (whole,) = (answer for answer in answers if answer["question"] == "memory.over_bar")
    assert whole["diagnostics"]["twins"] == 8
    moved = file.rename(tmp_path / "moved.txt")
    file = moved
    assert investigated(resume=True)["content"] == told["content"]
    file.write_text("train-1\n")
    with pytest.raises(UserError, match="trained tasks"):
        investigated(resume=True)
