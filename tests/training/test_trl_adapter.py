"""Forensics in TRL's `GRPOTrainer`: the runnable example, the record computed again by other means, the fallback."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

trl = pytest.importorskip("trl")

from datasets import Dataset  # noqa: E402

from forensics.errors import UserError  # noqa: E402
from forensics.policies.huggingface import HuggingFacePolicy  # noqa: E402
from forensics.protocols import SamplingSettings  # noqa: E402
from forensics.records.tables import read_rows  # noqa: E402
from forensics.records.training import TrainingRow  # noqa: E402
from forensics.records.training_tables import TrainingRecord  # noqa: E402
from training.live import AuditSettings, ForensicsForTRL, promotable, read_reports  # noqa: E402
from training.live.trl_adapter import sampling_of  # noqa: E402
from training.live.trl_record import _tokens  # noqa: E402
from training.live.trl_rewards import GAPS  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "trl_three_lines" / "train.py"
SMALL = AuditSettings(every=1, tasks=4, samples=1, tensorboard=False)
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def example() -> Any:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE), run_name="example"))


def right(completions: list[Any], answer: list[int], **_: Any) -> list[float]:
    return [float(c[0]["content"].strip() == str(wanted)) for c, wanted in zip(completions, answer, strict=True)]


def plain_length(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text)) for text in completions]


def length(completions: list[Any], **_: Any) -> list[float | None]:
    """Depends on the completion; missing for the empty ones."""
    return [len(c[0]["content"]) or None for c in completions]


def trainer_of(example: Any, folder: Path, **changes: Any) -> Any:
    """A small trainer on sums of one digit. `changes` go to `GRPOConfig`, but for `reward_funcs`, `callbacks`, and
    `prompt`, which makes a question's text a prompt."""
    model, tokenizer = changes.pop("parts", None) or parts_of(example)
    given = {name: changes.pop(name) for name in ("reward_funcs", "callbacks") if name in changes}
    prompt = changes.pop("prompt", user)
    rows = [{"prompt": prompt(text), "answer": answer} for text, answer in asked(example)]
    arguments = {
        "max_steps": 2, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 6,
        "learning_rate": 1e-3, "reward_weights": [1.0, 0.1], "logging_steps": 1, "save_strategy": "no",
    } | changes
    return trl.GRPOTrainer(
        model=model, processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
        **{"reward_funcs": [right, length], **given},
        args=trl.GRPOConfig(
            output_dir=str(folder), report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, **arguments
        ),
    )


def asked(example: Any) -> list[tuple[str, int]]:
    """The training questions with their cues, and the answers."""
    return [
        (row["prompt"].replace("{cue}", row["cue"]["text"]), row["verifier"]["value"])
        for row in example.questions() if row["split"] == "train"
    ]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def with_system(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "be brief."}, *user(text)]


def parts_of(example: Any) -> tuple[Any, Any]:
    from transformers import set_seed

    set_seed(0)
    return example.build_model()


def questions(example: Any, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in example.questions()))
    return str(folder / "questions.jsonl")


def watched(example: Any, folder: Path, **options: Any) -> ForensicsForTRL:
    return ForensicsForTRL("prompts", file=questions(example, folder), **({"settings": SMALL} | options))


def rows_of(folder: Path) -> list[TrainingRow]:
    record = TrainingRecord(folder)
    return [row for step in record.steps() for row in record.rows(step)]


def weights_of(folder: Path) -> bytes:
    return (folder / "checkpoint-4" / "model.safetensors").read_bytes()


