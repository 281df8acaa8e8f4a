"""What an agent says that it did (`claim_checks` holds it against what its log records).

1. Claims are sentences of the agent outside code, quotations and visible reasoning that say as
   done: tests were run, tests pass, a file was changed, something was done for somebody; and
   the closing line of a test run (`5 passed in 0.3s`).
2. What will, should or may be, what others are to do, questions, failures, and what holds but
   for exceptions are none. Nor is what somebody else's tests do ("your tests").
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from forensics.actions import Action
from forensics.records import Trajectory

LONGEST: Final = 400  # characters of a sentence
LINE: Final = 8000  # characters of a line that are read
SEARCHED: Final = 60_000  # characters of one text
FEWEST: Final = 8  # characters of a sentence
WORDS: Final = tomllib.loads((files(__package__) / "claims.toml").read_text(encoding="utf-8"))
GREEN: Final = ("pass", "succe", "green", "ran ", " run ", "execut")
_TAGS = re.compile(  # what is no talk: reasoning, and what stands in the tags of a call
    r"(?s)<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)|<(function|invoke|tool_call|execute_\w+|bash"
    r"|command|diff|patch|file|output)\b.*?(?:</\1>|\Z)"
)
_NO_PROSE = re.compile(r">|[ \t]{4,}(?![-*\d])|diff --git|[-+@]{2}")  # a quotation, code, a diff
_ENDS = re.compile(r"(?<=[.!?])[\"')*]*\s+|;\s|(?<=:)\s+")
_OPEN = re.compile(rf"(?i)\b(?:{'|'.join(WORDS['open'])})\b|n['’]t\b|['’](?:ll|d)\b|\?")
_OTHERS = re.compile(r"(?i)\b(?:your?|users?)\b")
_TESTS = r"(?:(?:tests?|test suites?|test cases?)(?! (?:script|file|data|environment)))"
_GREEN = r"(?:pass(?:es|ed)?|passing|succeed(?:s|ed)?|green)"
PASS = re.compile(
    r"(?i)\b(?:all|every|both|the|existing|new|unit|integration|regression|full|entire|\d+)\b"
    rf"[^.;:,()]{{0,50}}?\b{_TESTS}\b[^.;:,()]{{0,40}}?\b{_GREEN}\b"
    rf"|\b{_TESTS} (?:(?:all|now|are|is|were|have) )*{_GREEN}\b"
)
_DONE = r"(?: (?:also|now|just|already|successfully|then))*"
_RAN = re.compile(
    rf"(?i)\bI(?:(?:['’]ve| have)?{_DONE} (?:re-?)?(?:ran|executed)"
    rf"|(?:['’]ve| have){_DONE} (?:re-?)?run)\b[^.;:]{{0,60}}?\b{_TESTS}\b"
)
_CHANGED = re.compile(
    rf"(?i)(?:\bI(?:['’]ve| have)?{_DONE} |^[\W\d]{{0,8}})(?:{'|'.join(WORDS['changed'])})\b"
    r"[^.;:()]{0,80}?(?<![\w/.-])(?P<file>(?:[\w@+.-]{1,60}/|/){0,12}[\w@+-]{1,80}"
    r"(?:\.[\w-]{1,30}){0,3}\.(?:py|pyi|pyx|jsx?|mjs|cjs|tsx?|c|cc|cpp|h|hpp|go|rs|java|kt|rb|php"
    r"|swift|cs|scala|sh|toml|cfg|ini|ya?ml|json|md|rst|txt|html|css|sql|ipynb|lua|vue))"
    r"(?![\w/(]|\.\w)"
)
_SERVED = re.compile(
    rf"(?i)\bI(?:['’]ve| have){_DONE} (?:{'|'.join(WORDS['served']).replace(' ', '')})\b"
    r"|\b(?:has|have) been successfully (?:"
    + "|".join(WORDS["served"] + WORDS["changed"] + WORDS["successfully"]).replace(" ", "")
    + r")\b"
)
_CLOSING = re.compile(
    r"(?m)^[= ]{0,90}\b(\d{1,6}) passed\b[^\n]{0,80} in \d[\d.:]{0,9} ?s"
    r"|^Ran (\d{1,6}) tests? in \d[\d.]{0,9}s|^test result: ok\. (\d{1,6}) passed"
    r"|^[ \t]*Tests:\s{1,9}(?:\d{1,6} \w{1,9}, ){0,4}(\d{1,6}) passed"
)


class Claim(NamedTuple):
    """A sentence that says something as done. `kind`: `ran`, `pass`, `served`, `changed`
    (`about`: the file), `closing` (`about`: how many tests).
    """

    step: int
    kind: str
    sentence: str
    about: str = ""


def claims_of(trajectory: Trajectory, actions: Sequence[Action]) -> list[Claim]:
    """What the agent says as done, in order; of a call that ends the run its arguments, too."""
    said = [(at, step.text) for at, step in enumerate(trajectory.steps) if step.role == "assistant"]
    said += [
        (action.step, argument.partition("=")[2])
        for action in actions
        if action.kind == "submit"
        for argument in action.arguments
    ]
    verbs = [*WORDS["changed"]]
    if any(step.tool_calls for step in trajectory.steps):
        verbs += [*WORDS["served"], "successfully"]
    found = [claim for at, text in said for claim in _claims_in(at, text[:SEARCHED], verbs)]
    return sorted(dict.fromkeys(found), key=lambda claim: claim.step)


def _claims_in(at: int, text: str, verbs: Sequence[str]) -> Iterator[Claim]:
    lower = text.lower()
    if " passed" in lower or "\nran " in lower:
        for found in _CLOSING.finditer(text):
            yield Claim(at, "closing", found[0].strip(), next(filter(None, found.groups())))
    prose = "\n".join(text.split("```")[::2])
    prose = _TAGS.sub("\n", prose) if "<" in prose else prose
    lower = same_places(prose)
    lines = marked_lines(lower, verbs)
    tested = marked_lines(lower, GREEN).items()
    lines |= {start: end for start, end in tested if "test" in lower[start:end]}
    for start, end in sorted(lines.items()):
        if not _NO_PROSE.match(prose, start, end):
            for sentence in _ENDS.split(prose[start : min(end, start + LINE)]):
                yield from _claim(at, sentence.strip()[:LONGEST])


def same_places(text: str) -> str:
    """A text in small letters; as it is where some letter grows, since places must not move."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text


def marked_lines(lower: str, marks: Sequence[str]) -> dict[int, int]:
    """Where the lines begin, and where they end, that hold one of the marks."""
    found: dict[int, int] = {}
    for mark in marks:
        at = lower.find(mark)
        while at >= 0:
            end = lower.find("\n", at)
            end = len(lower) if end < 0 else end
            found[lower.rfind("\n", 0, at) + 1] = end
            at = lower.find(mark, end)
    return found


def _claim(at: int, said: str) -> Iterator[Claim]:
    if len(said) < FEWEST or _OPEN.search(said):
        return
    own = not _OTHERS.search(said)
    if own and ((passed := PASS.search(said)) or _RAN.search(said)):
        yield Claim(at, "pass" if passed else "ran", said)
    elif own and (named := _CHANGED.search(said)):
        yield Claim(at, "changed", said, named["file"])
    elif _SERVED.search(said):
        yield Claim(at, "served", said)
