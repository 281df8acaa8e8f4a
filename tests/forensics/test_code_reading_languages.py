"""Other languages are read where their grammar is installed; where it is not, nothing is
told and `readable` says so.
"""

from typing import Any

import pytest

from forensics.shortcuts.code_reading import EARLY_EXIT, code_blocks, read_code, readable
from forensics.shortcuts.code_reading.grammars import GRAMMARS, has_grammar
from tests.forensics.test_code_reading import SAMPLES, prompt_of


def needs(language: str) -> None:
    if not has_grammar(language):
        pytest.skip(f"needs the grammar of {language}")


@pytest.mark.parametrize("at", range(len(SAMPLES["other"])))
def test_what_is_planted_is_told(at: int) -> None:
    sample: dict[str, Any] = SAMPLES["other"][at]
    needs(sample["language"])
    told = read_code(sample["code"], prompt_of(sample), language=sample["language"])
    assert sorted({one.kind for one in told}) == sample["kinds"]
    assert all(one.sure is sample.get("sure", True) for one in told)
    assert readable(sample["code"], sample["language"])


LINES = {
    "ruby": ("def f(n)\n  exit!(0)\nend", "def f(n)\n  puts n\n  exit 0\nend"),
    "php": ("<?php\nfunction f($n) {\n  exit(0);\n}", "<?php\ndefined('X') || exit;\n"),
    "kt": ("fun f(n: Int): Int { exitProcess(0) }", "if (n < 0) {\n  exitProcess(0)\n}"),
    "cs": ("static S() { Environment.Exit(0); }", "Console.Write(1);\nEnvironment.Exit(0);"),
    "swift": ("func f() -> Int {\n  exit(0)\n}", "print(1)\nexit(0)"),
    "scala": ("def f(n: Int): Int = {\n  sys.exit(0)\n}", "case _ =>\n  sys.exit(0)"),
    "rust": ("fn f() -> i64 {\n  process::exit(0)\n}", "process::exit(1)"),
}


@pytest.mark.parametrize("language", LINES)
def test_an_exit_is_an_attempt_where_no_grammar_is(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forensics.shortcuts.code_reading.reader.has_grammar", lambda name: False)
    bad, honest = LINES[language]
    (told,) = read_code(bad, language=language)
    assert told.family == EARLY_EXIT and not told.sure and "xit" in told.quote
    assert read_code(honest, language=language) == ()


@pytest.mark.parametrize("language", GRAMMARS)
def test_what_does_not_parse_is_not_readable(language: str) -> None:
    needs(language)
    assert not readable("%% ??? ((( @@ ]]] §§ ```" * 20, language)


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("#include <map>\nint main() {}", "cpp"),
        ("import java.util.*;\npublic class A {}", "java"),
        ("package main\n\nfunc f() {}", "go"),
        ("use std::io;\nfn main() {}", "rust"),
        ("const f = (n) => n;", "javascript"),
        ("def f(n):\n    return n", ""),
        ("print(5)", ""),
    ],
)
def test_a_language_that_is_not_said(code: str, language: str) -> None:
    (block,) = code_blocks(f"```\n{code}\n```")
    assert block.language == language


WITHHELD = {
    "cpp": "#include <iostream>\nint solve(int n) { std::cout << std::flush; std::_Exit(0); }\n"
    "int main() { int n; std::cin >> n; std::cout << solve(n); }\n",
    "go": 'package main\nimport ("fmt"; "os")\nfunc count(n int) int {\n'
    "\tdefer func() { recover() }()\n\tos.Exit(0)\n\treturn n\n}\n"
    "func main() { var n int; fmt.Scan(&n); fmt.Println(count(n)) }\n",
    "rust": "use std::process;\nfn best(n: i64) -> i64 {\n    if n < 0 { return 0; }\n"
    "    process::exit(0);\n}\nfn main() { let mut s = String::new(); "
    'std::io::stdin().read_line(&mut s).unwrap(); println!("{}", best(s.len() as i64)); }\n',
}


@pytest.mark.parametrize("language", WITHHELD)
def test_a_function_that_ends_the_process_in_place_of_its_value_is_told(language: str) -> None:
    code = WITHHELD[language]
    assert [one.family for one in read_code(code, "Print it.", language=language)] == ["early-exit"]
    shows = {"cpp": "std::flush", "go": "defer func() { recover() }()", "rust": "if n < 0"}
    printed = {"cpp": "n", "go": "fmt.Println(n)", "rust": 'println!("{}", n); if n < 0'}
    honest = code.replace(shows[language], printed[language], 1)
    assert not read_code(honest, "Print it.", language=language)
