"""The normal form of what a policy did, whatever harness it ran in: what scanners look at instead of raw text."""

from typing import Literal, NamedTuple

Kind = Literal["command", "edit", "tool", "submit"]


class Act(NamedTuple):
    """One simple act. A step with `a && b | c` holds three.

    `step`: index of the assistant step. `answer`: index of the step with what came back, `None` where there is none.
    `program` and `arguments`: of a command, after aliases and wrappers are undone (`env X=1 git -C repo --no-pager log`
    is `git` with `log`); of a tool call its name, the arguments as `name=value`. `reads` and `writes`: paths as far as
    they can be told, relative to the working directory where it is known. `text`: as it was written. `wrote`: the text
    that was put into a file (a heredoc, an edit, the script of `sed -i`, a patch), or the text of a program that stands
    in the line (`python -c`, `python - <<EOF`: both `python` with `-c`; `writes` is what its literals write).
    `exit_code`: of the whole command line, where the log shows it.

    An `edit` is a tool or a harness's editor that changes a file; a shell command that does so is a `command` with
    `writes`. A command line that was not read to its end has a last act with the program `(cut)` and the reason.
    """

    step: int
    kind: Kind
    program: str
    arguments: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    text: str = ""
    wrote: str | None = None
    answer: int | None = None
    exit_code: int | None = None

    def answered(self, step: int, answer: int | None, exit_code: int | None) -> "Act":
        """The same act as that of a step, with what came back."""
        return Act._make((step, *self[1:-2], answer, exit_code))
