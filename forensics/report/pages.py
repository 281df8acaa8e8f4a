"""What every page of ours has in common: nothing foreign can act in it, and it
asks nobody for anything.

1. Every value that a template shows goes through `visible_html` (escaping, and
   control and direction marks spelled out); only what we made ourselves is
   `Markup`.
2. The page's policy allows only our own style and script, by their hashes, and
   no connection.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from forensics.report.escape import visible_html

COMMON: Final = Path(__file__).parent / "templates"


def templates(*folders: Path) -> Environment:
    """Autoescaping templates in which every value is also made visible, and a
    missing name is an error.

    `folders` are searched first, then the templates of the report.
    """
    return Environment(
        loader=FileSystemLoader([*folders, COMMON]),
        autoescape=True,
        finalize=_finished,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def content_policy(style: str, script: str) -> str:
    """The Content-Security-Policy: our own style and script by hash, nothing
    else, no connection.
    """
    allowed = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    )
    first, second = (f"'sha256-{digest}'" for digest in allowed)
    return (
        f"default-src 'none'; style-src {first}; script-src {second}; base-uri 'none'; form-action"
        " 'none'"
    )


def _finished(value: Any) -> Markup:
    if isinstance(value, Markup):
        return value
    return Markup("") if value is None else visible_html(value)
