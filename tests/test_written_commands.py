"""Each command of README and of docs/real-model.md runs as it is written there, one after the other
in one folder, on what the page names: checkpoints, logs, tasks, a server.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from experiments.real_model import leak
from tests.forensics.scripted_chat import chatting, harness
from tests.forensics.test_readers_inspect import SAMPLE, write_eval
from tests.tiny import save_tiny_qwen3
from training.organisms.organism import BUNDLED

ROOT = Path(__file__).parents[1]
Made = Callable[[Path], AbstractContextManager[dict[str, str]]]
BY_HAND = ("pip install", "make ")  # of the whole clone, and this is one of its tests
ENDS = {"forensics gate case --require genuine": 1}  # other exit codes than 0


@contextmanager
def readme(folder: Path) -> Iterator[dict[str, str]]:
    """`BASE` and `TRAINED`, as checkpoints and as models of a server; logs; an agent."""
    for name, checkpoint in (("BASE", "capped-base"), ("TRAINED", "leak")):
        (folder / name).symlink_to(BUNDLED / checkpoint)
    for name, score in (("base.eval", "I"), ("run.eval", "C")):
        scored = SAMPLE | {"scores": {"match": {"value": score}}}
        write_eval(folder / name, {"samples/t-1_epoch_2.json": scored})
    harness(folder)
    with chatting(BASE=0.1, TRAINED=0.9) as server:
        yield {"URL": server.url}


@contextmanager
def real_model(folder: Path) -> Iterator[dict[str, str]]:
    """A chat model that answers at random, and questions of which it is right on about half."""
    save_tiny_qwen3(folder / "model")
    leak.write_tasks(folder)
    for name in leak.FILES.values():
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        half = {"verifier": {"type": "regex", "pattern": "(?s).*[aeiou].*"}}
        (folder / name).write_text("".join(json.dumps(row | half) + "\n" for row in rows))
    (recipe,) = re.findall(r"^```toml\n(.*?)^```", page("docs/real-model.md"), re.DOTALL | re.M)
    (folder / "recipe.toml").write_text(recipe)
    yield {}


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(name: str) -> list[list[str]]:
    """Of each block of a page."""
    blocks = re.findall(r"^```console\n(.*?)^```", page(name), re.DOTALL | re.M)
    return [block.replace("\\\n", " ").splitlines() for block in blocks]


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "name,made", [("README.md", readme), ("docs/real-model.md", real_model)], ids=["readme", "real"]
)
def test_each_command_runs_as_it_is_written(name: str, made: Made, tmp_path: Path) -> None:
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with made(tmp_path) as put:
        for number, block in enumerate(commands(name)):
            for command in block:
                if command.startswith(BY_HAND):
                    continue
                for word, value in put.items():
                    command = command.replace(word, value)
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                wanted = next((code for of, code in ENDS.items() if command.startswith(of)), 0)
                assert done.returncode == wanted, (command, done.stderr[-2000:], done.stdout[-500:])
            if name == "README.md" and (tmp_path / "case").exists():
                (tmp_path / "case").rename(tmp_path / f"case-{number}")  # each way in has its own
