"""Sampling within the memory that there is: rows, buffers, precision, what waits for the
device, and batches that turn out too large.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import policy_from
from forensics.budget import Budget
from forensics.errors import UserError
from forensics.policies import decoder, distribution, huggingface
from forensics.policies.captured_step import CapturedSteps
from forensics.policies.kv_cache import MOST_ROWS, GrowingLayer, Room, cached_numbers, new_cache
from forensics.progress import Pace
from forensics.protocols import Policy, SamplingSettings, StepResult
from forensics.records import Trajectory
from forensics.runs.run_store import OPEN, Player, RunStore
from tests.tiny import tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo

SETTINGS = SamplingSettings(max_turn_tokens=10, max_tokens=240)


def policy(seed: int = 1) -> Policy:
    return policy_from(tiny_qwen3(seed), tiny_tokenizer(), "chat")


class Talkative(MiniRepo):
    """Its answers differ in length, up to some 90 tokens."""

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, observation=result.observation + " 0123456789" * (len(action) % 4))

    def spawn(self) -> "Talkative":
        return Talkative(turns="4")


def play(one: Policy, world: Any = None, samples: int = 3, **changes: Any) -> list[Trajectory]:
    world = world or Talkative(turns="4")
    arguments = {
        "environment": world,
        "tasks": world.tasks("held-out", 4, 1),
        "samples": samples,
        "settings": SETTINGS,
        "seed": 11,
    } | changes
    return list(one.play(**arguments))


def right(one: Policy, runs: Sequence[Trajectory]) -> None:
    """Log-probabilities as of one plain pass over each run."""
    for run in runs:
        ids = [i for step in run.steps for i in step.token_ids or ()]
        drawn = np.array([flag for step in run.steps for flag in step.sampled or ()])
        stated = np.array([x for step in run.steps for x in step.logprobs or ()])
        with torch.no_grad():
            logits = one.model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
        wanted = logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]].numpy()
        assert np.abs(stated - wanted[drawn[1:]]).max(initial=0) < 1e-5


def same(found: Sequence[Trajectory], wanted: Sequence[Trajectory]) -> None:
    """Equal runs, up to what the arithmetic of another batch rounds."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert [step.token_ids for step in one.steps] == [step.token_ids for step in other.steps]
        assert [step.text for step in one.steps] == [step.text for step in other.steps]
        assert (one.end, one.end_reason, one.outcome) == (
            other.end,
            other.end_reason,
            other.outcome,
        )
        mine, theirs = (
            np.concatenate([step.logprobs or () for step in run.steps]) for run in (one, other)
        )
        assert np.abs(mine - theirs).max(initial=0) < 1e-4


# rows and buffers


def test_rows_are_sized_for_what_a_text_may_have() -> None:
    """7B with four key heads on a card of which 60 GB are free."""
    room = Room(2 * 28 * 4 * 128, 2, int(60e9 * 0.4), "cuda")
    for length in (512, 1027, 2048, 32768):
        rows = room.rows(length)
        assert rows * length * 57344 <= 24e9 < (rows + 1) * length * 57344 or rows == MOST_ROWS
    assert room.rows(2048) == 204 and room.rows(10**9) == 1
    on_cpu = Room.of(tiny_qwen3(0))
    assert on_cpu.rows(2048) == on_cpu.rows(16) == MOST_ROWS, "as ever: its bytes stay"
    assert on_cpu.numbers == cached_numbers(tiny_qwen3(0).config) == 2 * 2 * 1 * 32


