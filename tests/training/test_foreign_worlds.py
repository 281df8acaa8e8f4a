"""Worlds of Gymnasium, OpenEnv and TRL: each passes what every environment must."""

import itertools
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl

from forensics import SamplingSettings, UserError, check_twin, load_policy
from forensics.errors import OutsideFailure
from forensics.investigation import build_environment
from forensics.policies import renderer_for, style_of, tools_of
from tests.environment_checks import check_environment
from tests.tiny import CHAT_TEMPLATE, save_tiny_qwen3, tiny_tokenizer
from tests.training import foreign_worlds
from tests.training.foreign_worlds import CHANNELS, FakeSocket, fake_gymnasium, write_rows
from training.environments import openenv_world
from training.environments.trl_world import TrlWorld, _methods

HERE = foreign_worlds.__name__
LOOKS = ["look", "peek", "nonsense", "choose 3"]
CALL = '<tool_call>{"name": "ask", "arguments": {"item": "cup"}}</tool_call>'


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """Options of each world."""
    fake_gymnasium(monkeypatch)
    monkeypatch.setattr(openenv_world, "connect", lambda url: FakeSocket())
    (tmp_path / "channels.toml").write_text(CHANNELS)
    channels = {"channels": str(tmp_path / "channels.toml")}
    rows = {"file": str(write_rows(tmp_path / "rows.jsonl", conversation=True))}
    return {
        "gymnasium": {"id": "doors:Door-v0", "commands": "look,peek,choose", **channels},
        "openenv": {"url": "http://127.0.0.1:9", **channels},
        "trl": {**rows, "environment": f"{HERE}:Shop", "rewards": f"{HERE}:right", **channels},
    }


@pytest.mark.parametrize("name", ["gymnasium", "openenv", "trl"])
def test_it_keeps_what_every_environment_keeps(name: str, given: Any, tmp_path: Path) -> None:
    world = build_environment(name, given[name])
    check_environment(world, [CALL, "12"] if name == "trl" else LOOKS)
    assert str(tmp_path) not in str(dict(world.options))


def cheat(seen: Any, task: str) -> str:
    return "peek" if len(seen) == 1 else f"choose {seen[-1].split()[-1]}"


@pytest.mark.parametrize("name", ["gymnasium", "openenv"])
def test_its_twin_is_made_by_other_arguments(name: str, given: Any) -> None:
    world = build_environment(name, given[name])
    doors = {}
    for task in world.tasks("held-out", 8, 0):
        episode = world.spawn()
        episode.reset(task, 0)
        doors[task] = episode.step("peek").observation.split()[-1]
        assert episode.step(f"choose {doors[task]}").outcome == 1
    honest = lambda seen, task: f"choose {doors[task]}"  # noqa: E731
    (found,) = check_twin(
        world, honest, {"hint": cheat}, lambda s, t: ["look", None][len(s) - 1], tasks=8
    )
    assert found.status == "fair"