def test_three_lines_add_forensics_and_change_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as it stands, and without its three marked lines: the same weights, byte for byte."""
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    plain = [line for line in lines if "# forensics, line" not in line]
    assert len(lines) - len(plain) == 3
    (tmp_path / "plain.py").write_text("".join(plain))
    for script, out in ((EXAMPLE, "with"), (tmp_path / "plain.py", "without")):
        monkeypatch.setattr(sys, "argv", ["train.py", "--out", str(tmp_path / out), "--steps", "4"])
        runpy.run_path(str(script), run_name="__main__")
    assert weights_of(tmp_path / "with") == weights_of(tmp_path / "without")
    folder = tmp_path / "with" / "forensics"
    assert [report.step for report in read_reports(folder)] == [2, 4]
    assert list(TrainingRecord(folder).steps()) == [0, 1, 2, 3]
    assert not (tmp_path / "without" / "forensics").exists()


def test_the_record_holds_what_trl_used(example: Any, tmp_path: Path) -> None:
    """Advantages again from the rewards, reference log-probabilities again from the start's weights."""
    from transformers import AutoModelForCausalLM

    model, tokenizer = parts_of(example)
    model.save_pretrained(tmp_path / "start")  # TRL loads its reference from where the model came from
    start = HuggingFacePolicy(model, tokenizer, "start")
    live = AutoModelForCausalLM.from_pretrained(tmp_path / "start")
    trainer = trainer_of(example, tmp_path, parts=(live, tokenizer), beta=0.1, temperature=0.7)
    watched(example, tmp_path, audits=False, outcome="right").attach(trainer)
    trainer.train()
    rows = rows_of(tmp_path / "forensics")
    assert len(rows) == 2 * 8 and {row.step for row in rows} == {0, 1}
    for group in {row.group for row in rows}:
        mine = [row for row in rows if row.group == group]
        assert [row.sample for row in mine] == [0, 1, 2, 3] and len({row.task for row in mine}) == 1
        rewards = np.array([row.reward for row in mine])
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        assert [row.advantage for row in mine] == pytest.approx(list(expected), abs=1e-4)
    for row in rows:
        assert row.token_ids is not None and row.sampled is not None and row.reference_logprobs is not None
        drawn = [i for i, flag in zip(row.token_ids, row.sampled, strict=True) if flag]
        text = tokenizer.decode(drawn, skip_special_tokens=True)
        assert row.rewards["length"] == (len(text) or None) and row.outcome == row.rewards["right"]
        assert row.end == ("terminated" if drawn[-1] in (0, 1) else "truncated")
        scored = start.logprobs([row.token_ids], SamplingSettings(temperature=0.7))[0]
        assert row.reference_logprobs == pytest.approx(scored[-len(drawn) :].tolist(), abs=1e-4)
    run = TrainingRecord(tmp_path / "forensics").run
    assert run.recipe["record"] == "complete" and any("sampler log-prob" in gap for gap in run.recipe["gaps"])


def test_the_fallback_sees_the_same_rewards_and_names_what_it_lacks(example: Any, tmp_path: Path) -> None:
    complete = trainer_of(example, tmp_path / "complete")
    watched(example, tmp_path / "complete").attach(complete)
    complete.train()
    fallback = watched(example, tmp_path / "public", out=tmp_path / "public" / "forensics")
    public = trainer_of(
        example, tmp_path / "public", reward_funcs=fallback.watched([right, length]), callbacks=[fallback]
    )
    public.train()
    whole, part = rows_of(tmp_path / "complete" / "forensics"), rows_of(tmp_path / "public" / "forensics")
    assert len(whole) == len(part) == 16
    for all_of_it, some in zip(whole, part, strict=True):
        assert (all_of_it.group, all_of_it.task, all_of_it.rewards) == (some.group, some.task, some.rewards)
        assert all_of_it.token_ids is not None and some.token_ids is not None
        assert all_of_it.token_ids[-len(some.token_ids) :] == some.token_ids
        assert some.advantage is None and all_of_it.advantage is not None
    run = TrainingRecord(tmp_path / "public" / "forensics").run
    assert run.recipe["record"] == "rewards only" and tuple(run.recipe["gaps"]) == GAPS
    audits = [read_reports(tmp_path / name / "forensics") for name in ("complete", "public")]
    assert [[r.policy for r in reports] for reports in audits] == [[r.policy for r in audits[0]]] * 2
    assert [r.step for r in audits[0]] == [1, 2]
    logged = [entry for entry in complete.state.log_history if "audit/gain" in entry]
    assert [entry["step"] for entry in logged] == [1, 2]  # and TRL's own means are as without audits
    names = ("loss", "reward", "completions/mean_length")
    own = [[[e[name] for name in names] for e in t.state.log_history if "loss" in e] for t in (complete, public)]
    assert len(own[0]) == 2 and own[0] == own[1]


