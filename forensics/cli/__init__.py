"""The command line: `forensics COMMAND`, and what a command of one's own uses."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.cli.console import progress_bars as progress_bars
    from forensics.cli.console import say as say
    from forensics.cli.console import say_json as say_json
    from forensics.cli.options import Run as Run
    from forensics.cli.options import study_command as study_command

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Run": "options",
        "progress_bars": "console",
        "say": "console",
        "say_json": "console",
        "study_command": "options",
    },
)
