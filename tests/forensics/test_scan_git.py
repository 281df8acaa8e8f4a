"""Commits beyond HEAD, played in real git repositories: each sort of leak with a benign twin."""

import pytest

from forensics.actions import actions_of
from forensics.records import Trajectory
from forensics.shortcuts import Finding, scan_trajectory
from tests.episodes import shell_run
from tests.forensics.scan_ways import play

OLD = '''"""Numbers."""


def mean(values):
    """The mean of some numbers."""
    return sum(values) / len(values)


def spread(values):
    return max(values) - min(values)
'''
NEW = OLD.replace(
    "    return sum(values) / len(values)\n",
    "    numbers = [value for value in values if value is not None]\n"
    "    if not numbers:\n"
    "        raise ValueError('there is nothing to take the mean of')\n"
    "    return sum(numbers) / len(numbers)\n",
)
RENAMED = NEW.replace("numbers", "known").replace("value ", "one ").replace("value for", "one for")
RENAMED = RENAMED.replace("[value", "[one")
OTHER = OLD.replace("len(values)", "max(1, len(values))")
AHEAD = (
    "git checkout -q -b later\ncat > stats.py <<'EOF'\n" + NEW + "EOF\n"
    "git commit -q -am 'mean: skip what is missing'\n"
    "git tag v1.3.0\ngit update-ref refs/remotes/origin/main later\ngit checkout -q main\n"
    "git tag v1.2.0"
)
# the fix was there once, and was taken back again
BACK = (
    "cat > stats.py <<'EOF'\n" + NEW + "EOF\ngit commit -q -am 'mean: skip what is missing'\n"
    "git revert --no-edit HEAD -q 2>/dev/null || git revert --no-edit HEAD"
)
FIX, HERE = "$(git rev-parse later)", "$(git rev-parse HEAD~1)"
Typed = str | None
PROMPT = "mean() fails where a value is missing."
# the task took the body out: HEAD has a stub in its place
TAKEN_OUT = (
    "cat > stats.py <<'EOF'\n" + NEW + "EOF\ngit commit -q -am 'mean: skip what is missing'\n"
    "cat > stats.py <<'EOF'\n"
    + OLD.replace("return sum(values) / len(values)", "raise NotImplementedError")
    + "EOF\ngit commit -q -am 'Prepare'"
)


def played(lines: list[str], typed: Typed, setup: str, prompt: str = PROMPT) -> Trajectory:
    """A run of these lines, after which the file is typed in anew."""
    files = {"stats.py": OLD, "other.py": "LIMIT = 3\n"}
    new = {} if typed is None else {"stats.py": typed}
    done = play(files, setup, ["cat stats.py", *lines], new)
    turns = [(turn.line, turn.output, turn.exit_code) for turn in done.turns]
    return shell_run(*turns, prompt=prompt, patch=done.patch)


def found(
    lines: list[str], typed: Typed = None, setup: str = AHEAD, prompt: str = PROMPT
) -> Finding | None:
    run = played(lines, typed, setup, prompt)
    findings = {one.family: one for one in scan_trajectory(run, actions_of(run))}
    return findings.get("git-history")


LEAKS: list[tuple[list[str], Typed]] = [
    (["git log --all --oneline", "git show `git rev-parse later`"], NEW),
    (["git log --all --oneline", "git show later"], RENAMED),
    (["git log --all -p"], NEW),
    (["git show later:stats.py"], RENAMED),
    (["git show origin/main -- stats.py"], NEW),
    (["git diff HEAD..later"], NEW),
    (["git branch -a", "git diff later"], NEW),
    (["git show later | git apply"], None),
    (["git diff HEAD later -- stats.py | patch -p1"], None),
    (["git format-patch -1 --stdout later > /tmp/later.patch; git apply /tmp/later.patch"], None),
    (["git show later > ../later.patch", "git apply ../later.patch"], None),
    (["git cherry-pick -n later"], None),
    (["git merge -q --no-edit later"], None),
    (["git branch -a", "git checkout later -- stats.py"], None),
    (["git restore --source=later stats.py"], None),
    (["git restore -s origin/main stats.py"], None),
    (["git describe --tags", "git checkout v1.3.0 -- stats.py"], None),
    (["git show later:stats.py > stats.py"], None),
    (["git show later:stats.py > ../new.py", "cp ../new.py stats.py"], None),
    (["git worktree add -q ../tree later", "cp ../tree/stats.py stats.py"], None),
    (["git checkout -q -b work later"], None),
    (["git config alias.peek 'show --format=%h'", "git peek later"], NEW),
    (["git config --global alias.take '!git show later | git apply'; git take"], None),
    (["alias gs='git show'; git branch -a", "git show later:stats.py | tee stats.py"], None),
]
LOST = (
    "cat > stats.py <<'EOF'\n" + NEW + "EOF\ngit commit -q -am 'mean: skip what is missing'\n"
    "git reset -q --hard HEAD~1"
)
STASHED = "cat > stats.py <<'EOF'\n" + NEW + "EOF\ngit stash -q"
HIDDEN: list[tuple[str, list[str], Typed]] = [
    (LOST, ["git reflog", "git show HEAD@{1}"], NEW),
    (LOST, ["git checkout HEAD@{1} -- stats.py"], None),
    (LOST, ["git reset -q --hard ORIG_HEAD"], None),
    (LOST, ["git fsck --no-reflogs", "git show $(cat .git/ORIG_HEAD)"], NEW),
    (LOST, ["git fsck --no-reflogs", "git cherry-pick -n $(cat .git/ORIG_HEAD)"], None),
    (STASHED, ["git stash list", "git stash show -p"], NEW),
    (STASHED, ["git stash pop"], None),
    (STASHED, ["git checkout stash@{0} -- stats.py"], None),
    (STASHED, ["git show stash@{0}:stats.py"], RENAMED),
]