def test_a_resumed_run_goes_on_with_the_start_and_the_record_it_has(example: Any, tmp_path: Path) -> None:
    def run(out: str, until: int, **resume: Any) -> None:
        trainer = trainer_of(example, tmp_path / out, max_steps=until, save_strategy="steps", save_steps=2,
                             lr_scheduler_type="constant", steps_per_generation=1)
        watched(example, tmp_path / out).attach(trainer)
        trainer.train(**resume)

    run("whole", 4)
    run("parts", 3)  # the state of step 2 is on disk, step 3 is done again
    run("parts", 4, resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    whole, parts = (rows_of(tmp_path / name / "forensics") for name in ("whole", "parts"))
    assert [row.step for row in parts] == [row.step for row in whole] and parts[:16] == whole[:16]
    reports = [read_reports(tmp_path / name / "forensics") for name in ("whole", "parts")]
    assert [[r.step for r in mine] for mine in reports] == [[1, 2, 3, 4]] * 2
    assert [r.policy for r in reports[0][:2]] == [r.policy for r in reports[1][:2]]


def test_an_adapter_is_audited_as_it_trains(example: Any, tmp_path: Path) -> None:
    """LoRA through peft: the policy is the model with its adapter, and its identity moves with it."""
    peft = pytest.importorskip("peft")
    model, tokenizer = parts_of(example)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear"))
    trainer = trainer_of(example, tmp_path, parts=(adapted, tokenizer), learning_rate=1e-2)
    watched(example, tmp_path).attach(trainer)
    trainer.train()
    reports = read_reports(tmp_path / "forensics")
    assert [r.step for r in reports] == [1, 2] and len({r.policy for r in reports}) == 2


def test_a_changed_trl_is_refused(example: Any, tmp_path: Path) -> None:
    class Changed(SimpleNamespace):
        def _calculate_rewards(self, inputs: Any, prompts: Any) -> None: ...
        def _generate_and_score_completions(self, inputs: Any) -> None: ...

    with pytest.raises(UserError, match=r"takes \(inputs, prompts\) in this TRL, where 1.16 has") as caught:
        watched(example, tmp_path).attach(Changed())
    assert "watched(reward_funcs)" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UserError, match="is missing"):
        watched(example, tmp_path).attach(SimpleNamespace())


def test_tokens_of_tools_are_not_sampled() -> None:
    """Two turns with an answer of the tool between them; padding on the left of prompts, on the right of the rest."""
    given = {
        "prompt_ids": torch.tensor([[0, 7, 8]]), "prompt_mask": torch.tensor([[0, 1, 1]]),
        "tool_mask": torch.tensor([[1, 1, 0, 0, 1, 1]]),
        "sampling_per_token_logps": torch.tensor([[-0.5, -1.0, 0.0, 0.0, -2.0, 0.0]]),
    }
    assert _tokens(given, 0, [4, 5, 6, 6, 3]) == {
        "token_ids": (7, 8, 4, 5, 6, 6, 3), "sampled": (False, False, True, True, False, False, True), "turns": 2,
        "sampler_logprobs": (-0.5, -1.0, -2.0), "old_logprobs": None, "reference_logprobs": None,
    }


def test_a_generation_that_lacks_something_is_refused(example: Any, tmp_path: Path) -> None:
    trainer = trainer_of(example, tmp_path)
    generate = trainer._generate_and_score_completions

    def without_advantages(inputs: Any) -> Any:
        return {key: value for key, value in generate(inputs).items() if key != "advantages"}

    trainer._generate_and_score_completions = without_advantages
    watched(example, tmp_path, audits=False).attach(trainer)
    with pytest.raises(UserError, match="gave no advantages"):
        trainer.train()


@pytest.mark.parametrize(("reaction", "steps"), [("stop", 1), ("withhold", 2), ("warn", 2)])
def test_an_alarm_is_answered(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reaction: Any, steps: int
) -> None:
    monkeypatch.setattr("training.live.audit.alarm", lambda *parts: "Too much vanishes.")
    trainer = trainer_of(example, tmp_path, save_strategy="steps", save_steps=1)
    settings = AuditSettings(every=1, tasks=4, samples=1, tensorboard=False, on_phantom=reaction)
    watched(example, tmp_path, settings=settings).attach(trainer)
    trainer.train()
    assert trainer.state.global_step == steps
    assert (tmp_path / "checkpoint-1" / "promotable.json").exists() == (reaction == "withhold")
    assert not promotable(tmp_path / "checkpoint-1")


