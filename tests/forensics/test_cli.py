"""The command line: exit codes, sentences, help that tells the truth, plug-ins
that are loaded when called.
"""

import inspect
import json
import shlex
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import typer

from forensics import Budget, SamplingSettings, investigate
from forensics.cli import main as plugins
from forensics.cli.main import build_app, run
from forensics.errors import RunInterrupted, UserError
from forensics.instruments import QUICK
from forensics.records.files import write_json_lines
from forensics.records.verdict import Label
from forensics.verdict import decide, standard_rule
from tests.forensics.score_world import answers, behaviour, elsewhere, planted, tested
from tests.forensics.scripted import Desk

NEEDED = ["--before", "b", "--after", "a", "--out", "o"]
LABELS = get_args(Label)


# -- investigate: every flag changes what it names -------------------------------------


def asked(monkeypatch: pytest.MonkeyPatch, *flags: str) -> dict[str, Any]:
    """What `investigate` is called with for these flags, flattened."""
    from forensics.cli import case_output

    seen: dict[str, Any] = {}

    def note(*args: Any, **kwargs: Any) -> None:
        seen.update(inspect.signature(investigate).bind(*args, **kwargs).arguments)
        raise UserError("noted")

    monkeypatch.setattr(case_output, "investigate", note)
    assert run(["investigate", *flags]) == 2
    budget: Budget = seen.pop("budget")
    seen.pop("progress")
    return {**seen, "tasks": budget.tasks, "samples": budget.samples, **vars(budget.settings)}


