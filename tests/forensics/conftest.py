"""Fixtures of this room's tests."""

from pathlib import Path
from typing import Any

import pytest

from tests.forensics.scripted import Desk, Stage, write_questions
from tests.tiny import save_tiny_qwen3


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_qwen3(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage on which `investigate` finds scripted policies in place of the
    Hugging Face backend.
    """
    made = Stage(tmp_path, write_questions(tmp_path / "questions.jsonl", 150))

    def load(path: Path, *, device: str, identity: str, **more: Any) -> Any:
        return made.load(path, device=device, identity=identity)

    monkeypatch.setattr("forensics.subjects.subject.load_policy", load)
    monkeypatch.setattr("forensics.runs.run_store.TASKS_PER_CHUNK", 64)
    return made


@pytest.fixture
def desk(stage: Stage, tiny_directory: Path, request: pytest.FixtureRequest) -> Desk:
    """`request.param`: the instruments, where they are not all (`SCORE_ALONE`)."""
    return Desk(stage, tiny_directory, instruments=getattr(request, "param", None))