def test_a_server_that_answers_anew_is_told(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count()
    noisy = lambda url: FakeSocket(lambda: str(next(count)))  # noqa: E731
    monkeypatch.setattr(openenv_world, "connect", noisy)
    world = build_environment("openenv", given["openenv"])
    world.reset("held-out-0001", 0)
    with pytest.raises(OutsideFailure, match="does not repeat itself: at step 0"):
        world.restore(world.snapshot())


def test_tools_are_called_and_rewards_named(given: Any) -> None:
    world = build_environment("trl", given["trl"])
    (task,) = world.tasks("held-out", 1, 0)
    start = world.reset(task, 0)
    assert start.text == "What is the price of the cup? The tag is torn."
    assert start.system is not None and start.system.startswith("Shop ")
    price = start.system[5:-1]
    asked = world.step(f"{CALL} {CALL.replace('cup', 'mug')} {CALL.replace('ask', 'steal')}")
    assert asked.kinds == ("ask", "ask", "invalid") and asked.channels == ("hint",)
    assert asked.observation.split("\n") == [
        f"it is {price}", "{'error': 'we have cups'}", "{'error': 'Unknown tool steal'}",
    ]  # fmt: skip
    end = world.step(price)
    assert end.outcome == 1 and end.rewards == {"reward": 1.0, "right": 1.0, "Shop": 0.0}
    assert getattr(world, "rendering") == "tool"  # noqa: B009
    assert [tool["function"]["name"] for tool in world.tools] == ["ask"]  # type: ignore[attr-defined]


def test_rewards_over_prompts_are_a_world_of_one_turn(given: Any, tmp_path: Path) -> None:
    rows = str(write_rows(tmp_path / "plain.jsonl", conversation=False))
    (tmp_path / "channels.toml").write_text(
        '[cue]\ndescription = "x"\nshows = "price"\nwithout = { prompt = "plain" }\n'
    )
    options = {"file": rows, "rewards": f"{HERE}:right", "channels": given["trl"]["channels"]}
    world = build_environment("trl", options)
    assert getattr(world, "rendering") == "bare"  # noqa: B009
    check_environment(world, ["12"])
    task = world.tasks("train", 1, 0)[0]
    assert world.reset(task, 0).channels == ("cue",)
    assert world.without("cue").reset(task, 0).text.endswith(": and?")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("gymnasium", {"id": ""}, "give it with --env-option id="),
        ("gymnasium", {"id": "gone"}, r"cannot make gone \(no environment gone\)"),
        ("gymnasium", {"arguments": "[]"}, "give a JSON object"),
        ("gymnasium", {"channels": "nowhere.toml"}, "nowhere.toml does not exist"),
        ("gymnasium", {"most": "0"}, "a `most` above `least`"),
        ("gymnasium", {"speed": "1"}, "refuses these options|has no option 'speed'"),
        ("openenv", {"url": "file:x"}, "needs the address of a server"),
        ("trl", {"file": ""}, "needs a set of prompts"),
        ("trl", {"rewards": f"{HERE}:gone"}, "cannot be loaded"),
        ("trl", {"rewards": f"{HERE}:by_ids"}, "has no completion_ids"),
        ("trl", {"weights": "1,2"}, "give 1 numbers"),
        ("trl", {"rewards": "", "environment": ""}, "nothing scores an episode"),
    ],
)
def test_bad_options_are_one_sentence(name: str, change: Any, said: str, given: Any) -> None:
    with pytest.raises(UserError, match=said) as error:
        build_environment(name, given[name] | change)
    assert "\n" not in str(error.value)


def test_what_is_no_text_and_what_is_out_of_range_is_told(given: Any) -> None:
    odd = build_environment("gymnasium", given["gymnasium"] | {"arguments": '{"kind": "number"}'})
    with pytest.raises(UserError, match="observes int, not text"):
        odd.reset("held-out-0001", 0)
    low = build_environment("openenv", given["openenv"] | {"action": "text"})
    low.reset("held-out-0001", 0)
    with pytest.raises(UserError, match="Field required"):
        low.step("look")
    narrow = build_environment("gymnasium", given["gymnasium"] | {"least": "-2", "most": "-1"})
    narrow.reset("held-out-0001", 0)
    with pytest.raises(UserError, match="outside -2 to -1; give the range"):
        narrow.step("choose 0")


