"""The tests of shell scripts (and bats), read line by line: conditions in brackets, comparisons
and searches are what they demand.
"""

import re

from forensics.shortcuts.expectations.demands import Demand, Test, merged, words
from forensics.shortcuts.expectations.versions import Part

_DEMANDS = re.compile(
    r"^(?:!\s*)?(?:\[\[? |test |diff\b|cmp\b|assert\w*\b|refute\w*\b|expect\w*\b|e?grep\b.*-\w*q"
    r"|fail\b"
    r"|check\w*\b|is \b|ok \b|test_(?:cmp|must_fail|expect_\w+)\b)"
)
_TEST = re.compile(r"^@test\s+[\"'](.+)[\"']\s*\{|^(?:function\s+)?(test\w*)\s*\(\)")
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?<![\w$])-?\d+(?:\.\d+)?\b")
_ENDS = {"fi", "done", "esac"}


def read_pair(part: Part) -> tuple[list[Test], list[Test]]:
    """The tests before and after."""
    return _tests(part.old), _tests(part.new)


def _tests(text: str) -> list[Test]:
    tests = [Test("")]
    guards: list[str] = []
    after: list[str] = []
    silent = ""
    for raw in re.sub(r"\\\n", " ", text).split("\n"):
        line = re.sub(r"\s+", " ", re.sub(r"(?:^|\s)#.*$", "", raw)).strip()
        if silent:
            silent = "" if line == silent else silent
            continue
        if found := _TEST.match(line):
            tests.append(Test(found[1] or found[2]))
            guards, after = [], []
        elif line == "}":
            tests.append(Test(""))
            guards, after = [], []
        elif found := re.match(r": <<-? ?['\"]?(\w+)", line):
            silent = found[1]
        elif line.startswith(("if ", "case ", "for ", "while ", "until ")):
            guards.append(line.split(";")[0])
        elif guards and line.rstrip(";") in _ENDS:
            guards.pop()
        elif re.match(r"skip\b", line):
            tests[-1].skips.add(" ".join([*guards, line]))
        elif re.match(r"(?:exit|return) 0\b|exit$|return$", line):
            after += ["" if guards else "after an exit"]
        elif line.startswith("trap ") and re.search(r"exit 0", line):
            tests[-1].skips.add(line)
        elif _DEMANDS.match(line):
            names = words(re.findall(r"[A-Za-z_][\w./-]*", _STRING.sub(_named, line)))
            held = tuple(x.strip("\"'") for x in _STRING.findall(line))
            tests[-1].demands.append(Demand(line, held, names, (*guards, *filter(None, after))))
    return merged(tests)


def _named(found: re.Match[str]) -> str:
    return " ".join(re.findall(r"\$\{?\w+", found[0]))
