"""What a command says on stdout: nothing in it can drive a terminal."""

import json
import sys
from typing import Any


def visible(text: str) -> str:
    """Text in which control and direction marks are spelled out; line breaks stay."""
    return "".join(c if c == "\n" or c.isprintable() else ascii(c)[1:-1] for c in text)


def say(text: str) -> None:
    """Text on stdout, with whatever a model or a file name might have smuggled in made visible."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """One JSON object on stdout, ASCII only."""
    sys.stdout.write(json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()
