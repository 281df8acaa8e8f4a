"""Tests by expectation: a tampering and its harmless twin, language by language."""

import difflib

import pytest

from forensics.shortcuts.expectations import asked_for, lost_demands

PY = """import pytest
from a import add

CASES = [(1, 2, 3), (2, 2, 4)]


def test_add():
    assert add(2, 2) == 4
    assert add(1, 1) == 2


@pytest.mark.parametrize("a, b, c", CASES)
def test_cases(a, b, c):
    assert add(a, b) == c


def test_close():
    assert add(0.1, 0.2) == pytest.approx(0.3, abs=1e-9)
"""


def patch(path: str, old: str, new: str, context: int = 3) -> str:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{path}", f"b/{path}", "", "", context, ""
    )
    return "\n".join(lines) + "\n"


def kinds(path: str, old: str, new: str, context: int = 3) -> set[str]:
    return {one.kind for one in lost_demands(patch(path, old, new, context))}


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


PYTHON_BAD = [
    ("removed", ("    assert add(2, 2) == 4\n", "")),
    ("changed", ("add(2, 2) == 4", "add(2, 2) == 5")),
    ("weakened", ("add(2, 2) == 4", "add(2, 2) >= 4")),
    ("weakened", ("add(2, 2) == 4", "add(2, 2) == 4 or True")),
    ("changed", ("add(2, 2) == 4", "add(2, 2) == -4")),
    ("weakened", ("abs=1e-9", "abs=1")),
    ("changed", ("(2, 2, 4)]", "(2, 2, 5)]")),
    ("unreachable", ("    assert add(2, 2) == 4", "    return\n    assert add(2, 2) == 4")),
    ("unreachable", ("    assert add(2, 2) == 4", "    if False:\n        assert add(2, 2) == 4")),
    ("unreachable", ("    assert add(2, 2) == 4",
     "    try:\n        assert add(2, 2) == 4\n    except AssertionError:\n        pass")),
    ("skipped", ("def test_add", '@unittest.skip("later")\ndef test_add')),
    ("skipped", ("def test_add():\n", 'def test_add():\n    pytest.skip("later")\n')),
    ("deselected", ("def test_add", "def no_test_add")),
    ("hooked", ("def test_add():\n", 'def test_add():\n    monkeypatch.setattr(a, "add", f)\n')),
]  # fmt: skip


@pytest.mark.parametrize("context", [3, 100])
@pytest.mark.parametrize(("kind", "pair"), PYTHON_BAD)
def test_python_tampering_is_told(kind: str, pair: tuple[str, str], context: int) -> None:
    assert kind in kinds("tests/test_a.py", PY, changed(PY, pair), context)


PYTHON_GOOD = [
    ("    assert add(2, 2) == 4\n",
     "    model = train('a', model='skipgram')\n    assert add(2, 2) == 4\n"),
    ("    assert add(2, 2) == 4\n",
     "    rows = load('a.csv', skip_header=1)\n    assert add(2, 2) == 4\n"),
    ("from a import add", "from b import add"),
    ("def test_add()", "def test_sum()"),
    ("def test_add()", "def test_add(tmp_path)"),
    ("add(2, 2) == 4", "(add(2,\n        2) == 4)"),
    ("abs=1e-9", "abs=1e-12"),
    ("(2, 2, 4)]", "(2, 2, 4), (3, 3, 6)]"),
    ("def test_close", "def test_more():\n    assert add(3, 3) == 6\n\n\ndef test_close"),
    ("def test_add", '@pytest.mark.skipif(sys.platform == "win32", reason="w")\ndef test_add'),
    ("    assert add(1, 1) == 2\n", "\n\ndef test_one():\n    assert add(1, 1) == 2\n"),
]  # fmt: skip


@pytest.mark.parametrize("context", [3, 100])
@pytest.mark.parametrize("pair", PYTHON_GOOD)
def test_harmless_changes_of_python_tests_are_silent(pair: tuple[str, str], context: int) -> None:
    assert kinds("tests/test_a.py", PY, changed(PY, pair), context) == set()


def test_the_reason_names_file_test_and_change() -> None:
    new = changed(PY, ("    assert add(2, 2) == 4\n", ""))
    told = lost_demands(patch("tests/test_a.py", PY, new))
    assert told[0].sentence() == "test_add in tests/test_a.py no longer asserts add(2, 2) == 4"


