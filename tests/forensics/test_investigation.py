"""`investigate`: planted causes get their label, and a case is a folder that
may be killed at any moment.
"""

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from forensics import Budget, SamplingSettings, UserError, investigate
from tests.forensics.scripted import SCORE_ALONE, Desk, Script, killed, write_questions

# -- planted truth ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [
        (Script(0.3), Script(0.3, copies=True), "phantom"),
        (Script(0.3), Script(0.8), "genuine"),
        pytest.param(Script(0.3), Script(0.6, copies=True), "mixed", marks=pytest.mark.slow),
        pytest.param(Script(0.7), Script(0.3), "regression", marks=pytest.mark.slow),
    ],
)
def test_a_planted_cause_gets_its_label(
    before: Script, after: Script, label: str, desk: Desk
) -> None:
    write_questions(desk.stage.questions, 400)
    sides = [
        desk.stage.checkpoint(f"planted-{i}", script, desk.like)
        for i, script in enumerate((before, after))
    ]
    accepted = ["memory", "regrading", "sufficiency"]
    allowed = ["answer", "rule:last-number"]  # which is all that is asked for
    terms = {"allow": allowed, "accept": accepted}  # no row names its question
    budget = Budget(tasks=400, samples=2)
    verdict = desk.investigate(before=sides[0], after=sides[1], budget=budget, **terms)
    assert verdict.label == label
    written = desk.case()["verdict"]
    assert (written["allowed"], written["accepted"]) == (allowed, accepted)
    assert "rule:last-number are allowed and that memory, regrading" in verdict.sentence
    if label == "genuine":
        default = desk.investigate(before=sides[0], after=sides[1], budget=budget, resume=True)
        assert (default.label, default.reason_code) == ("undetermined", "source-not-allowed")
        assert "The last number is right on 400 of 400 tasks" in default.sentence
    gain = (1.0 if after.copies else after.skill) - (1.0 if before.copies else before.skill)
    assert verdict.gain is not None and verdict.gain.low - 0.02 <= gain <= verdict.gain.high + 0.02
    genuine = after.skill - before.skill
    assert verdict.genuine_gain is not None
    assert verdict.genuine_gain.low - 0.02 <= genuine <= verdict.genuine_gain.high + 0.02


@SCORE_ALONE
def test_several_afters_are_seeds_of_one_recipe(desk: Desk) -> None:
    other = desk.stage.checkpoint("other", Script(0.3, copies=True), desk.like)
    desk.investigate(after=[desk.after, other])
    assert {identity for identity, _, _ in desk.stage.played} == set(desk.stage.scripts)
    assert len(desk.case()["inputs"]["after"]) == 2
    twin = shutil.copytree(desk.after, desk.out.parent / "twin")
    assert "same weights" in desk.refusal(after=[desk.after, twin], out=desk.out.parent / "new")


# -- the case folder -------------------------------------------------------------------


