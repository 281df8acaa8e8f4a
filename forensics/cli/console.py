"""What a command says on stdout: nothing in it can drive a terminal."""

import json
import sys
from typing import Any


def say(text: str) -> None:
    """Text on stdout, with whatever a model or a file name might have smuggled in made visible."""
    from forensics.report.escape import printable

    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """One JSON object on stdout, ASCII only."""
    sys.stdout.write(json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()