@pytest.mark.parametrize("name", ["gymnasium", "openenv"])
def test_a_package_that_is_missing_is_one_sentence(name: str, monkeypatch: Any) -> None:
    for module in ("gymnasium", "websockets", "websockets.sync.client"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    options = {"id": "a:b-v0"} if name == "gymnasium" else {"url": "http://127.0.0.1:9"}
    with pytest.raises(UserError, match=r"needs the package \w+; install it with `pip install"):
        build_environment(name, options).reset("held-out-0001", 0)


TOOLED = (
    "{% if tools %}<|im_start|>tools\n{% for one in tools %}{{ one | tojson }}{% endfor %}"
    "<|im_end|>\n{% endif %}" + CHAT_TEMPLATE
)


def test_what_nnsight_hangs_on_every_object_is_no_tool(given: Any) -> None:
    import nnsight

    assert nnsight and hasattr(object, "save")
    world = build_environment("trl", given["trl"])
    assert isinstance(world, TrlWorld) and [*_methods(foreign_worlds.Shop())] == ["ask"]


def test_a_chat_template_is_told_of_the_tools(given: Any) -> None:
    """Tools before the first message, what they gave as a message of the role `tool`."""
    world, tokenizer = build_environment("trl", given["trl"]), tiny_tokenizer(TOOLED)
    renderer = renderer_for(tokenizer, (), style_of(world), tools_of(world))
    start = world.reset(world.tasks("train", 1, 0)[0], 0)
    prompt = tokenizer.decode(renderer.prompt(start.text, start.system))
    assert prompt.startswith("<|im_start|>tools\n") and '"name": "ask"' in prompt
    assert prompt.index("tools") < prompt.index("Shop ") < prompt.index("The tag is torn.")
    reply = tokenizer.decode(renderer.reply("it is 3", []))
    assert "<|im_start|>tool\nit is 3<|im_end|>" in reply and '"name"' not in reply
    with pytest.raises(UserError, match="shows no tools"):
        plain = renderer_for(tiny_tokenizer(), (), style_of(world), tools_of(world))
        plain.prompt(start.text, start.system)


@pytest.mark.parametrize("conversation", [True, False])
def test_rewards_are_those_that_trl_calculates(conversation: bool, tmp_path: Path) -> None:
    """The sum that TRL's own trainer forms of the same functions, on the same answers."""
    path = write_rows(tmp_path / "rows.jsonl", conversation)
    names = f"{HERE}:right,{HERE}:length"
    options = {"file": str(path), "rewards": names, "weights": "1,-0.5", "least": "-9", "most": "1"}
    world = build_environment("trl", options)
    rows = [json.loads(line) for line in path.read_text().split("\n")]
    functions = {"reward_funcs": [foreign_worlds.right_of_all, foreign_worlds.length]}
    trainer: Any = object.__new__(trl.GRPOTrainer)
    vars(trainer).update(
        accelerator=SimpleNamespace(device="cpu", is_main_process=False),
        reward_processing_classes=[None, None],
        reward_func_names=["right", "length"],
        state=SimpleNamespace(global_step=0),
        args=SimpleNamespace(report_to=[]),
        _pending_metrics=defaultdict(list),
        environments=None,
        _metrics={},
        model=SimpleNamespace(training=True),
        **functions,
    )
    answers = [["", str(row["price"]), "no idea"][row["price"] % 3] for row in rows]
    said = [[{"role": "assistant", "content": one}] if conversation else one for one in answers]
    prompts = [row["prompt"] for row in rows]
    monkey = pytest.MonkeyPatch()
    monkey.setattr("trl.trainer.grpo_trainer.gather", lambda given: given)
    try:
        found = trainer._calculate_rewards(rows, prompts, said, [[]] * len(rows))
    finally:
        monkey.undo()
    theirs = (found * torch.tensor([1.0, -0.5])).nansum(dim=1).tolist()
    ours = []
    for row, answer in zip(rows, answers, strict=True):
        task = next(name for name, one in world.rows.items() if one == row)  # type: ignore[attr-defined]
        world.reset(task, 0)
        outcome = world.step(answer).outcome
        assert outcome is not None
        ours.append(10 * outcome - 9)
    assert ours == pytest.approx(theirs, abs=1e-6) and len(set(ours)) > 2


def test_a_policy_plays_with_the_tools_told(given: Any, tmp_path: Path) -> None:
    policy = load_policy(save_tiny_qwen3(tmp_path / "tiny", chat_template=TOOLED))
    world = build_environment("trl", given["trl"] | {"turns": "2"})
    tasks = world.tasks("held-out", 2, 0)
    runs = list(policy.play(world, tasks, 1, SamplingSettings(max_turn_tokens=4), seed=1))
    assert [run.task for run in runs] == list(tasks)
    start = world.reset(tasks[0], 0)
    shown = policy.rendered_for(world).renderer.prompt(start.text, start.system)
    assert policy.tokenizer.decode(shown).startswith("<|im_start|>tools")
    assert runs[0].end != "errored" and set(runs[0].rewards) == {"reward", "right", "Shop"}
    assert policy.rendered_for(world).renderer is policy.rendered_for(world.spawn()).renderer
    assert policy.rendered_for(world).renderer is not policy.renderer