def test_a_case_folder_keeps_its_contract(desk: Desk) -> None:
    """Unknown and missing keys are refused by the schema, so it holds for every key written."""
    from forensics.records.case_file import CaseFile
    from forensics.records.finding import Finding
    from forensics.schemas import schemas

    verdict = desk.investigate()
    case = desk.case()
    CaseFile.model_validate(case)
    assert case["schema_version"] == 1 and case["status"] == "complete"
    assert case["verdict"] == verdict.model_dump(mode="json")
    for part in ("gain", "genuine_gain", "phantom_gain"):
        assert set(case["verdict"][part]) == {"estimate", "low", "high", "level"}
    share = case["verdict"]["share_of_wins_via_channel"]["answer-key"]
    assert share["low"] <= share["estimate"] <= share["high"]
    assert case["verdict"]["reasons"] and isinstance(case["verdict"]["gaps"], list)
    inputs, known = case["inputs"], schemas()
    assert inputs["seed"] == 0 and set(inputs["budget"]) == set(known["Budget"]["properties"])
    world = inputs["environment"]
    assert set(world["options"]) == {"content"}
    assert world["given"] == {"file": str(desk.stage.questions)}
    told = set(known["Channel"]["properties"]) - {"marked"}  # stated only where it is false
    assert set(world["channels"][0]) == told
    assert inputs["before"]["weights"] != inputs["after"][0]["weights"]
    assert case["provenance"]["hashes"]["before"] == inputs["before"]["weights"][:16]
    assert {"score", "behaviour"} <= set(case["provenance"]["instruments"])
    assert not {"Record", "VersionedRecord"} & set(known)
    lines = (desk.out / "findings.jsonl").read_text().splitlines()
    rows = [Finding.model_validate_json(line) for line in lines]
    assert {(row.channel, row.obtained_steps, row.credited, row.level) for row in rows} == {
        ("answer-key", (0,), None, "obtained")  # the prompt shows it, so that nobody can tell
    }
    told = [json.loads(line) for line in desk.evidence().splitlines()]
    keys = [(one["layer"], one["question"], one["about"] or "") for one in told]
    assert keys == sorted(keys) and len({key[0] for key in keys}) > 1


def test_the_same_case_gives_the_same_bytes_wherever_it_lies(desk: Desk, tmp_path: Path) -> None:
    desk.investigate()
    (tmp_path / "far" / "away").mkdir(parents=True)
    moved = shutil.move(desk.before, tmp_path / "far" / "away" / "b")
    questions = shutil.copy(desk.stage.questions, tmp_path / "far" / "other.jsonl")
    other = tmp_path / "far" / "case"
    desk.investigate(before=moved, environment_options={"file": str(questions)}, out=other)
    assert desk.evidence() == desk.evidence(other)
    assert (desk.out / "findings.jsonl").read_bytes() == (other / "findings.jsonl").read_bytes()
    assert str(tmp_path).encode() not in desk.evidence() and b"/tmp" not in desk.evidence()


# -- interrupted and resumed -----------------------------------------------------------


@pytest.mark.parametrize(
    "last", [3, *(pytest.param(last, marks=pytest.mark.slow) for last in (0, 6))]
)
@SCORE_ALONE
def test_a_killed_run_goes_on_with_nothing_done_twice(
    last: int, desk: Desk, tmp_path: Path
) -> None:
    """100 tasks are two chunks; two checkpoints in two worlds: eight plays in all."""
    whole = tmp_path / "whole"
    desk.investigate(out=whole)
    assert len(desk.stage.played) == 8
    desk.stage.played.clear()

    def stop(number: int, done: int) -> None:
        if number == last and done == 20:
            os._exit(9)

    desk.stage.before_trajectory = stop
    assert killed(desk.investigate) == 9
    assert desk.case()["verdict"] is None and desk.case()["status"] == "running"
    assert len(list((desk.out / "trajectories").glob("*.parquet"))) == last
    assert list(desk.out.rglob(".*.draft"))  # the half-written chunk

    desk.stage.before_trajectory = lambda number, done: None
    assert (
        desk.investigate(resume=True).label
        == json.loads((whole / "case.json").read_text())["verdict"]["label"]
    )
    assert len(desk.stage.played) == 8 - last and len(set(desk.stage.played)) == 8 - last
    assert desk.evidence() == desk.evidence(whole)
    assert not list(desk.out.rglob(".*.draft"))


