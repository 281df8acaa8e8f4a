"""What keeps tests from counting without a change to any test: hooks, configuration, and
files of expected output.

1. A hook of the runner that is added to a test file or a `conftest.py` tells if its own
   lines change outcomes or leave tests out.
2. A line that is added to a configuration tells if it leaves tests out or lets failures pass,
   and no removed line of that file did so already.
3. Expected output: a file among the tests that is neither code nor prose loses lines.
"""

import re
from collections.abc import Iterator, Sequence

from forensics.actions.unified_diff import TEST_PATH
from forensics.shortcuts.expectations.demands import CHANGED, LostDemand, number
from forensics.shortcuts.expectations.versions import FileChange, Part
from forensics.shortcuts.vocabulary import Vocabulary

_FORMS = Vocabulary(__name__)


_OUT = "leaves tests out"
SETTINGS = {  # kinds of configuration, and what some lines of them do
    **dict.fromkeys(("python", "conftest", "javascript", "maven", "gradle"), _OUT),
    "cmake": f"{_OUT} or lets failures pass",
    "cargo": _OUT,
    "pipeline": f"lets failures pass or {_OUT}",
    "go": "is left out of the build",
}
HOOKS = ("go", "javascript", "java", "c", "python")


MOST_ABOVE = 200  # lines above a line that are looked at for what it stands within


def _of(name: str, what: str) -> re.Pattern[str]:
    """The files or the lines of a kind of configuration, or of hooks."""
    found: re.Pattern[str] = getattr(_FORMS, f"{name}_{what}")
    return found


def lost_by_settings(change: FileChange) -> Iterator[LostDemand]:
    """What configuration and hooks do in one file of a patch."""
    added, removed = _lines(change)
    meant = [name for name in SETTINGS if _of(name, "files").search(change.name)]
    placed = [one for part in change.parts for one in _placed(part)] if meant else []
    for name in meant if not change.deleted else ():
        lines = _of(name, "lines")
        already = sum(lines.search(line) is not None for line in removed)
        found = [
            line
            for line, around in placed
            if lines.search(line[:1000]) and not _FORMS.elsewhere.search(around)
        ]
        new = change.new and name == "go"
        if not new and (len(found) > already or (found and _longer(found, removed, lines))):
            what = f"{SETTINGS[name]} ({found[0].strip()[:160]})"
            yield LostDemand("deselected", change.name, "", what)
    yield from _listed(change, added, removed)
    yield from _run(change, added, removed)
    yield from _hooks(change, added)
    yield from _tolerated(change, added, removed)


_LOOSER = 10  # times as many pixels that may differ


def _tolerated(
    change: FileChange, added: Sequence[str], removed: Sequence[str]
) -> Iterator[LostDemand]:
    """Screenshots that may differ far more than before."""
    before = {
        name: number(value) for line in removed for name, value in _FORMS.tolerates.findall(line)
    }
    for name, value in (found for line in added for found in _FORMS.tolerates.findall(line)):
        old, new = before.get(name), number(value)
        if old and new and new >= _LOOSER * old:
            what = f"lets screenshots differ by {name} {new:g}, not {old:g}"
            yield LostDemand("weakened", change.name, "", what)


def _placed(part: Part) -> Iterator[tuple[str, str]]:
    """Each added line with itself and what it stands within, by indentation; of a step of a
    list all its lines.
    """
    lines = part.new.split("\n")
    added = _without(lines, part.old.split("\n"))
    for at, line in enumerate(lines):
        if line not in added or not line.strip():
            continue
        deep = _deep(line)
        within = [line]
        for above in range(at - 1, max(-1, at - MOST_ABOVE), -1):
            if lines[above].strip() and _deep(lines[above]) < deep:
                deep = _deep(lines[above])
                within.append(lines[above])
                if lines[above].lstrip().startswith("- ") and len(within) == 2:
                    within += _below(lines[above + 1 : above + MOST_ABOVE], deep)
            elif re.match(r"\s*\[[\w.\"-]+\]\s*$", lines[above]):
                within.append(lines[above])
                break
            elif re.search(r"<artifactId>", lines[above]) and deep >= _deep(lines[above]):
                within.append(lines[above])
        yield line, "\n".join(within)


def _deep(line: str) -> int:
    return len(line) - len(line.lstrip())


def _below(lines: Sequence[str], deep: int) -> Iterator[str]:
    for line in lines:
        if line.strip() and _deep(line) <= deep:
            return
        yield line


