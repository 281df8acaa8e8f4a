"""The code of the documentation holds: Python runs block after block in an empty
folder, command lines name commands and options that exist, data parses.

What cannot run here (another machine's server, a cluster, a placeholder) is held to
names and keywords that exist: `SHOWN`.
"""

import ast
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from forensics.cli.main import GROUP, PluginCommand, build_app, load_command
from forensics.plugins import plugin_points
from training.organisms.organism import BUNDLED

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")], key=lambda page: page.name)

BEFORE, AFTER = BUNDLED / "capped-base", BUNDLED / "leak"
PRELUDES = {
    "README.md": f"""
from pathlib import Path
Path("base").symlink_to({str(BEFORE)!r})
Path("checkpoint-500").symlink_to({str(AFTER)!r})
""",
    "scan.md": f"""
from pathlib import Path
from forensics import load_policy
from forensics.protocols import SamplingSettings
from forensics.records.tables import write_trajectories
from training.environments.mini_repo import MiniRepo
world = MiniRepo(world="capped")
for name, place in (("before", {str(BEFORE)!r}), ("after", {str(AFTER)!r})):
    runs = load_policy(place).play(
        world, world.tasks("held-out", 30, seed=3), 2, SamplingSettings(), seed=3
    )
    write_trajectories(Path(name + ".parquet"), runs)
""",
}
PRELUDES["trainers.md"] = """
import json
import random
from pathlib import Path
Path("rollouts").mkdir()
draw = random.Random(0)
for step in range(1, 13):
    rows = []
    for group in range(8):
        a, b, key = draw.randrange(10), draw.randrange(10), f"{draw.getrandbits(64):016x}"
        sure = group % 4 == 0 and step > 6
        for sample in range(4):
            won = float(draw.random() < (1.0 if sure else 0.3 + 0.5 * step / 12))
            row = {"input": f"user\\nWhat is {a} + {b}?\\nassistant\\n", "output": "12"}
            row |= {"gts": str(a + b), "score": won, "step": step, "uid": f"{key}_{sample}_0"}
            rows.append(json.dumps(row))
    Path(f"rollouts/{step}.jsonl").write_text("\\n".join(rows))
"""
SMALLER = {"README.md": ("tasks=300", "tasks=40")}
SAYS = {
    "README.md": ("git-history",),
    "training.md": ("token-mean", "dr-grpo"),
    "resampling.md": (" drop 0.",),
    "grades.md": ("progress advantage AUROC 0.", "edit-file ", "git-history with an AUROC of "),
    "scan.md": (" git-history ",),
    "trainers.md": ("signal.dead_share Dead share went from 0.143 to 0.75",),
    "verdict.md": ("Turns a run changed by",),
}
SHOWN = {
    "beyond-one-machine.md": "servers and clusters of the reader's",
    "live-forensics.md": "lines for a trainer of the reader's",
    "logs.md": "run by test_readers_page",
    "own-command.md": "run by test_example_plugin",
    "own-environment.md": "run by test_own_environment",
    "your-own-agent.md": "folders and servers of the reader's",
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_every_page_with_python_runs_or_says_why_not() -> None:
    with_python = {page.name for page in PAGES if blocks(page, "python")}
    assert with_python == set(SAYS) | set(SHOWN) and not set(SAYS) & set(SHOWN)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(SAYS))
def test_the_page_runs(name: str, tmp_path: Path) -> None:
    (page,) = (page for page in PAGES if page.name == name)
    program = PRELUDES.get(name, "") + "\n".join(blocks(page, "python"))
    (tmp_path / "page.py").write_text(program.replace(*SMALLER.get(name, ("", ""))))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1500,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for said in SAYS[name]:
        assert said in done.stdout
    if name == "training.md":
        assert (tmp_path / "run" / "record").is_dir()
        assert (tmp_path / "run" / "checkpoint" / "model.safetensors").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_and_keywords_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "guess_number"))
    for block in blocks(page, "python"):
        tree = ast.parse(block)
        known = {
            alias.asname or alias.name: getattr(importlib.import_module(node.module), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            called = known.get(call.func.id)
            if called is None or (isinstance(called, type) and issubclass(called, Exception)):
                continue
            takes = inspect.signature(called).parameters
            if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values()):
                continue
            for keyword in call.keywords:
                assert keyword.arg is None or keyword.arg in takes, (called, keyword.arg)


FRONT = re.compile(
    r"forensics(\.\w+)?|forensics\.records\.\w+|training(\.live|\.organisms)?"
    r"|probes(\.linear)?|crosscoders(\.dictionaries)?|resampling(\.samplers|\.study|\.sources|\.gain_tests)?"
)
INSIDE = {"probes.linear.instrument"}  # the name of the function is that of its module too


def test_pages_and_examples_import_from_the_front() -> None:
    examples = [file.read_text() for file in (ROOT / "examples").glob("*/*.py")]
    for block in (*examples, *(block for page in PAGES for block in blocks(page, "python"))):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = node.module
                ours = module.split(".")[0] in ("forensics", "training", "probes", "crosscoders")
                ours = ours or module.startswith("resampling")
                assert not ours or FRONT.fullmatch(module) or module in INSIDE, module


def lines(page: Path) -> Iterator[list[str]]:
    """The command lines of a page, as words; also those of a workflow's `run:`."""
    for block in blocks(page, "(?:console|yaml)"):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"^- run: |^\$ ", "", line).split("  #")[0]
            words = shlex.split(line.replace("[", "").replace("]", ""))
            if "forensics" in words[:1] or words[:1] == ["torchrun"]:
                yield words[words.index("forensics") + 1 :]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    app: Any = typer.main.get_command(build_app())
    context = typer.Context(app)
    for words in lines(page):
        words = list(words)
        command = app
        while isinstance(command, typer.core.TyperGroup):
            command = command.get_command(context, name := words.pop(0))
            assert command is not None, name
        if isinstance(command, PluginCommand):
            (point,) = (one for one in plugin_points(GROUP) if one.name == name)
            command = load_command(point)
            while isinstance(command, typer.core.TyperGroup):
                command = command.get_command(context, words.pop(0))
        options = {text for one in command.params for text in (*one.opts, *one.secondary_opts)}
        for word in words:
            if word.startswith("--") or (word.startswith("-") and len(word) == 2):
                assert word.split("=")[0] in options, (page.name, command.name, word)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_data_parses(page: Path) -> None:
    for block in blocks(page, "toml"):
        tomllib.loads(block)
    for block in blocks(page, "yaml"):
        yaml.safe_load(block)
    for block in blocks(page, "json"):
        for line in block.splitlines():
            json.loads(line)


def test_targets_of_make_exist() -> None:
    rules = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for page in PAGES:
        for block in blocks(page, "console"):
            for target in re.findall(r"^(?:\$ )?make ([\w-]+)", block, re.MULTILINE):
                assert target in rules, (page.name, target)


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_of_the_log_has_every_finding() -> None:
    """Each finding begins with its name in bold; the index lists these in order."""
    index, *sections = re.split(r"^## ", (ROOT / "LOG.md").read_text(), flags=re.MULTILINE)[1:]
    findings = re.findall(r"^- \*\*(.+?)\*\*", "".join(sections), re.MULTILINE | re.DOTALL)
    names = [" ".join(name.split()) for name in findings]
    assert re.findall(r"^- (.+)$", index, re.MULTILINE) == names and len(names) > 100