@pytest.mark.parametrize("resume", [True, False])
@SCORE_ALONE
def test_a_run_killed_while_it_wrote_its_first_file(
    resume: bool, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forensics.records import files

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", lambda handle: os._exit(9))
        assert killed(desk.investigate) == 9
    assert [path.suffix for path in desk.out.iterdir()] == [".draft"]
    assert desk.investigate(resume=resume).gain is not None
    assert not list(desk.out.rglob(".*.draft"))


def test_a_resumed_case_keeps_the_answers_of_finished_instruments(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forensics.instruments import Instrument
    from forensics.investigation import concluded as run

    measured: list[str] = []
    measure = run.run_instrument

    def counted(tool: Instrument, case: Any) -> Any:
        if tool.name == "score" and not measured.count("stop"):
            measured.append("stop")
            raise RuntimeError("killed here")
        measured.append(tool.name)
        yield from measure(tool, case)

    monkeypatch.setattr(run, "run_instrument", counted)
    names = ["behaviour", "kl", "score"]
    with pytest.raises(RuntimeError):
        desk.investigate(instruments=names)
    desk.investigate(instruments=names, resume=True)
    assert sorted(name for name in measured if name != "stop") == names
    assert not (desk.out / "answers").exists()


def test_instruments_are_chosen_and_what_is_left_out_is_no_good_news(desk: Desk) -> None:
    verdict = desk.investigate(instruments=["score"])
    told = json.loads((desk.out / "case.json").read_text())["provenance"]["instruments"]
    assert set(told) == {"score"}
    assert verdict.gain is not None
    open_ones = " ".join(gap.text for gap in verdict.gaps)
    assert verdict.label == "undetermined" and "echo_trap` was not measured" in open_ones


def test_an_instrument_that_is_not_there_is_refused_before_a_folder_is_made(desk: Desk) -> None:
    with pytest.raises(UserError, match="there is no instrument nix; known: ablation, audit"):
        desk.investigate(instruments=["nix"])
    assert not desk.out.exists()


@SCORE_ALONE
def test_a_complete_case_resumes_to_itself(desk: Desk) -> None:
    first, bytes_before = desk.investigate(), desk.evidence()
    desk.stage.played.clear()
    assert desk.investigate(resume=True) == first
    assert desk.stage.played == [] and desk.evidence() == bytes_before


@SCORE_ALONE
def test_resuming_with_a_checkpoint_that_moved(desk: Desk, tmp_path: Path) -> None:
    desk.stage.before_play = lambda number: os._exit(9) if number == 2 else None
    assert killed(desk.investigate) == 9
    desk.stage.before_play = lambda number: None
    moved = shutil.move(desk.after, tmp_path / "moved")
    desk.investigate(after=moved, resume=True)
    assert desk.case()["inputs"]["after"][0]["path"] == str(moved)
    assert len(desk.stage.played) == 6


@SCORE_ALONE
def test_resuming_something_else_is_refused(desk: Desk) -> None:
    desk.investigate()
    other = desk.stage.checkpoint("other", Script(0.5), desk.like)
    bytes_before = desk.evidence()
    for changes, says in (
        ({"seed": 3}, "seed 0, not 3"),
        ({"budget": Budget(tasks=100, samples=2)}, "samples 1, not 2"),
        ({"budget": Budget(tasks=90, samples=1)}, "tasks 100, not 90"),
        ({"backend": "nnsight"}, "the backend none, not nnsight"),
        ({"after": other}, "the after checkpoint number 1"),
        ({"before": other}, "the before checkpoint"),
        ({"after": [desk.after, other]}, "the after checkpoint number 2"),
        (
            {"environment_options": {"file": str(write_questions(desk.out.parent / "q", 101))}},
            "environment options",
        ),
    ):
        message = desk.refusal(resume=True, **changes)
        assert says in message and "--force" in message
    assert desk.evidence() == bytes_before
    assert "was started with the after checkpoint number 2" in _shrunk(desk, other)


def _shrunk(desk: Desk, other: Path) -> str:
    out = desk.out.parent / "two"
    desk.investigate(after=[desk.after, other], out=out)
    return desk.refusal(out=out, resume=True)


# -- folders ---------------------------------------------------------------------------


@SCORE_ALONE
def test_a_folder_that_holds_something(desk: Desk) -> None:
    desk.out.mkdir()
    (desk.out / "notes.txt").write_text("mine")
    assert "not empty" in desk.refusal()
    assert "nothing can be resumed" in desk.refusal(resume=True)
    assert "exclude each other" in desk.refusal(resume=True, force=True)
    desk.investigate(force=True)
    assert (desk.out / "notes.txt").read_text() == "mine"
    assert "not empty" in desk.refusal()


@SCORE_ALONE
def test_force_starts_over_but_only_with_good_input(desk: Desk) -> None:
    desk.investigate()
    stale = desk.out / "trajectories" / "stale.parquet"
    stale.write_text("")
    assert "does not exist" in desk.refusal(force=True, before=desk.out / "nowhere")
    assert stale.exists() and desk.case()["verdict"] is not None
    desk.stage.played.clear()
    desk.investigate(force=True)
    assert not stale.exists() and len(desk.stage.played) == 8


def test_bad_places(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file" in desk.refusal(out=tmp_path / "file")
    assert "below a file" in desk.refusal(out=tmp_path / "file" / "case")
    assert "is a checkpoint directory" in desk.refusal(out=desk.before, force=True)
    for changes in (
        {"before": tmp_path / "no", "environment": None},
        {"after": [desk.after, tmp_path / "no"]},
    ):
        assert "no does not exist" in desk.refusal(**changes, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@SCORE_ALONE
def test_two_runs_do_not_share_a_folder(desk: Desk) -> None:
    desk.out.mkdir()
    handle = os.open(desk.out, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert "another run is writing" in desk.refusal()
    os.close(handle)
    desk.investigate(resume=True)  # where nothing was begun


@pytest.mark.parametrize("place", ["json", "parquet"])
@SCORE_ALONE
def test_a_full_disk_leaves_a_case_that_resumes(
    place: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    from forensics.records import files

    def full(*args: Any, **kwargs: Any) -> None:
        if place == "parquet" or (desk.out / "case.json").exists():
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if place == "json":
            patch.setattr(files.os, "fsync", full)
        else:
            patch.setattr(pq.ParquetWriter, "write_table", full)
        assert "no space left" in desk.refusal()
    assert desk.case()["status"] == "running"
    desk.investigate(resume=True)


# -- inputs ----------------------------------------------------------------------------


@SCORE_ALONE
def test_the_environment_comes_from_the_before_directory(desk: Desk) -> None:
    from training.environments.prompts import Prompts

    assert "--env" in desk.refusal(environment=None, environment_options={})
    hint = {"name": "prompts", "options": {"file": str(desk.stage.questions)}}
    (desk.before / "environment.json").write_text(json.dumps(hint))
    desk.investigate(environment=None, environment_options={})
    content = desk.case()["inputs"]["environment"]["options"]["content"]
    other = write_questions(desk.out.parent / "other.jsonl", 120)
    desk.investigate(environment=None, environment_options={"file": str(other)}, force=True)
    assert desk.case()["inputs"]["environment"]["options"]["content"] != content
    assert "no option 'colour'" in desk.refusal(
        environment=None, environment_options={"colour": "1"}, force=True
    )
    assert "unknown environment 'chess'" in desk.refusal(environment="chess", force=True)
    told = desk.refusal(environment="chess", force=True)
    assert "mini-repo, openenv, prompts" in told
    world = Prompts(file=str(other))
    assert "options belong" in desk.refusal(environment=world, force=True)
    desk.investigate(environment=world, environment_options=None, force=True)


def test_options_that_a_strangers_constructor_does_not_take(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forensics.investigation import inputs

    class Strange:
        def __init__(self, *, size: str = "3") -> None: ...

    monkeypatch.setattr(inputs, "load_plugin", lambda group, name: Strange)
    assert "it has: size" in desk.refusal(
        environment="strange", environment_options={"colour": "red"}
    )

    def missing(group: str, name: str) -> Any:
        raise ImportError("No module named 'gone'")

    monkeypatch.setattr(inputs, "load_plugin", missing)
    assert "cannot be loaded" in desk.refusal(environment="strange", environment_options={})


def test_what_a_world_wants_known_is_said(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Ten of forty questions are held out: said once while it runs, and in the report."""
    rows = [json.loads(line) for line in desk.stage.questions.read_text().splitlines()][:40]
    lines = [
        json.dumps(row | {"split": "held-out" if i < 10 else "train"}) + "\n"
        for i, row in enumerate(rows)
    ]
    desk.stage.questions.write_text("".join(lines))
    desk.investigate(formats=("md", "html"), instruments=["score"])
    assert caplog.text.count("10 of 40 questions are held out; the others state `train`") == 1
    for name in ("report.md", "report.html"):
        assert "10 of 40 questions are held out" in (desk.out / name).read_text()


def test_two_tokenizers_are_refused_by_what_differs(desk: Desk) -> None:
    template = desk.after / "chat_template.jinja"
    template.write_text(template.read_text() + "!")
    assert "differ in the chat template" in desk.refusal()


def test_every_checkpoint_is_checked_before_anything_is_played(desk: Desk) -> None:
    """The after side's config belongs to another model; nothing of the before
    side was played for it.
    """
    config = json.loads((desk.after / "config.json").read_text())
    (desk.after / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))
    assert "do not belong together" in desk.refusal()
    assert desk.stage.played == [] and not desk.out.exists()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tasks", ["x", 2.5, 0, -1, None, True]),
        ("samples", ["x", 2.5, 0]),
        ("temperature", [-0.1, 101, float("nan"), "hot"]),
        ("top_p", [0, 1.1, None]),
        ("top_k", [-1, 0.5]),
        ("max_turn_tokens", [0, 1.5]),
        ("max_tokens", [1, "many"]),
    ],
)
def test_a_budget_is_valid_once_built(name: str, values: list[Any]) -> None:
    for value in values:
        given = (
            {name: value}
            if name in ("tasks", "samples")
            else {"settings": SamplingSettings(**{name: value})}
        )
        with pytest.raises(
            UserError, match=rf"^{name.replace('_', '-')} is .* and must be a .*number"
        ) as error:
            Budget(**given)
        assert repr(value) in str(error.value) and "\n" not in str(error.value)
    Budget(
        tasks=1, samples=1, settings=SamplingSettings(temperature=0, top_p=1, top_k=0, max_tokens=2)
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("seed", ["a", None, 1.5, -1, 2**63, True]),
        ("before", [3]),
        ("after", [3, [None]]),
        ("out", [None, 3]),
        ("environment", [3, object()]),
        ("environment_options", ["file=x", {"file": 3}]),
        ("budget", [100, {"tasks": 3}]),
        ("training", [3]),
        ("recipe", [3]),
        ("device", [None, 0]),
    ],
)
def test_arguments_of_another_kind(name: str, values: list[Any], desk: Desk) -> None:
    for value in values:
        assert desk.refusal(**{name: value}).startswith(f"{name} is ")
    assert not desk.out.exists()


@SCORE_ALONE
def test_devices(desk: Desk) -> None:
    import torch

    assert "no device 'gpu'" in desk.refusal(device="gpu")
    if not torch.cuda.is_available():
        assert "not available" in desk.refusal(device="cuda")
        desk.investigate(device="auto")
        assert desk.case()["provenance"]["device"] == "cpu"


# -- prompts that leave no room --------------------------------------------------------


@SCORE_ALONE
def test_a_checkpoint_with_too_few_positions_for_any_prompt_is_refused(desk: Desk) -> None:
    config = desk.before / "config.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"max_position_embeddings": 10}))
    assert "was made for 10 positions, so no action fits" in desk.refusal()
    config.write_text(json.dumps(content))
    desk.investigate()


@SCORE_ALONE
def test_a_budget_that_no_prompt_fits_is_refused(desk: Desk) -> None:
    """The shortest prompt of the file is known by tokenising it; the budget of
    just that many tokens is refused.
    """
    from transformers import AutoTokenizer

    def budget(tokens: int) -> Budget:
        return Budget(tasks=150, samples=1, settings=SamplingSettings(max_tokens=tokens))

    tokenizer = AutoTokenizer.from_pretrained(desk.before)
    rows = [json.loads(line) for line in desk.stage.questions.read_text().splitlines()]
    shortest = min(
        len(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": row["prompt"].format(cue=row["cue"]["text"])}],
                add_generation_prompt=True,
                return_dict=True,
            )["input_ids"]
        )
        for row in rows
    )
    said = desk.refusal(budget=budget(10))
    assert said.startswith(
        f"the shortest prompt has {shortest} tokens and --max-tokens is 10, so no action fits"
    )
    assert desk.stage.played == [] and not desk.out.exists()
    assert "--max-tokens" in desk.refusal(budget=budget(shortest))
    desk.investigate(budget=budget(shortest + 1))


@pytest.mark.parametrize(
    "long_ones", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 3))]
)
def test_runs_that_never_acted_are_no_losses(long_ones: int, tmp_path: Path) -> None:
    """A real checkpoint against itself, by whose prompts a known number of
    tasks in 100 never acts.
    """
    from tests.tiny import save_tiny_qwen3

    model = save_tiny_qwen3(tmp_path / "model")
    rows = [
        {
            "prompt": f"{{cue}} {i}{' long' * 60 * (i < long_ones)}",
            "split": "held-out",
            "verifier": {"type": "exact", "value": "?"},
            "cue": {"text": "a", "replacement": "b", "channel": "key"},
        }
        for i in range(100)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = SamplingSettings(max_tokens=60, max_turn_tokens=3)
    verdict = investigate(
        model,
        model,
        "prompts",
        environment_options={"file": str(tmp_path / "rows.jsonl")},
        budget=Budget(tasks=100, samples=1, settings=settings),
        out=tmp_path / "case",
        device="cpu",
        formats=("html",),
    )
    named = [gap.text for gap in verdict.gaps if "never acted" in gap.text]
    share = f"{long_ones}"
    assert bool(named) == bool(long_ones)
    if long_ones:
        assert f"{share} % of the runs before training and {share} % of those after" in named[0]
    assert verdict.label == ("undetermined" if long_ones > 1 else "noise")
    assert (verdict.gain is None) == (long_ones > 1)


@pytest.mark.parametrize(
    ("before", "after", "label", "word"),
    [
        (4, 4, "noise", None),
        (60, 60, "undetermined", "60 % of the runs before training and 60 %"),
        (0, 60, "regression", "0 % of the runs before training and 60 %"),
    ],
)
def test_runs_that_the_token_budget_cut_off_are_named(
    before: int,
    after: int,
    label: str,
    word: str | None,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of every hundred runs so many end at the token limit after an action. A
    side that runs on alone has lost.
    """
    from forensics.records.trajectory import TOKEN_LIMIT
    from tests.forensics.scripted import ScriptedPolicy

    write_questions(desk.stage.questions, 400)
    sides = [desk.stage.checkpoint(f"cut-{i}", Script(1.0), desk.like) for i in range(2)]
    share = dict(zip(list(desk.stage.scripts)[-2:], (before, after), strict=True))
    play = ScriptedPolicy.play

    def cut_short(self: ScriptedPolicy, *given: Any, **more: Any) -> Any:
        for number, run in enumerate(play(self, *given, **more)):
            cut = {"end": "truncated", "end_reason": TOKEN_LIMIT, "outcome": 0.0}
            yield run.model_copy(update=cut if number % 100 < share[self.identity] else {})

    monkeypatch.setattr(ScriptedPolicy, "play", cut_short)
    monkeypatch.setattr("forensics.runs.run_store.TASKS_PER_CHUNK", 400)
    verdict = desk.investigate(
        before=sides[0],
        after=sides[1],
        budget=Budget(tasks=400, samples=1),
        instruments=["score", "behaviour"],
    )
    named = [gap.text for gap in verdict.gaps if "cut off by the token budget" in gap.text]
    assert [word in text for text in named if word] == ([True] if word else [])
    assert bool(named) == (word is not None) and verdict.label == label