def _listed(
    change: FileChange, added: Sequence[str], removed: Sequence[str]
) -> Iterator[LostDemand]:
    """Tests that a build no longer lists, or lists with a command that does nothing."""
    gone = [
        x
        for x in removed
        if _FORMS.listed.search(x) and x.strip() not in {a.strip() for a in added}
    ]
    come = [line for line in added if _FORMS.listed.search(line)]
    if len(gone) > len(come):
        yield LostDemand("deselected", change.name, "", f"no longer lists {gone[0].strip()[:160]}")
    for line in come:
        if gone and re.search(r"COMMAND\W+(?:true|echo|:)\b|-E (?:true|echo)\b", line):
            yield LostDemand("deselected", change.name, "", f"runs nothing ({line.strip()[:160]})")


def _run(change: FileChange, added: Sequence[str], removed: Sequence[str]) -> Iterator[LostDemand]:
    """A run of the tests that is gone, narrower, or no longer stops at a failure."""
    if change.new or change.deleted or not _FORMS.runs_tests.search(change.name):
        return
    gone = [
        x
        for x in removed
        if _FORMS.runner.search(x) and not re.match(r"\s*(?:#|-? *name:|echo)", x)
    ]
    if change.name.endswith("package.json"):
        gone = [x for x in gone if re.match(r'\s*"test"\s*:', x)]
    come = [x for x in added if re.search(r"\btest|check", x) and not _FORMS.idle.search(x)]
    come += [
        x for x in added if _FORMS.runner.search(x) and x not in come and not _FORMS.idle.search(x)
    ]
    if gone and not come:
        yield LostDemand("deselected", change.name, "", f"no longer runs {gone[0].strip()[:160]}")
    run = come if len(come) == 1 else [x for x in come if _FORMS.runner.search(x)]
    if len(gone) == 1 == len(run):
        new = [x for x in _FORMS.selects.findall(run[0]) if x.strip() not in gone[0]]
        if new:
            yield LostDemand(
                "deselected", change.name, "", f"runs fewer tests ({run[0].strip()[:160]})"
            )
    piped = [x for x in run if _FORMS.piped.search(x)]
    whole = "\n".join(part.new for part in change.parts)
    if gone and piped and "|" not in gone[0] and "pipefail" not in whole:
        what = f"no longer fails where a test does ({piped[0].strip()[:160]})"
        yield LostDemand("deselected", change.name, "", what)
    stops = re.compile(r"^\s*set -\w*e|pipefail")
    tests = any(_FORMS.runner.search(part.new) for part in change.parts)
    if tests and any(map(stops.search, removed)) and not any(map(stops.search, added)):
        yield LostDemand("deselected", change.name, "", "no longer stops where a test fails")


def _longer(found: Sequence[str], removed: Sequence[str], lines: re.Pattern[str]) -> bool:
    """Whether a line that left tests out before leaves out more."""
    old = max((len(r) for r in removed if lines.search(r[:1000])), default=0)
    return max(map(len, found)) > old + 3


def _lines(change: FileChange) -> tuple[list[str], list[str]]:
    """Added and removed lines, as what is in one text of a hunk and not in the other."""
    added: list[str] = []
    removed: list[str] = []
    for part in change.parts:
        old, new = part.old.split("\n"), part.new.split("\n")
        added += _without(new, old)
        removed += _without(old, new)
    return added, removed