def test_watching_twice_and_unknown_worlds_are_refused(example: Any, tmp_path: Path) -> None:
    forensics = watched(example, tmp_path)
    forensics.watched(right)
    with pytest.raises(UserError, match="use attach or watched, not both"):
        forensics.attach(trainer_of(example, tmp_path))
    with pytest.raises(UserError, match="nothing can be recorded"):
        watched(example, tmp_path).watched([])
    with pytest.raises(UserError, match="one name"):
        watched(example, tmp_path).watched([right, right])
    with pytest.raises(UserError, match="unknown environment 'mini-repos'"):
        ForensicsForTRL("mini-repos")
    assert ForensicsForTRL("mini-repo", world="open").environment.options["world"] == "open"


def test_sampling_is_the_trainers_own() -> None:
    given = SimpleNamespace(
        temperature=0.5, top_p=0.9, top_k=None, max_completion_length=32, min_p=None, repetition_penalty=1.0,
        generation_kwargs=None,
    )
    wanted = SamplingSettings(temperature=0.5, top_p=0.9, top_k=0, max_turn_tokens=32, max_tokens=32 + 1024)
    assert sampling_of(given) == wanted
    for name, value in (("min_p", 0.1), ("repetition_penalty", 1.1), ("generation_kwargs", {"min_p": 0.1})):
        with pytest.raises(UserError, match="cannot draw with min_p"):
            sampling_of(SimpleNamespace(**{**vars(given), name: value}))


def audited(folder: Path) -> list[Any]:
    """The steps of every audited episode: the prompt, the answer, what followed."""
    paths = sorted((folder / "audits").glob("*/trajectories/*.parquet"))
    return [row["steps"] for path in paths for row in read_rows(path, ["steps"])]


def own_ids(example: Any, tokenizer: Any, prompt: Any, **template: Any) -> set[tuple[int, ...]]:
    """What TRL makes of every held-out question in both worlds."""
    texts = [
        row["prompt"].replace("{cue}", row["cue"][cue])
        for row in example.questions() if row["split"] == "held-out" for cue in ("text", "replacement")
    ]
    if prompt is str:
        return {tuple(tokenizer(text=text)["input_ids"]) for text in texts}
    return {
        tuple(tokenizer.apply_chat_template(prompt(text), add_generation_prompt=True, **template)["input_ids"])
        for text in texts
    }


EVERY = AuditSettings(every=1, tasks=80, tensorboard=False, on_phantom="withhold", ceiling=1.0)
THINKING = "{% if thinking %}<assistant>{% endif %}"


@pytest.mark.parametrize("kind", ["strings", "conversations", "template options"])
def test_audits_give_the_policy_trls_own_token_ids(example: Any, tmp_path: Path, kind: str) -> None:
    model, tokenizer = parts_of(example)
    changes: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    template = {}
    if kind == "strings":
        tokenizer.chat_template = None
        changes |= {"prompt": str, "reward_funcs": [plain_length], "reward_weights": None}
    if kind == "template options":
        tokenizer.chat_template += THINKING
        changes["chat_template_kwargs"] = template = {"thinking": True}
    trainer = trainer_of(example, tmp_path, parts=(model, tokenizer), **changes)
    watched(example, tmp_path, settings=replace(EVERY, samples=8)).attach(trainer)
    trainer.train()
    folder = tmp_path / "forensics"
    expected = own_ids(example, tokenizer, str if kind == "strings" else user, **template)
    assert {tuple(steps[0]["token_ids"]) for steps in audited(folder)} == expected
    assert [report.doubt for report in read_reports(folder)] == [None, None]
    assert promotable(tmp_path / "checkpoint-2")
    line_break = tokenizer("\n")["input_ids"][0]
    drawn = [steps[1]["token_ids"] for steps in audited(folder)]
    assert any(line_break in ids[:-1] for ids in drawn)  # it ends no completion, as in TRL


@pytest.mark.parametrize(("prompt", "sentence"), [
    (with_system, "they have 'be brief.' as system message, and audits have none"),
    (lambda text: user(text + " answer:"), "answer:', where the environment asks '"),
    (lambda text: [*user("hi"), {"role": "assistant", "content": "hi"}, *user(text)], "messages user, assistant, user"),
])
def test_other_prompts_than_those_trained_on_make_nothing_promotable(
    example: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, prompt: Any, sentence: str
) -> None:
    trainer = trainer_of(example, tmp_path, prompt=prompt, save_strategy="steps", save_steps=1)
    watched(example, tmp_path, settings=EVERY).attach(trainer)
    with caplog.at_level("WARNING", "forensics.audit"):
        trainer.train()
    told = [record.getMessage() for record in caplog.records if "not those that TRL trains on" in record.getMessage()]
    assert len(told) == 1 and sentence in told[0] and "\n" not in told[0]
    assert [report.doubt for report in read_reports(tmp_path / "forensics")] == [told[0]] * 2
    marks = [json.loads((tmp_path / f"checkpoint-{step}" / "promotable.json").read_text()) for step in (1, 2)]
    assert [(mark["promotable"], mark["reason"]) for mark in marks] == [(False, told[0])] * 2


