"""How a world's texts become tokens where the world decides: bare strings, a
shell transcript, or the tokenizer's way.

The planted truth is `letters`: a policy trained on bare strings alone, to which
a text behind the question is strange.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from forensics import load_policy, policy_from
from forensics.errors import UserError
from forensics.policies.checkpoints import read_environment_hint
from forensics.policies.compatibility import require_context
from forensics.policies.renderers import renderer_for, style_of
from forensics.progress import silent
from forensics.protocols import Policy, SamplingSettings
from forensics.records import TrainingRow
from forensics.records.train_tables import TrainingRecord
from forensics.world import environment_key
from tests.environment_checks import check_environment
from tests.tiny import CHAT_TEMPLATE, save_tiny_qwen3, tiny_qwen3, tiny_tokenizer
from training.environments.mini_repo import MiniRepo
from training.environments.prompts import Prompts
from training.recipe import parse_recipe
from training.trainer import grpo, train_recipe

TEXT = "What is the capital of France?"
SETTINGS = SamplingSettings(max_turn_tokens=24, max_tokens=200)


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [
        {
            "prompt": f"{TEXT} {i}",
            "verifier": {"type": "regex", "pattern": "[0-9]"},
            "system": "Be brief.",
        }
        for i in range(40)
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "questions.jsonl")


def policy_of(template: bool) -> Policy:
    return policy_from(
        tiny_qwen3(1), tiny_tokenizer() if template else tiny_tokenizer(None), "tiny"
    )


def with_start(tokenizer: Any) -> Any:
    """The tokenizer, which now puts a token before every text, as many do."""
    from tokenizers.processors import TemplateProcessing

    number = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", number)]
    )
    return tokenizer


@pytest.mark.parametrize("template", [True, False], ids=["chat template", "no template"])
def test_bare_is_the_string_as_a_trainer_of_plain_strings_tokenises_it(template: bool) -> None:
    tokenizer = with_start(policy_of(template).tokenizer)
    bare = renderer_for(tokenizer, (), "bare")
    assert bare.prompt(TEXT, None) == tokenizer(TEXT)["input_ids"]
    assert bare.prompt(TEXT, None)[0] == tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert (
        tokenizer.decode(bare.prompt(TEXT, "Be brief."), skip_special_tokens=True)
        == f"Be brief.\n\n{TEXT}"
    )
    assert tokenizer.decode(bare.reply("no\n", [5])) == "no\n"  # no second start of a text
    assert bare.stops == {tokenizer.eos_token_id}


def test_a_line_break_ends_no_bare_answer_and_log_probabilities_are_the_policys(file: str) -> None:
    policy, world = policy_of(template=False), Prompts(file=file, rendering="bare")
    broken = 0
    for run in policy.play(world, world.tasks("held-out", 8, 0), 8, SETTINGS, 0):
        drawn, (_, action) = run.steps[2].token_ids or (), run.actions[0]
        lines = [i for i, token in enumerate(drawn) if "\n" in policy.tokenizer.decode([token])]
        broken += any(i + 1 < len(drawn) for i in lines)
        whole = [token for step in run.steps for token in step.token_ids or ()]
        scored = policy.logprobs([whole], SETTINGS)[0][-len(drawn) :]
        assert scored == pytest.approx(action.logprobs, abs=1e-4)
    assert broken
    shell = Prompts(file=file)
    for run in policy.play(shell, shell.tasks("held-out", 8, 0), 8, SETTINGS, 0):
        assert not any(
            "\n" in policy.tokenizer.decode([token])
            for token in (run.steps[2].token_ids or ())[:-1]
        )


def test_the_option_is_checked_kept_and_part_of_the_identity(file: str) -> None:
    plain, bare = Prompts(file=file), Prompts(file=file, rendering="bare")
    check_environment(bare, ["nonsense"])
    assert dict(plain.options) == dict(
        Prompts(file=file, rendering="auto").options
    )  # older cases stay valid
    assert environment_key(plain) != environment_key(bare)
    assert {
        style_of(bare.spawn()),
        style_of(bare.without()),
        style_of(plain),
        style_of(MiniRepo()),
    } == {"bare", "auto"}
    with pytest.raises(UserError, match="'bear'; there are: auto, bare, shell"):
        Prompts(file=file, rendering="bear")


@pytest.mark.parametrize(
    "template,options,warned",
    [(CHAT_TEMPLATE, {}, 1), (CHAT_TEMPLATE, {"instructions": "full"}, 0), (None, {}, 0)],
    ids=["chat model", "told how to play", "small policy"],
)
def test_a_chat_model_in_a_world_of_another_language_is_warned_of_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    template: str | None,
    options: dict[str, str],
    warned: int,
) -> None:
    start = save_tiny_qwen3(tmp_path / "start", chat_template=template)
    world = MiniRepo(**options)
    require_context(start, world, world.tasks("held-out", 3, 0), 0, 2048)
    assert [text.partition(":")[0] for text in caplog.messages] == ["mini-repo"] * warned
    caplog.clear()
    recipe = parse_recipe(
        {
            "policy": {"checkpoint": str(start)},
            "environment": {"name": "mini-repo", "options": options},
            "grpo": {"steps": 0},
        },
        "test",
    )
    train_recipe(recipe, 0, tmp_path / "run", start, silent, "cpu")
    assert sum("prompts" in text for text in caplog.messages) == warned


def test_the_trainer_collects_bare_and_its_checkpoint_says_so(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(file).name
    start = save_tiny_qwen3(tmp_path / "start")
    recipe = parse_recipe(
        {
            "policy": {"checkpoint": str(start)},
            "environment": {"name": "prompts", "options": {"file": file, "rendering": "bare"}},
            "grpo": {"steps": 1, "groups": 2, "samples": 4},
            "sampling": {"max_turn_tokens": 6},
        },
        "test",
    )
    policy, world = (
        load_policy(start, device="cpu", dtype="float32"),
        Prompts(file=file, rendering="bare"),
    )
    grpo(policy, world, recipe, 0, tmp_path / "run")
    rows: list[TrainingRow] = list(TrainingRecord(tmp_path / "run").rows(0))
    for row in rows:
        prompt = (row.token_ids or ())[: row.step_starts[row.step_roles.index("assistant")]]
        assert policy.tokenizer.decode(prompt).startswith(f"Be brief.\n\n{TEXT}")
        assert policy.tokenizer.decode(prompt)[-1] in "0123456789"
    told = json.loads((tmp_path / "run" / "checkpoint" / "environment.json").read_text())
    assert told["options"]["rendering"] == "bare"
    hint = read_environment_hint(tmp_path / "run" / "checkpoint")
    assert hint and Path(hint.options["file"]).samefile(file), "not inside of the checkpoint"


def test_observations_are_tool_messages_where_the_world_says_so() -> None:
    """As the template renders the whole talk; without a template, one sentence."""
    tokenizer = tiny_tokenizer()
    talk = [
        {"role": "user", "content": "open 1"},
        {"role": "assistant", "content": "list"},
        {"role": "tool", "content": "0123<|im_end|>456"},
    ]
    renderer = renderer_for(tokenizer, (), "tool")
    action = tokenizer("list")["input_ids"]
    ids = [*renderer.prompt("open 1", None), *action]
    ids += renderer.reply(talk[-1]["content"], action)
    whole = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(ids) == whole
    assert ids.count(tokenizer.eos_token_id) == 3, "what the world writes is only characters"
    usual = renderer_for(tokenizer).reply("x", action)
    assert tokenizer.decode(usual).count("user") == 1 and renderer.stops == {tokenizer.eos_token_id}
    with pytest.raises(UserError, match="needs a chat template"):
        renderer_for(tiny_tokenizer(None), (), "tool")