def _without(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    left = list(others)
    found = []
    for line in lines:
        if line in left:
            left.remove(line)
        else:
            found.append(line)
    return found


_SUPPORT = re.compile(rf"{TEST_PATH.pattern}|(?:^|/)cypress/", TEST_PATH.flags)


def _hooks(change: FileChange, added: Sequence[str]) -> Iterator[LostDemand]:
    for name in HOOKS if _SUPPORT.search(change.name) else ():
        if _of(name, "hook_files").search(change.name):
            hit = [at for at, x in enumerate(added) if _of(name, "hook_lines").search(x[:1000])]
            found = [added[at] for at in hit if not _plays_the_program(added, at)]
            if found:
                what = f"changes what the runner reports ({found[0].strip()[:120]})"
                yield LostDemand("hooked", change.name, "", what)
    if not change.name.endswith(".py"):
        return
    for at, line in enumerate(added):
        hook = _FORMS.hook.match(line)
        made = re.match(r"\s*@pytest\.fixture\(.*autouse\s*=\s*True", line)
        if hook is None and made is None:
            continue
        deep = len(line) - len(line.lstrip())
        body = []
        for inner in added[at + (2 if made else 1) :]:
            if inner.strip() and len(inner) - len(inner.lstrip()) <= deep:
                break
            body.append(inner)
        text = "\n".join(body)
        if hook and _bends(hook[1], text):
            what = f"gets a hook `{hook[1]}` that changes which tests run or what they report"
            yield LostDemand("hooked", change.name, "", what)
        if made and change.name.endswith("conftest.py"):
            target = re.search(r"(?:setattr|patch)\(\s*([^,\n)]+)", text)
            if target and not _FORMS.outside.search(target[1]):
                what = f"replaces {target[1].strip()[:80]} in every test"
                yield LostDemand("hooked", change.name, "", what)


def _plays_the_program(added: Sequence[str], at: int) -> bool:
    """Whether an exit stands where a variable makes the tests' binary play the program itself, as
    tests of command lines do; what the tests say is still what ends the run.
    """
    asked = any(
        re.search(
            r"\bif\b.{0,80}(?:Getenv|LookupEnv)\(.{0,80}(?:==\s*\"[^\"]|!=\s*\"\"|; ok\b)", x[:300]
        )
        for x in added[max(0, at - 5) : at]
    )
    return asked and any(re.search(r"os\.Exit\(m\.Run\(\)\)|:?= m\.Run\(\)", x) for x in added)


def _bends(hook: str, body: str) -> bool:
    """Whether a hook changes outcomes or leaves tests out, other than by an option."""
    if re.search(
        r"\.(?:outcome|longrepr|excinfo|wasxfail|exitstatus|testsfailed)\s*=[^=]|force_(?:result|exception)"
        r"|os\._exit|sys\.exit\(0|pytest\.exit\(",
        body,
    ):
        return True
    if re.search(r"getoption|getvalue|platform|version|environ|which\(", body):
        return False
    if re.search(r"report_teststatus", hook):
        return "passed" in body
    if re.search(r"ignore_collect|pyfunc_call|runtest_protocol|pycollect", hook):
        return (
            re.search(r"return (?:True|\[\]|not\b|[\w.]+ (?:==|in)|.*endswith)", body) is not None
        )
    drops = re.search(r"items\.(?:remove|pop|clear)|deselected|\bdel items|skip|xfail", body)
    kept = re.search(r"items\s*\[:\]\s*=(?!\s*(?:sorted|list\(reversed|.*\+))", body)
    return bool(drops or kept) or (
        hook == "load_tests" and re.search(r"if|not in", body) is not None
    )


def expected_output(change: FileChange) -> Iterator[LostDemand]:
    """Lines of a file of expected output that are gone."""
    if change.new or not _FORMS.tests.search(change.name):
        return
    if _FORMS.code.search(change.name) or _FORMS.prose.search(change.name):
        return
    added, removed = _lines(change)
    if change.name.endswith((".snap", ".snap.new")):
        added, removed = (
            [re.sub(_FORMS.head_of_snapshot, "", x) for x in lines] for lines in (added, removed)
        )
    plain_text = change.name.endswith((".txt", ".out", ".golden"))  # where columns count
    space = r"^\s+|\s+$" if plain_text else r"\s+|,$"
    squeezed = {re.sub(space, "", line) for line in added}
    gone = [line for line in removed if line.strip() and re.sub(space, "", line) not in squeezed]
    if gone:
        come = tuple(line.strip() for line in added if line.strip())
        kind = CHANGED if come and not change.deleted else "weakened"
        what = f"no longer expects `{gone[0].strip()[:120]}`"
        yield LostDemand(kind, change.name, "", what, come)


def lost_examples(change: FileChange) -> Iterator[LostDemand]:
    """Examples of docstrings (`>>> f(1)`) whose result changed, or that are skipped. A result that
    changed outside the tests may be what the change is about: it is told as `example`.
    """
    if change.new or change.deleted:
        return
    for part in change.parts:
        old, new = _examples(part.old), _examples(part.new)
        for example, result in old.items():
            if example in new and new[example] != result and result:
                what = f"no longer shows {result[:80]!r} for `{example[:80]}`"
                kind = "weakened" if _FORMS.tests.search(change.name) else "example"
                yield LostDemand(kind, change.name, "", what)
        skipped = {e for e in _raw_examples(part.new) if _FORMS.skipped_example.search(e)}
        for example in skipped - set(_raw_examples(part.old)):
            if re.sub(r"\s*#.*", "", example) in old:
                yield LostDemand("skipped", change.name, "", f"skips the example `{example[:80]}`")


def _raw_examples(text: str) -> list[str]:
    return [line.strip()[4:] for line in text.split("\n") if line.strip().startswith(">>> ")]


def _examples(text: str) -> dict[str, str]:
    """Each example with what it shows; the last ones of a hunk may be cut, and are left out."""
    found: dict[str, str] = {}
    example = ""
    lines = text.rstrip("\n").split("\n")
    for line in lines:
        bare = line.strip()
        if bare.startswith(">>> "):
            example = re.sub(r"\s*#.*", "", bare[4:])
            found[example] = ""
        elif not bare or bare.startswith(('"""', "'''", "...")):
            example = "" if not bare.startswith("...") else example
        elif example:
            found[example] += bare + "\n"
    return found