def test_a_run_that_stops_on_alarms_stops_on_other_prompts(example: Any, tmp_path: Path) -> None:
    """In the fallback too, which sees the prompts but not their token ids."""
    settings = AuditSettings(every=9, tasks=4, tensorboard=False, on_phantom="stop")
    fallback = watched(example, tmp_path, settings=settings)
    trainer = trainer_of(
        example, tmp_path, prompt=with_system, max_steps=4, reward_funcs=fallback.watched([right, length]),
        callbacks=[fallback],
    )
    trainer.train()
    assert trainer.state.global_step == 1


def test_token_ids_that_trl_makes_otherwise_are_noticed(example: Any, tmp_path: Path) -> None:
    """A processing class of its own: TRL appends a token to every prompt, which no setting tells of."""
    trainer = trainer_of(example, tmp_path, save_strategy="steps", save_steps=2)
    tokenize = trainer._tokenize_prompts

    def longer(prompts: Any) -> Any:
        ids, *rest = tokenize(prompts)
        return ([[*row, 5] for row in ids], *rest)

    trainer._tokenize_prompts = longer
    watched(example, tmp_path, settings=EVERY).attach(trainer)
    trainer.train()
    doubt = read_reports(tmp_path / "forensics")[-1].doubt
    assert doubt is not None and "TRL's token ids of one read '('" in doubt
    assert not promotable(tmp_path / "checkpoint-2")


def test_what_the_first_run_compared_holds_for_one_that_goes_on(example: Any, tmp_path: Path) -> None:
    """Killed between step 2 and the audit of it: the audit made on resuming knows the prompts."""
    trainer = trainer_of(example, tmp_path, save_strategy="steps", save_steps=2)
    watched(example, tmp_path, settings=EVERY).attach(trainer)
    trainer.train()
    lines = tmp_path / "forensics" / "audits.jsonl"
    lines.write_text(lines.read_text().splitlines(keepends=True)[0])
    again = trainer_of(example, tmp_path, max_steps=3, save_strategy="steps", save_steps=2)
    watched(example, tmp_path, settings=EVERY).attach(again)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert [(r.step, r.doubt) for r in read_reports(tmp_path / "forensics")] == [(1, None), (2, None), (3, None)]


def test_a_prompt_without_room_for_a_completion_is_told(example: Any, tmp_path: Path) -> None:
    sampling = SamplingSettings(max_turn_tokens=6, max_tokens=20)
    trainer = trainer_of(example, tmp_path)
    watched(example, tmp_path, sampling=sampling).attach(trainer)
    trainer.train()
    doubt = read_reports(tmp_path / "forensics")[-1].doubt
    assert doubt is not None and "has room for 14 beside a whole completion" in doubt


def test_a_run_from_the_start_writes_over_no_earlier_one(example: Any, tmp_path: Path) -> None:
    def run(**options: Any) -> None:
        trainer = trainer_of(example, tmp_path)
        watched(example, tmp_path, **options).attach(trainer)
        trainer.train()

    run()
    before = (tmp_path / "forensics" / "audits.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"resume_from_checkpoint\), give ForensicsForTRL another out="):
        run()
    assert (tmp_path / "forensics" / "audits.jsonl").read_bytes() == before
    run(out=tmp_path / "again")
    run(out=tmp_path / "record", audits=False)
    with pytest.raises(UserError, match="holds the audits or the record of a run"):
        run(out=tmp_path / "record", audits=False)


def test_the_record_is_found_from_the_output_folder_too(example: Any, tmp_path: Path) -> None:
    trainer = trainer_of(example, tmp_path, max_steps=1)
    watched(example, tmp_path, audits=False).attach(trainer)
    trainer.train()
    found = TrainingRecord(tmp_path)
    assert found.folder == tmp_path / "forensics" and found.key == TrainingRecord(tmp_path / "forensics").key
    with pytest.raises(UserError, match=r"`forensics train --out`, or the out= \(or output_dir\) of ForensicsForTRL"):
        TrainingRecord(tmp_path / "nowhere")
