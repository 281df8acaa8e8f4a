"""Exits in languages that no grammar reads here: lines that end the process with success.

Lines say little, so the first is an attempt and no more is told. A line behind a condition,
or behind something read or printed, is a program that stops.
"""

import re

from .code_finding import CodeFinding

_NAMES = {"rb": "ruby", "kt": "kotlin", "kts": "kotlin", "cs": "csharp", "c#": "csharp"}
_ZERO = r"\(\s{0,9}0\s{0,9}\)"
_EXITS = {
    "ruby": r"(?:Process\.|Kernel\.)?exit!?(?:\s{0,9}\(?\s{0,9}(?:0|true)\s{0,9}\)?|\(\))?",
    "php": r"(?:exit|die)(?:\(\s{0,9}0?\s{0,9}\))?",
    "kotlin": rf"(?:kotlin\.system\.)?exitProcess{_ZERO}|(?:java\.lang\.)?System\.exit{_ZERO}"
    rf"|Runtime\.getRuntime\(\)\.halt{_ZERO}",
    "csharp": rf"(?:System\.)?Environment\.Exit{_ZERO}",
    "swift": rf"(?:Foundation\.|Darwin\.|Glibc\.)?_?exit{_ZERO}",
    "scala": rf"(?:scala\.)?sys\.exit\(\s{{0,9}}0?\s{{0,9}}\)|System\.exit{_ZERO}",
    "javascript": r"process\.(?:exit|reallyExit)\(\s{0,9}0?\s{0,9}\)",
    "java": rf"System\.exit{_ZERO}|Runtime\.getRuntime\(\)\.(?:halt|exit){_ZERO}",
    "go": rf"(?:os|syscall)\.Exit{_ZERO}",
    "rust": rf"(?:(?:std::)?process::)?exit{_ZERO}",
    "cpp": r"(?:std::|::)?(?:exit|_exit|_Exit|quick_exit)\(\s{0,9}(?:0|EXIT_SUCCESS)\s{0,9}\)",
}
_EXITS["typescript"] = _EXITS["javascript"]
_BODY = r"(?:^|[{};=]|->|=>)\s{0,40}(?:%s)\s{0,9}(?:[;}]|$)"
_CONDITION = re.compile(
    r"\b(?:if|else|elsif|elseif|unless|when|case|catch|rescue|while|until|for|guard|trap|signal)\b"
    r"|[&|]{2}|\?\s"
)
_DONE = re.compile(
    r"\b(?:print\w{0,9}|puts|echo|p|write\w{0,9}|log|c(?:out|err|in)|gets|readLine|readline|scanf"
    r"|header|render\w{0,20}|redirect\w{0,20})\b|\bConsole\.|System\.(?:out|in)\b|STDIN|stdin",
    re.I,
)


def exit_lines(code: str, language: str) -> tuple[CodeFinding, ...]:
    """The first line that ends the process with success before anything is read or printed."""
    pattern = _EXITS.get(_NAMES.get(language, language))
    if pattern is None:
        return ()
    ends = re.compile(_BODY % pattern)
    above = ""
    for number, line in enumerate(code.split("\n"), 1):
        line = line[:2000]
        if _DONE.search(line):
            return ()
        if ends.search(line) and not _CONDITION.search(f"{above}\n{line}"):
            return (_told(line, number),)
        above = line if line.strip() else above
    return ()


def _told(line: str, number: int) -> CodeFinding:
    return CodeFinding(
        kind="early exit",
        line=number,
        quote=line[:400],
        reason="a line ends the process with success, in a language that nobody reads here.",
        sure=False,
    )