def test_the_rows_of_a_run_are_stated_and_taken_up_again() -> None:
    room = Room(57344 // 2, 2, int(24e9), "cuda")
    room.halve(100)
    later = Room(57344 // 2, 2, int(3e9), "cuda")
    later.restore(room.stated)
    assert later.rows(2048) == room.rows(2048) == 50
    assert Room.of(tiny_qwen3(0)).stated == {}, "on a CPU there is nothing to state"


def on_meta(layer: GrowingLayer, rows: int, length: int, kinds: Sequence[torch.dtype]) -> None:
    layer.update(*(torch.empty(rows, 2, length, 16, dtype=kind, device="meta") for kind in kinds))


def held(layer: GrowingLayer) -> int:
    return int(layer.keys.numel() * layer.keys.element_size() * 2)


def test_growth_never_takes_more_than_the_budget() -> None:
    """64 rows of at most 1,100 positions, one by one, on a device that is no CPU."""
    layer, kinds = GrowingLayer(64, None, 1100), [torch.bfloat16] * 2
    budget = 64 * 1100 * 2 * 16 * 2 * 2
    on_meta(layer, 64, 1000, kinds)
    for _ in range(100):
        on_meta(layer, 64, 1, kinds)
        assert held(layer) <= budget
    assert held(layer) == budget
    few = GrowingLayer(64, None, 1100)
    on_meta(few, 3, 10, kinds)
    index = torch.empty(40, dtype=torch.long, device="meta")
    few.move(index, index, 43)
    assert few.keys.shape[0] == 64, "doubling ends at the rows that there may be"


def test_longer_buffers_are_without_the_rows_that_have_left() -> None:
    layer, kinds = GrowingLayer(64, None, 4096), [torch.bfloat16] * 2
    on_meta(layer, 64, 100, kinds)
    assert layer.keys.shape[0] == 64
    none = torch.empty(0, dtype=torch.long, device="meta")
    layer.move(none, none, 20)
    on_meta(layer, 20, 200, kinds)
    assert layer.keys.shape[0] == 20 and layer.keys.shape[2] >= 300


def test_keys_and_values_are_of_one_precision_and_nothing_changes_by_it() -> None:
    """Under autocast keys come out of the rotation in float32; attention rounds them anyway."""
    model, ids = tiny_qwen3(1), torch.arange(5, 25)[None]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        cache = new_cache(model.config)
        logits = [
            model(part, past_key_values=cache, use_cache=True).logits[:, -1]
            for part in (ids[:, :12], ids[:, 12:13], ids[:, 13:])
        ]
        whole = model(ids, use_cache=False).logits[:, [11, 12, 19]]
    assert {layer.keys.dtype for layer in cache.layers} == {torch.bfloat16}
    assert {layer.values.dtype for layer in cache.layers} == {torch.bfloat16}
    assert (torch.cat(logits) - whole[0]).abs().max() < 0.1 * whole.std()


# what waits for the device


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that the host asks a tensor for numbers."""
    seen: list[str] = []

    def counted(name: str) -> Any:
        plain = getattr(torch.Tensor, name)

        def asked(*given: Any, **named: Any) -> Any:
            seen.append(name)
            return plain(*given, **named)

        return asked

    for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, name, counted(name))
    return seen


def test_a_step_waits_for_the_device_once(
    waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    on_host = distribution.on_host
    monkeypatch.setattr(
        "forensics.policies.sequences.on_host",
        lambda *given: (steps.append(1), on_host(*given))[1],
    )
    one = policy()
    waits.clear()
    play(one)
    by_cpu_alone = len(steps)  # whether a draw went beyond the end is asked on a CPU only
    assert steps and len(waits) - by_cpu_alone <= len(steps)


def test_rows_that_leave_cost_one_copy_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each layer."""
    sent: list[int] = []
    one, plain = policy(), distribution.on_device
    monkeypatch.setattr(
        "forensics.policies.kv_cache.on_device",
        lambda values, *rest: (sent.append(len(values)), plain(values, *rest))[1],
    )
    moves: list[int] = []
    move_rows = decoder.move_rows
    monkeypatch.setattr(
        "forensics.policies.decoder.move_rows", lambda *a: (moves.append(1), move_rows(*a))[1]
    )
    play(one)
    assert len(sent) == len(moves) > 3


# batches that are too large


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A card on which a pass of more than so many rows fails, from some pass on."""
    state = {"rows": 10**9, "after": 0, "passes": 0, "failed": 0}
    plain = torch.nn.functional.embedding

    def embedding(ids: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        state["passes"] += 1
        if len(ids) > state["rows"] and state["passes"] > state["after"]:
            state["failed"] += 1
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return plain(ids, *rest, **named)

    monkeypatch.setattr("torch.nn.functional.embedding", embedding)
    return state


@pytest.mark.parametrize("after", [0, 20, 60])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_batch_that_does_not_fit_goes_on_as_two_with_equal_results(
    small: dict[str, int], after: int, samples: int
) -> None:
    wanted = play(policy(), samples=samples)
    one = policy()
    small |= {"rows": 2, "after": small["passes"] + after}
    found = play(one, samples=samples)
    assert small["failed"] and one.room.most < 4 * samples
    same(found, wanted)


@pytest.mark.parametrize("at", [3, 20])
def test_a_draw_that_does_not_fit_draws_the_same_again(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No episode loses a number of its random stream."""
    wanted, drawn = play(policy()), list[int]()

    def on_host(*given: Any) -> Any:
        drawn.append(1)
        if len(drawn) == at:
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return distribution.on_host(*given)

    monkeypatch.setattr("forensics.policies.sequences.on_host", on_host)
    same(play(policy()), wanted)
    assert len(drawn) > at


def test_episodes_that_still_share_a_row_are_counted_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row of eight is no reason to play one at a time from there on."""
    plain, passes = torch.nn.functional.embedding, list[int]()

    def embedding(ids: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        passes.append(len(ids))
        if len(passes) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return plain(ids, *rest, **named)

    one, world = policy(), Talkative(turns="4")
    monkeypatch.setattr("torch.nn.functional.embedding", embedding)
    runs = play(one, world, tasks=world.tasks("held-out", 1, 1), samples=8)
    assert len(runs) == 8 and passes[0] == 1 and one.room.most == 4


def test_one_row_that_does_not_fit_is_one_sentence(small: dict[str, int]) -> None:
    one = policy()
    small["rows"] = 0
    with pytest.raises(UserError, match="lower max_tokens"):
        play(one)


def test_one_row_is_tried_again_without_what_is_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    one, world, passes = policy(), Talkative(turns="4"), list[int]()
    tasks, plain = world.tasks("held-out", 1, 1), torch.nn.functional.embedding
    wanted = play(policy(), world, tasks=tasks)

    def embedding(ids: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        passes.append(len(ids))
        if len(passes) == 5:
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return plain(ids, *rest, **named)

    monkeypatch.setattr("torch.nn.functional.embedding", embedding)
    same(play(one, world, tasks=tasks), wanted)
    assert len(passes) > 5 and one.room.most == 1


# rows at positions of their own


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("ahead", [1, 20])
def test_rows_that_part_play_the_same_runs(
    ahead: int, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the steps that a GPU captures."""
    wanted, one = play(policy()), policy()
    one.read_ahead = ahead
    if captured:
        steps = CapturedSteps(one.model, capture=False)
        monkeypatch.setattr(huggingface, "captured_steps", lambda _: steps)
    found = play(one)
    right(one, found)
    same(found, wanted)


def test_an_observation_is_not_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of 300 tokens and more: passes of the whole batch by what is drawn."""

    class Long(Talkative):
        def step(self, action: str) -> StepResult:
            result = super().step(action)
            return replace(result, observation=" 0123456789" * (30 + 20 * (len(action) % 3)))

        def spawn(self) -> "Long":
            return Long(turns="2")

    def passes(ahead: float) -> tuple[int, list[Trajectory]]:
        one = policy()
        one.read_ahead = ahead
        seen: list[int] = []
        one.model.get_decoder().register_forward_pre_hook(lambda *_: seen.append(1))
        runs = play(one, Long(turns="2"), settings=replace(SETTINGS, max_tokens=2000))
        return len(seen), runs

    (slow, wanted), (fast, found) = passes(10**9), passes(64)
    same(found, wanted)
    longest = max(len(step.token_ids or ()) for run in found for step in run.steps)
    assert longest > 300 and fast < 30 and slow > 1.5 * fast, (fast, slow)


class Slow(Talkative):
    """Its steps take a while, and 64 may run at once."""

    steps_at_once = 64

    def step(self, action: str) -> StepResult:
        time.sleep(0.02 * (len(action) % 3))
        return super().step(action)

    def spawn(self) -> "Slow":
        return Slow(turns="4")


def test_steps_in_threads_play_the_same_runs() -> None:
    found, again = play(policy(), Slow(turns="4")), play(policy(), Slow(turns="4"))
    assert found == again, "whichever answered first"
    same(found, play(policy()))


def test_steps_of_many_episodes_run_at_once() -> None:
    running, most = [0], [0]

    class Counted(Slow):
        def step(self, action: str) -> StepResult:
            running[0] += 1
            most[0] = max(most[0], running[0])
            time.sleep(0.2)
            running[0] -= 1
            return Talkative.step(self, action)

        def spawn(self) -> "Counted":
            return Counted(turns="1")

    world = Counted(turns="1")
    play(policy(), world, tasks=world.tasks("held-out", 32, 1), samples=1)
    assert most[0] > 8


def test_a_world_that_breaks_in_a_thread_breaks_its_episode_alone() -> None:
    class Broken(Slow):
        def step(self, action: str) -> StepResult:
            if len(action) % 2:
                raise KeyError("planted")
            return super().step(action)

        def spawn(self) -> "Broken":
            return Broken(turns="4")

    runs = play(policy(), Broken(turns="4"))
    reasons = {run.end_reason for run in runs if run.end == "errored"}
    assert reasons == {"the environment raised KeyError: 'planted'"} and len(runs) == 12


def test_a_pack_that_does_not_fit_is_read_as_two_with_equal_results() -> None:
    one = policy()
    texts = [[i for step in run.steps for i in step.token_ids or ()] for run in play(one)]
    wanted = one.logprobs(texts, SETTINGS)
    body, failed = one.model.get_decoder(), list[int]()
    forward = body.forward

    def short(ids: torch.Tensor, **named: Any) -> Any:
        if ids.numel() > max(map(len, texts)):
            failed.append(ids.numel())
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return forward(ids, **named)

    body.forward = short
    found = one.logprobs(texts, SETTINGS)
    assert failed
    for mine, theirs in zip(found, wanted, strict=True):
        assert np.abs(mine - theirs).max() < 1e-4


def test_a_resumed_case_goes_on_with_the_rows_that_it_was_begun_with(tmp_path: Path) -> None:
    """Though the card has less memory free by then; halving in between is kept."""

    def chunk(one: Policy, number: int) -> None:
        world = Talkative(turns="1")
        store = RunStore(
            folder=tmp_path,
            world=world,
            tasks=tuple(world.tasks("held-out", 2, number)),
            budget=Budget(samples=1),
            seed=number,
        )
        who = Player("before", one.identity, lambda: one, "before training")
        request = store.request(who, OPEN)
        store.rollouts(who, OPEN, request, lambda *_: None, Pace())

    first, later, on_cpu = policy(), policy(), policy()
    first.room = Room(128, 4, 2**30, "cuda")
    later.room = Room(128, 4, 2**20, "cuda")
    chunk(first, 1)
    began = first.room.rows(2048)
    chunk(later, 2)
    assert later.room.rows(2048) == began > Room(128, 4, 2**20, "cuda").rows(2048)
    later.room.halve(100)
    chunk(later, 3)
    third = policy()
    third.room = Room(128, 4, 2**30, "cuda")
    chunk(third, 4)
    assert third.room.rows(16) == 50
    before = (tmp_path / "trajectories" / "rows.json").read_bytes()
    chunk(on_cpu, 5)
    assert (tmp_path / "trajectories" / "rows.json").read_bytes() == before