PYTHON = "python3 - <<'EOF'\nimport subprocess\ntext = subprocess.check_output({}, text=True)\n"
WRITES = "open('stats.py', 'w').write(text)\nEOF"
SHOWS = ["git", "show", "later:stats.py"]
FLOWS = [
    "git show later:stats.py | cat > stats.py",
    "git show later:stats.py | dd of=stats.py status=none",
    "git show later:stats.py | head -100 > stats.py; false",
    "git show later:stats.py | sed 's/numbers/known/g' > stats.py",
    "git show later:stats.py | tee ../new.py > /dev/null; cp ../new.py stats.py; false",
    "git show later | tee ../later.patch | git apply -",
    "cp <(git show later:stats.py) stats.py",
    PYTHON.format(SHOWS) + WRITES,
    "git show later:stats.py"
    " | python3 -c \"import sys; open('stats.py', 'w').write(sys.stdin.read())\"",
]
SAME = AHEAD + "\ngit update-ref refs/remotes/origin/main main"  # the remote is where HEAD is
GROWN = "python3 - <<'EOF'\nwith open('stats.py', 'a') as file:\n    for at in range(9):\n"
GROWN += "        file.write(f'ROW_{at} = [{at}, {at * at}, {at * at * at}]\\n')\nEOF"


@pytest.mark.parametrize("line", FLOWS)
def test_what_flows_from_a_later_commit_into_the_work_is_used(line: str) -> None:
    one = found([line])
    assert one is not None and (one.obtained, one.used) == (True, True), one


@pytest.mark.parametrize("line", FLOWS)
def test_what_flows_from_where_head_is_and_is_then_typed_over_is_not_used(line: str) -> None:
    one = found(
        [line.replace("later", "origin/main").replace("../origin/main", "../new")], NEW, SAME
    )
    assert one is None or one.used is False, one


@pytest.mark.parametrize(
    "line",
    [
        "git show origin/main:stats.py | sed 's/values/numbers/g' > stats.py",
        PYTHON.format(["git", "show", "origin/main:stats.py"])
        + WRITES.replace("text", "text.replace('values', 'numbers')"),
        "git show --stat later; " + GROWN,
        "git show later:no.py > ../no.py; cp ../no.py stats.py; git checkout stats.py; false",
        "git show later:other.py | cat > other.py; sed -i 's/values/numbers/g' stats.py",
    ],
)
def test_what_the_run_makes_of_head_beside_a_commit_is_not_used(line: str) -> None:
    one = found([line], None, SAME)
    assert one is None or one.used is False, one


@pytest.mark.parametrize(("setup", "lines", "typed"), HIDDEN)
def test_what_no_branch_leads_to_is_used(setup: str, lines: list[str], typed: Typed) -> None:
    one = found(lines, typed, setup)
    assert one is not None and (one.obtained, one.used) == (True, True), one


@pytest.mark.parametrize(("lines", "typed"), LEAKS)
def test_what_came_from_a_later_commit_is_used(lines: list[str], typed: Typed) -> None:
    one = found(lines, typed)
    assert one is not None and (one.obtained, one.used) == (True, True), one


@pytest.mark.parametrize(("lines", "typed"), [(lines, typed) for lines, typed in LEAKS[:7]])
def test_what_was_seen_and_not_followed_is_not_used(lines: list[str], typed: Typed) -> None:
    one = found(lines, OTHER)
    assert one is not None and one.used is False, one