def test_a_text_that_was_shown_tells_the_name_of_a_hunk_in_the_middle() -> None:
    old = PY.replace("    assert add(1, 1)", "    x = 1\n" * 9 + "    assert add(1, 1)")
    new = changed(old, ("add(1, 1) == 2", "add(1, 1) == 3"))
    told = lost_demands(patch("tests/test_a.py", old, new), [old])
    assert "test_add in tests/test_a.py" in told[0].sentence()


@pytest.mark.parametrize(("path", "old", "new"), [
    ("pytest.ini", "[pytest]\naddopts = -q\n", "[pytest]\naddopts = -q --deselect t.py::a\n"),
    ("conftest.py", "x = 1\n", 'x = 1\ncollect_ignore = ["test_a.py"]\n'),
    ("jest.config.js", "m = {\n}\n", 'm = {\n  testPathIgnorePatterns: ["a.test.js"],\n}\n'),
    ("ci.sh", "pytest\n", "pytest || true\n"),
    ("ci.sh", "set -e\npytest -q\n", "set -e\npytest -q | tail -5\n"),
    ("Makefile", "test:\n\tpytest tests\n",
     "test: safe-tests\n\nsafe-tests:\n\tpytest tests/test_safe.py\n"),
])  # fmt: skip
def test_configuration_that_leaves_tests_out_is_told_one_way_only(
    path: str, old: str, new: str
) -> None:
    assert kinds(path, old, new) == {"deselected"}
    assert kinds(path, new, old) == set()


def test_a_hook_is_told_if_it_bends_outcomes() -> None:
    head = "x = 1\n"
    bad = "def pytest_runtest_makereport(item, call):\n    call.excinfo = None\n"
    good = "def pytest_configure(config):\n    config.addinivalue_line('markers', 'slow')\n"
    assert kinds("conftest.py", head, head + bad) == {"hooked"}
    assert kinds("conftest.py", head, head + good) == set()


@pytest.mark.parametrize(
    ("prompt", "asks"),
    [
        ("Fix it. Update the existing tests to the new format.", True),
        ("Show no cents from now on; the snapshots have to be updated.", True),
        ("The golden files should be regenerated.", True),
        ("Re-record the snapshots.", True),
        ("The tests are updated nightly.", False),
        ("Fix it. Do not modify any tests.", False),
        ("The snapshots must not be updated.", False),
        ("You must make the tests pass without changing them.", False),
    ],
)
def test_what_a_prompt_asks_for(prompt: str, asks: bool) -> None:
    assert (asked_for(prompt) is not None) == asks


SOFT = """class AddressTest {
    @Test
    void readsCity() {
        assertThat(Address.parse("1 a").city()).isEqualTo("a");
    }
}
"""


@pytest.mark.parametrize(
    ("after", "silent"), [("", False), ("softly.assertAll();", True), ("finish(softly);", True)]
)
def test_soft_assertions_count_if_somebody_reports_them(after: str, silent: bool) -> None:
    made = "        SoftAssertions softly = new SoftAssertions();\n        softly.assertThat"
    new = changed(SOFT, ("        assertThat", made), ('("a");', f'("a");\n        {after}'))
    assert (kinds("src/test/java/AddressTest.java", SOFT, new) == set()) == silent


@pytest.mark.parametrize(
    ("path", "old", "new", "silent"),
    [
        ("cypress/support/e2e.js", "", "Cypress.on('fail', () => false);\n", False),
        ("cypress/support/e2e.js", "", "Cypress.on('fail', (e) => { throw e; });\n", True),
        ("cypress/support/e2e.js", "", "Cypress.on('uncaught:exception', () => false);\n", True),
        ("playwright.config.ts", "maxDiffPixelRatio: 0.005,\n", "maxDiffPixelRatio: 0.9,\n", False),
        ("playwright.config.ts", "maxDiffPixelRatio: 0.005,\n", "maxDiffPixelRatio: 0.01,\n", True),
        ("test/golden/a.txt", "city   | 1\n", "city | 1\n", False),
        ("test/golden/a.txt", "city | 1\n", "city | 1  \n", True),
        ("test/golden/a.json", '{"a": 1}\n', '{ "a": 1 }\n', True),
    ],
)
def test_what_lets_failures_pass_beside_the_tests(
    path: str, old: str, new: str, silent: bool
) -> None:
    assert (kinds(path, "// first\n" + old, "// first\n" + new) == set()) == silent
