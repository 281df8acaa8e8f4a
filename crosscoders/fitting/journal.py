"""The history of a training: JSON lines in the folder, and TensorBoard where asked for (an extra)."""

import json
from pathlib import Path
from typing import Any

from forensics.errors import UserError


class Journal:
    """Rows so far, and their files."""

    def __init__(self, folder: Path | None, rows: list[dict[str, Any]], tensorboard: bool) -> None:
        self.rows = rows
        self.file = folder / "history.jsonl" if folder else None
        if self.file:
            self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))  # what a cut-off run wrote later goes
        self.board = _board(folder) if tensorboard else None

    def write(self, step: int, tokens: int, measures: dict[str, dict[str, Any]]) -> None:
        row = {"step": step, "tokens": tokens, "measures": measures}
        self.rows.append(row)
        if self.file:
            with self.file.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if self.board:
            for name, value in _scalars(measures).items():
                self.board.add_scalar(name, value, tokens)
            self.board.flush()


def _scalars(measures: dict[str, dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for dictionary, values in measures.items():
        for name, value in values.items():
            several = value if isinstance(value, list) else [value]
            for index, one in enumerate(several):
                if one is not None:
                    found[f"{dictionary}/{name}" + (f"/{index}" if isinstance(value, list) else "")] = one
    return found


def _board(folder: Path | None) -> Any:
    if folder is None:
        raise UserError("TensorBoard needs a folder to write to; give `folder`")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as missing:
        raise UserError("TensorBoard is not installed; install policy-forensics[tensorboard]") from missing
    return SummaryWriter(str(folder / "tensorboard"))