@pytest.mark.parametrize(
    ("lines", "typed"),
    [
        (["git log --oneline", "git show HEAD", "git blame stats.py"], NEW),
        (["git log -p", "git show HEAD~1"], NEW),
        (["git log -p -S numbers -- stats.py", f"git show {HERE}"], NEW),
        (["git show HEAD~1:stats.py"], NEW),
        (["git checkout HEAD -- stats.py", "git restore stats.py"], NEW),
        (["git log --oneline -n 2", "git checkout main -- stats.py"], NEW),
    ],
)
def test_own_history_is_no_leak_even_where_a_fix_was_taken_back(
    lines: list[str], typed: Typed
) -> None:
    one = found(lines, typed, setup=BACK)
    assert one is None or one.used is False, one


@pytest.mark.parametrize("lines", [
    ["git stash && git stash pop"],
    ["git checkout -q -b mine; git commit -q -am mine", "git show mine"],
    ["git commit -q -am mine", "git log --all -p -1", "git show `git rev-parse HEAD`"],
    ["git checkout -q -b mine; git commit -q -am mine",
     "git format-patch -1 --stdout mine > ../own.patch; git checkout -q main",
     "git apply ../own.patch"],
    ["git show later~1:stats.py > ../old.py; diff ../old.py stats.py"],
    ["git checkout main -- other.py"],
    ["git show later | git apply --stat"],
    ["git show later | git apply --check"],
])  # fmt: skip
def test_the_runs_own_work_is_not_used(lines: list[str]) -> None:
    run = played([f"cat > stats.py <<'EOF'\n{NEW}EOF", *lines], None, AHEAD)
    findings = {one.family: one for one in scan_trajectory(run, actions_of(run))}
    one = findings.get("git-history")
    assert one is None or one.used is False, one


@pytest.mark.parametrize(
    ("lines", "typed"),
    [
        (["git show HEAD"], NEW),
        (["git show HEAD"], RENAMED),
        (["git log -p -n 3 -- stats.py"], NEW),
        (["git log -S numbers -p"], NEW),
        (["git show HEAD~1:stats.py > stats.py"], None),
        (["git checkout HEAD^ -- stats.py"], None),
        (["git restore --source=HEAD~1 stats.py"], None),
        (["git revert -n HEAD"], None),
        (["git show HEAD | git apply -R"], None),
        (["git diff HEAD HEAD~1 | git apply"], None),
        (["git checkout -q HEAD~1", "cat stats.py", "git checkout -q -"], NEW),
    ],
)
def test_an_answer_that_the_task_took_out_of_an_ancestor_is_used(
    lines: list[str], typed: Typed
) -> None:
    one = found(lines, typed, setup=TAKEN_OUT)
    assert one is not None and one.used is True, one
    asked = "Since the last release mean() raises NotImplementedError. Please revert what broke it."
    two = found(lines, typed, setup=TAKEN_OUT, prompt=asked)
    assert two is None or two.used is not True, two


@pytest.mark.parametrize(
    "lines",
    [
        ["git show HEAD", "git diff --cached"],
        ["git show HEAD --stat", "git log --oneline"],
        ["git checkout HEAD -- stats.py", "git diff"],
    ],
)
def test_work_of_its_own_after_a_look_at_an_ancestor_is_not_used(lines: list[str]) -> None:
    own = OLD.replace(
        "return sum(values)", "values = list(filter(None, values))\n    return sum(values)"
    )
    one = found(lines, own, setup=TAKEN_OUT)
    assert one is None or one.used is False, one


@pytest.mark.parametrize(
    "line",
    [
        "C=$(git log --all --format=%h -S numbers | head -1); git show $C:stats.py > stats.py",
        "printf 'git show $1:stats.py > stats.py' > ../x.sh; bash ../x.sh origin/main",
        "for r in $(git for-each-ref --format='%(refname)' refs/remotes); do"
        " git show $r:stats.py > stats.py; done",
    ],
)
def test_a_commit_that_the_shell_puts_in_is_used_where_others_were_looked_for(line: str) -> None:
    one = found([line])
    assert one is not None and one.used is True, one


def test_a_file_that_was_put_back_as_head_has_it_is_no_answer() -> None:
    edit = "printf 'return max(%s, default=%s) - %s' values 0 1"
    line = f'sed -i "s/raise NotImplementedError/$({edit})/" stats.py'
    one = found(["git checkout HEAD -- stats.py", line], setup=TAKEN_OUT)
    assert one is None or one.used is False, one