FLAGS = {
    "--env": (["mini-repo"], {"environment": "mini-repo"}),
    "--env-option": (["world=open"], {"environment_options": {"world": "open"}}),
    "--training": (["run"], {"training": Path("run")}),
    "--trained-tasks": (["t.txt"], {"trained_tasks": Path("t.txt")}),
    "--recipe": (["leak.toml"], {"recipe": Path("leak.toml")}),
    "--allow": (["history"], {"allow": ["history"]}),
    "--accept": (["refusal"], {"accept": ["refusal"]}),
    "--rule": (["strict.toml"], {"rule": Path("strict.toml")}),
    "--instruments": (["score, -kl"], {"instruments": ["score", "-kl"]}),
    "--quick": ([], {"instruments": [*QUICK], "tasks": 64}),
    "--seed": (["3"], {"seed": 3}),
    "--tasks": (["10"], {"tasks": 10}),
    "--samples": (["2"], {"samples": 2}),
    "--temperature": (["0.5"], {"temperature": 0.5}),
    "--top-k": (["20"], {"top_k": 20}),
    "--top-p": (["0.9"], {"top_p": 0.9}),
    "--repetition-penalty": (["1.2"], {"repetition_penalty": 1.2}),
    "--presence-penalty": (["0.3"], {"presence_penalty": 0.3}),
    "--frequency-penalty": (["0.4"], {"frequency_penalty": 0.4}),
    "--max-turn-tokens": (["17"], {"max_turn_tokens": 17}),
    "--max-tokens": (["999"], {"max_tokens": 999}),
    "--backend": (["nnsight"], {"backend": "nnsight"}),
    "--device": (["cpu"], {"device": "cpu"}),
    "--resume": ([], {"resume": True}),
    "--force": ([], {"force": True}),
    "--before": (["x"], {"before": Path("x")}),
    "--after": (["x"], {"after": [Path("a"), Path("x")]}),
    "--out": (["x"], {"out": Path("x")}),
    "--logs": (["after/scrubbed=x"], {"logs": {"after/scrubbed": Path("x")}}),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_changes_what_it_names_and_nothing_else(
    flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, expected = FLAGS[flag]
    plain = asked(monkeypatch, *NEEDED)
    changed = asked(monkeypatch, *NEEDED, flag, *values)
    assert {key: changed[key] for key in changed if changed[key] != plain.get(key)} == expected


def test_a_case_is_gone_on_with_on_as_many_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = ["--out", str(tmp_path), "--resume"]
    assert asked(monkeypatch, *NEEDED, *begun, "--quick")["tasks"] == 64
    (tmp_path / "case.json").write_text('{"inputs": {"budget": {"tasks": 80}}}')
    assert asked(monkeypatch, *NEEDED, *begun)["tasks"] == 80
    assert asked(monkeypatch, *NEEDED, *begun, "--quick", "--tasks", "90")["tasks"] == 90


def test_no_flag_is_left_untested() -> None:
    group: Any = typer.main.get_command(build_app())
    offered = {
        name
        for parameter in group.get_command(None, "investigate").params
        for name in parameter.opts
    }
    served = {"--before-server", "--after-server", "--harness"}  # in test_served_sides, test_agent
    assert offered == {*FLAGS, *served, "--json"}


def test_defaults_are_those_of_the_types(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = asked(monkeypatch, *NEEDED)
    budget = Budget()
    assert (plain["tasks"], plain["samples"]) == (budget.tasks, budget.samples)
    assert {key: plain[key] for key in vars(budget.settings)} == vars(budget.settings)
    rest = [plain[key] for key in ("seed", "device", "resume", "force")]
    assert rest == [0, "auto", False, False]


# -- exit codes ------------------------------------------------------------------------


BAD_LINES = {
    "investigate --colour": "--colour", "investigate": "--out",
    "investigate --before": "--before", "investigate --before b --after a": "--out",
    "investigate --before b --after a --out o --tasks many": "--tasks",
    "investigate --before b --after a --out o --tasks 1": "--tasks",
    "demo --out o --tasks 1": "--tasks", "organism build null --out o --seed -1": "--seed",
    "train r.toml --out o --seed -1": "--seed", "organism build": "name", "organism bild": "bild",
    "report": "CASE_DIR", "gate": "CASE_DIR", "nonsense": "nonsense", "schema x": "x", "--x": "--x",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD_LINES)
def test_bad_usage_is_one_sentence_with_its_cure(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(text.split()) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("error: ") and told.err.count("\n") == 1
    assert BAD_LINES[text] in told.err and "--help`" in told.err and "Usage" not in told.err
    assert not list(tmp_path.iterdir())


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--before", str(tmp_path / "no\x1b[31m"), "--after", "a", "--env", "mini-repo"]
    assert run(["investigate", *flags, "--out", str(tmp_path / "case")]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and told.err.startswith("error: ")
    assert "does not exist" in told.err and "\x1b" not in told.err and "\\x1b[31m" in told.err


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    from forensics.cli import case_output

    monkeypatch.setattr(case_output, "investigate", fail)


def test_our_own_failure_is_3_and_keeps_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(RuntimeError("it broke"), monkeypatch)
    assert run(["investigate", *NEEDED]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "RuntimeError: it broke" in told and "Traceback" not in told
    kept = Path(told.strip().rpartition(" in ")[2])
    assert "Traceback" in kept.read_text() and "it broke" in kept.read_text()
    kept.unlink()
    assert run(["--debug", "investigate", *NEEDED]) == 3
    assert "Traceback" in capsys.readouterr().err

    def full(*given: Any, **how: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    assert run(["investigate", *NEEDED]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "RuntimeError: it broke" in told and "--debug" in told


def test_a_command_without_resume_is_said_to_be_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forensics.cli.main import NOT_RESUMED, _way_on, load_command

    group: Any = typer.main.get_command(build_app())
    with group.make_context("forensics", ["schema"]) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            loaded = load_command(command._point) if hasattr(command, "_point") else command
            once = not getattr(loaded, "commands", None) and not any(
                "--resume" in option.opts for option in loaded.params
            )
            assert once == (name in NOT_RESUMED), name
    sentence = "no space left to write a; free some space and run again"
    for words, told in ((["report", "c"], sentence), (["scan"], f"{sentence} with --resume")):
        assert _way_on(f"{sentence} with --resume", words) == told
    kept = "delete it and run the command that wrote it again with --resume"
    assert _way_on(kept, ["report"]) == kept


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_output_that_cannot_be_written_is_no_no_of_a_gate(
    streams: tuple[str, ...], tmp_path: Path
) -> None:
    """The code 1 is a gate's: a full disk behind a pipeline's log must not become one."""
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "forensics", "gate", str(tmp_path), "--json"],
            **{name: full if name in streams else subprocess.PIPE for name in ("stdout", "stderr")},
            text=True,
        )
    assert ended.returncode == 2
    assert "Traceback" not in (ended.stderr or "")


def test_an_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is said of going on is what the folder allows."""
    for stop, options, told in (
        (KeyboardInterrupt(), [], "error: interrupted\n"),
        (RunInterrupted(kept=True), [], "interrupted; the same command with --resume goes on\n"),
        (RunInterrupted(kept=True), ["--resume"], "interrupted; the same command goes on\n"),
        (RunInterrupted(kept=True), ["--force"], "with --resume instead of --force goes on\n"),
        (
            RunInterrupted(kept=False),
            [],
            "before anything was stored; run the same command again\n",
        ),
    ):
        fail_with(stop, monkeypatch)
        assert run(["investigate", *NEEDED, *options]) == 130
        assert capsys.readouterr().err.endswith(told)


# -- a whole investigation -------------------------------------------------------------


def line(desk: Desk, *more: str) -> list[str]:
    sides = f"--before {desk.before} --after {desk.after} --out {desk.out} --device cpu"
    asked = f"--env prompts --env-option file={desk.stage.questions} --tasks 60 --samples 1"
    return [*f"investigate {sides} {asked}".split(), *more]


def test_investigate_report_and_gate(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line(desk, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == desk.case()["verdict"] and told["case"] == str(desk.out)
    assert run(line(desk)) == 2
    assert "not empty" in capsys.readouterr().err
    assert run(line(desk, "--resume")) == 0
    assert told["verdict"]["sentence"] in capsys.readouterr().out
    assert run(["gate", str(desk.out), "--require", told["verdict"]["label"]]) == 0
    first = (desk.out / "report.html").read_bytes()
    (desk.out / "report.html").unlink()
    assert run(["report", str(desk.out), "--format", "text,html,md,json"]) == 0
    assert (desk.out / "report.html").read_bytes() == first
    assert json.loads((desk.out / "report.json").read_text())["verdict"] == told["verdict"]
    assert told["verdict"]["label"].upper() in capsys.readouterr().out.upper()


def test_the_replay_command_replays(desk: Desk, tmp_path: Path) -> None:
    """Every option that decided the evidence stands in the inputs, and the schema knows it."""
    from forensics.records.case_file import CaseFile
    from forensics.report.words import replay_command

    trained = tmp_path / "trained tasks.txt"
    trained.write_text("What is 1000 ?\nWhat is 1007 ?\n")
    desk.investigate(
        budget=Budget(tasks=30, samples=2, settings=SamplingSettings(temperature=0.7)),
        trained_tasks=trained,
        instruments=["score", "memory", "behaviour"],
        seed=5,
    )
    CaseFile.model_validate(desk.case())
    told = replay_command(desk.case()["inputs"]) or ""
    program, *words = shlex.split(told.replace("\\\n", ""))  # as a shell joins the lines
    assert program == "forensics" and words[-2:] == ["--out", "replay"]
    assert run([*words[:-1], str(tmp_path / "replay"), "--device", "cpu"]) == 0
    assert desk.evidence(tmp_path / "replay") == desk.evidence()


# -- gate ------------------------------------------------------------------------------


def verdict_of(label: str, sentence: str = "So.") -> dict[str, Any]:
    nothing = {"gain": None, "genuine_gain": None, "phantom_gain": None}
    said = {
        "sentence": sentence,
        "reasons": ["because"],
        "decided_by": "c",
        "rule": standard_rule().identity,
    }
    return {"label": label, **said, **nothing}


def case_with(folder: Path, verdict: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "case.json").write_text(
        json.dumps({"schema_version": 1, "verdict": verdict, "inputs": {}})
    )
    return folder


def case_that_is(folder: Path, label: str, channel: str = "git-history") -> Path:
    """A case whose evidence gives this label, and says it."""
    rates = {
        "genuine": (0.4, 0.9, 0.39, 0.89),
        "mixed": (0.3, 0.9, 0.3, 0.6),
        "phantom": (0.3, 0.9, 0.3, 0.3),
        "regression": (0.9, 0.4, 0.9, 0.4),
        "degenerate": (0.9, 0.2, 0.9, 0.2),
    }.get(label, (0.5, 0.5, 0.5, 0.5))
    found: list[Any] = [
        *answers(planted(rates)).values(),
        *behaviour(0.9, collapse=float(label == "degenerate")),
    ]
    found = [
        one.model_copy(update={"about": channel}) if one.about else one
        for one in (*found, *tested(), *elsewhere())
    ]
    if label == "undetermined":
        found = [one for one in found if one.question != "gain.total"]
    verdict = decide(found)
    assert verdict.label == label
    case_with(folder, verdict.model_dump(mode="json"))
    write_json_lines(folder / "evidence.jsonl", found)
    return folder


def test_the_gate_takes_the_evidence_and_not_the_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = case_that_is(tmp_path, "phantom")
    content = json.loads((folder / "case.json").read_text())
    content["verdict"]["label"] = "genuine"
    (folder / "case.json").write_text(json.dumps(content))
    assert run(["gate", str(folder)]) == 1
    assert capsys.readouterr().out.startswith("phantom does not pass")
    assert run(["report", str(folder)]) == 0
    assert "case.json said genuine" in capsys.readouterr().out
    assert json.loads((folder / "case.json").read_text())["verdict"]["label"] == "phantom"


GATES = [
    [],
    ["--require", "phantom"],
    ["--allow", "mixed"],
    ["--allow", "mixed", "--allow", "noise"],
]


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("flags", GATES)
def test_the_gate_passes_what_is_required_or_allowed(
    label: str, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passing = {"phantom"} if "--require" in flags else {"genuine", *flags[1::2]}
    folder = case_that_is(tmp_path, label)
    assert run(["gate", str(folder), *flags]) == (0 if label in passing else 1)
    capsys.readouterr()
    assert run(["gate", str(folder), *flags, "--json"]) == (0 if label in passing else 1)
    assert json.loads(capsys.readouterr().out)["passes"] is (label in passing)


@pytest.mark.parametrize(
    ("verdict", "flags", "says"),
    [
        (None, [], "no verdict yet"),
        ("phantom", [], "cannot be read"),
        ({"label": "fine"}, [], "cannot be read"),
        (verdict_of("genuine"), ["--require", "good"], "there is no verdict 'good'"),
        (verdict_of("genuine"), ["--allow", "bad"], "there is no verdict 'bad'"),
    ],
)
def test_a_gate_that_cannot_tell_is_2(
    verdict: Any, flags: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gate", str(case_with(tmp_path, verdict)), *flags]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["gate", "report"])
@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_folder_that_is_no_case_is_2(
    command: str, text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "case.json").write_text(text)
    assert run([command, str(tmp_path)]) == 2
    assert "case.json" in capsys.readouterr().err


# -- schema ----------------------------------------------------------------------------


# -- plug-ins and speed ----------------------------------------------------------------

PLUGIN = '''
"""A heavy module."""
import typer
{boom}

def brew(cups: int = 1) -> None:
    """Brew coffee for everyone.

    More text.
    """
    print(f"brewed {{cups}}")

kitchen = typer.Typer(help="Commands of the kitchen.")

@kitchen.command("clean")
def clean() -> None:
    """Clean up."""
    print("cleaned")

@kitchen.command("cook")
def cook() -> None:
    """Cook."""
'''


def plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    package = tmp_path / "heavyplugin"
    package.mkdir()
    (package / "__init__.py").write_text("import sys; sys.stderr.write('LOADED')")
    (package / "tools.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [
        EntryPoint(name=name, value=f"heavyplugin.tools:{attribute}", group=plugins.GROUP)
        for name, attribute in (("brew", "brew"), ("kitchen", "kitchen"), ("odd", "missing"))
    ]
    monkeypatch.setattr(plugins, "plugin_points", lambda group: points)
    for name in ("heavyplugin", "heavyplugin.tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_listing_commands_runs_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plug(tmp_path, monkeypatch, PLUGIN.format(boom="raise SystemExit('this must not run')"))
    assert run(["--help"]) == 0
    told = capsys.readouterr()
    assert "Brew coffee for everyone." in told.out and "Commands of the kitchen." in told.out
    assert "Provided by heavyplugin.tools." in told.out and "LOADED" not in told.err
    assert "heavyplugin" not in sys.modules


def test_a_plugin_runs_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plug(tmp_path, monkeypatch, PLUGIN.format(boom=""))
    assert run(["brew", "--cups", "3"]) == 0
    assert capsys.readouterr().out == "brewed 3\n"
    assert run(["kitchen", "clean"]) == 0
    assert capsys.readouterr().out == "cleaned\n"
    assert run(["brew", "--help"]) == 0
    assert "--cups" in capsys.readouterr().out
    assert run(["brew", "--mugs", "3"]) == 2
    assert run(["odd"]) == 2
    assert "cannot be loaded" in capsys.readouterr().err


@pytest.mark.parametrize("line", [["gate", "--help"], ["--help"], ["train", "--help"]])
def test_a_plugin_that_takes_the_name_of_one_of_ours_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    point = EntryPoint(name="gate", value="heavyplugin.tools:gate", group=plugins.GROUP)
    monkeypatch.setattr(plugins, "plugin_points", lambda group: [point])
    assert run(line) == 2
    said = "heavyplugin.tools and policy-forensics both bring a command named 'gate'; uninstall"
    assert said in capsys.readouterr().err


def test_help_is_little_work_and_loads_no_heavy_library() -> None:
    """Functions called and modules loaded, from the first import on. Seconds:
    `benchmarks/hostile.py` at def71cb.
    """
    heavy = "{'torch', 'transformers', 'scipy', 'matplotlib', 'pyarrow', 'numpy'}"
    program = (
        "import sys, itertools; calls = itertools.count(); "
        "sys.setprofile(lambda frame, event, what: event == 'call' and next(calls)); "
        "from forensics.cli.main import run; code = run(['--help']); sys.setprofile(None); "
        f"print(sorted({heavy} & set(sys.modules)), code, next(calls), len(sys.modules))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    *_, loaded, code, calls, modules = child.stdout.split()
    assert (loaded, code) == ("[]", "0")
    assert 10_000 < int(calls) < 400_000 and int(modules) < 400


# -- progress -------------------------------------------------------------------------


def test_progress_without_a_terminal_is_plain_and_rare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forensics.cli import console

    clock = [0.0]
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    show = console.PlainProgress()
    show("quick", 0, 10)
    clock[0] = 1.0
    show("quick", 10, 10)
    assert capsys.readouterr().err == ""
    for second in range(61):
        clock[0] = 10.0 + second
        show(f"slow, success 0.{second:02d}", second, 60)
    told = capsys.readouterr().err
    assert told.splitlines()[0] == "slow, success 0.02: 3 %"
    assert told.splitlines()[-1] == "slow, success 0.60: 100 %"
    assert 6 <= told.count("\n") <= 8 and told.isascii() and "\x1b" not in told and "\r" not in told


@pytest.mark.parametrize("ticking", [True, False])
def test_bars_that_do_not_tick_are_drawn_without_a_thread(
    ticking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan copies its process, which is safe only while it has one thread."""
    import io
    from threading import Thread, current_thread

    from forensics.cli.console import progress_bars

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, here, start = Terminal(), current_thread(), Thread.start
    started: list[Thread] = []  # by this test, whatever threads of others come and go meanwhile

    def noted(thread: Thread) -> None:
        if current_thread() is here:
            started.append(thread)
        start(thread)

    monkeypatch.setattr(Thread, "start", noted)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars(ticking) as show:
        show("reading after-0, 7 runs", 1, 4)
        show("reading after-0, 8 runs", 4, 4)
    assert len(started) == ticking
    for thread in started:
        thread.join()
    assert "reading after-0, 7 runs" in terminal.getvalue() or ticking
