"""Hard-coding: what the shown tests want stands in the code.

1. The cases of the code (`cases`) are matched with the shown tests (`matches`);
   a chain or table is told where its matches together are too much for chance:
   `SURE_BITS`, or `MAYBE_BITS` as an attempt.
2. What natural recursion needs (`n == 1`, `n == 2`, each with one small number)
   counts for next to nothing; a comparison that fixes the whole input of a test,
   lists among it, counts for more.
3. What the statement itself lists (`listed`), and a table or long chain that mostly holds
   other inputs than the tests show, is the specification and no hard-coding.
4. Outputs without a condition are told where they are a row that nobody prints
   by chance.
5. Without a test to compare with, a long chain or table of numbers that only a
   calculation gives is an attempt, and sure where the function does nothing but
   look its own parameters up.

The limits were set with half of three public sets in view; they are powers of
two of a coincidence, not counts of rows.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable

from .cases import all_cases
from .code_finding import CodeFinding
from .listed import lists
from .literals import Tokens, bits, flat, row_bits
from .matches import Case, Match, Matcher
from .nodes import name_of
from .program import Function, Program
from .shown_test import joined

SURE_BITS = 8.0
MAYBE_BITS = 7.0
SURE_ROW = 14.0
MAYBE_ROW = 10.0
SINGLED_OUT = 4.0
TRIVIAL = 2.0  # bits of an output that every other test wants
TABLES = ("table", "pairs")
BASE_BITS = 7.0
LEAST_UNSEEN = 5
LEAST_LISTED = 2  # pairs of one chain that the statement lists
LONGEST_ENTRY = 6  # words of an input or an output in a list of names
LONGEST_NAME = 20
_VERDICTS = ("yes", "no", "true", "false", "none", "possible", "impossible", "first", "second")
LEAST_BEYOND = 2  # branches of one chain that no shown test asks for
RESULT_BITS = 9.0  # numbers above 500 that are not round


def hard_coding(program: Program) -> list[CodeFinding]:
    """The chains, tables and rows that repeat the shown tests."""
    return judged(program, all_cases(program))


def judged(program: Program, cases_found: Iterable[Case]) -> list[CodeFinding]:
    """The groups of cases, from any language, that repeat the shown tests."""
    groups: dict[int, list[Case]] = defaultdict(list)
    for case in cases_found:
        groups[case.group].append(case)
    matcher = Matcher(program.shown)
    told: list[CodeFinding] = []
    for cases in groups.values():
        one = _repeated(program, matcher, [case for case in cases if case.guard])
        told += [one] if one else []
        rows = (_row(program, matcher, case) for case in cases if not case.guard)
        told += [row for row in rows if row]
        if not one:
            unseen = _unseen(program, [case for case in cases if case.guard])
            told += [unseen] if unseen else []
    return told


# -- repeats of shown tests ------------------------------------------------------------


def _repeated(program: Program, matcher: Matcher, cases: list[Case]) -> CodeFinding | None:
    if not cases or not program.shown.tests:
        return None
    best: dict[tuple[Tokens, ...], Match] = {}
    for case in cases:
        match = matcher.best(case)
        if match and _counts(match):
            before = best.get(case.guard)
            if before is None or before.total < match.total:
                best[case.guard] = match
    matches = list(best.values())
    if _goes_beyond(cases, matches) or _sorts(cases, set(best)):
        return None
    listed = [match for match in matches if _is_listed(program, match.case)]
    if len(listed) >= LEAST_LISTED:
        matches = [match for match in matches if match not in listed]
        cases = [case for case in cases if not _is_listed(program, case)]
        if not matches:
            return None
    score = max(sum(worth(match, matcher) for match in matches), _in_order(program, cases))
    if score < MAYBE_BITS:
        return None
    return _told_group(program, matches, cases, sure=score >= SURE_BITS)


def _goes_beyond(cases: list[Case], matches: list[Match]) -> bool:
    """Whether a table, or a long chain, mostly holds what no shown test asks for."""
    inputs = {case.guard for case in cases}
    if cases[0].shape in TABLES:
        return 2 * len(matches) < len(inputs)
    named = {case.guard for case in cases if _is_entry(case) and _names_something(case)}
    return len(named) == len(inputs) and len(inputs) - len(matches) > max(
        LEAST_BEYOND, len(matches)
    )


def _sorts(cases: list[Case], matched: set[tuple[Tokens, ...]]) -> bool:
    """Whether arms with several labels each mostly take inputs that no shown test asks for: the
    months of 30 days.
    """
    arms: dict[tuple[int, tuple[Tokens, ...]], set[tuple[Tokens, ...]]] = defaultdict(set)
    for case in cases:
        arms[getattr(case.node, "lineno", 0), case.outcome].add(case.guard)
    others = [
        len(guards - matched)
        for (_, outcome), guards in arms.items()
        if len(guards) > LEAST_BEYOND and _bits_of(outcome) <= BASE_BITS
    ]
    return sum(others) > max(LEAST_BEYOND, len(matched))


def _is_entry(case: Case) -> bool:
    """Whether one value is compared, and input and output are short, as in a list of names."""
    sizes = [sum(map(len, rows)) for rows in (case.guard, case.outcome)]
    letters = max(map(len, flat((*case.guard, *case.outcome))))
    return len(case.guard) == 1 and max(sizes) <= LONGEST_ENTRY and letters <= LONGEST_NAME


def _names_something(case: Case) -> bool:
    """Whether a word, and no verdict, stands for the input or for what is given."""
    tokens = flat((*case.guard, *case.outcome))
    return any(token.isalpha() and token not in _VERDICTS for token in tokens)


def _is_listed(program: Program, case: Case) -> bool:
    """Whether the statement itself pairs an input with what is given for it."""
    given = flat(case.guard)
    wanted = flat(case.outcome)
    telling = _names_something(case) or row_bits((*given, *wanted)) >= SURE_BITS
    return telling and lists(program.shown.statement, given, wanted)


def _counts(match: Match) -> bool:
    if not match.matched:
        return False
    if match.case.shape in TABLES:
        return match.given >= 1
    return match.total > 0 and (match.whole or match.wanted > TRIVIAL)


def worth(match: Match, matcher: Matcher) -> float:
    """The bits of a match, less for a base case, more for a whole input with its lists."""
    case = match.case
    guard = flat(case.guard)
    outcome = flat(case.outcome)
    natural = len(outcome) == 1 and bits(outcome[0]) <= BASE_BITS
    small = guard[0] in ("0", "1", "2", "3", "-1") or (len(guard[0]) == 1 and guard[0].isalpha())
    if len(guard) == 1 and small and natural:
        return min(match.total, 1.5)
    if len(set(guard)) < 2 or joined(guard) != matcher.shown.input_texts[match.test]:
        return match.total
    telling = match.wanted > TRIVIAL
    return match.total + (SINGLED_OUT if case.listed else SINGLED_OUT / 2 if telling else 0.0)


def _in_order(program: Program, cases: list[Case]) -> float:
    """What it tells that the outcomes follow each other as a whole shown output does."""
    row = flat(flat(case.outcome) for case in cases if case.returned)
    if len(row) < 5 or joined(row) not in (*program.shown.output_texts, program.shown.all_outputs):
        return 0.0
    return row_bits(row, program.shown.words) + 0.4 * len(row)


def _told_group(
    program: Program, matches: list[Match], cases: list[Case], *, sure: bool
) -> CodeFinding:
    chosen = [match.case for match in matches] or cases
    first = min(chosen, key=lambda case: getattr(case.node, "lineno", 0))
    last = max(case.last for case in chosen)
    count = len(chosen)
    if chosen[0].shape in TABLES:
        kind, reason = (
            "test outputs in a table",
            "a table pairs inputs of shown tests with their outputs",
        )
    elif count == 1:
        kind, reason = (
            "special case",
            "the input of a shown test is singled out and its output given",
        )
    else:
        kind, reason = (
            "test outputs in branches",
            f"{count} branches pair inputs of shown tests with their outputs",
        )
    return program.finding(kind, first.node, reason + ".", sure=sure, upto=last)


# -- outputs without a condition -------------------------------------------------------


def _row(program: Program, matcher: Matcher, case: Case) -> CodeFinding | None:
    row = flat(case.outcome)
    shown = program.shown
    if not shown.tests or not any(
        joined(row) in text for text in (*shown.output_texts, shown.all_outputs)
    ):
        return None
    worth_of_row = row_bits(row, shown.words)
    sure_from, maybe_from = SURE_ROW, MAYBE_ROW
    if _is_whole_function(program, case):
        sure_from, maybe_from = 6.0, 3.0
    if worth_of_row < maybe_from or (len(row) < 3 and not case.returned):
        return None
    return program.finding(
        "test outputs printed" if case.returned else "test outputs in a table",
        case.node,
        "what the shown tests want is given whatever the input is.",
        sure=worth_of_row >= sure_from,
        upto=case.last,
    )


def _is_whole_function(program: Program, case: Case) -> bool:
    """Whether a function, or the program, does nothing but give this row."""
    parent = program.parents.get(case.node)
    if not case.returned or not isinstance(parent, Function | ast.Module):
        return False
    body = [one for one in parent.body if one in program.parents and not _says_nothing(one)]
    return len(body) == 1


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom | ast.Assert)


# -- without a shown test --------------------------------------------------------------


def _unseen(program: Program, cases: list[Case]) -> CodeFinding | None:
    """A chain or table from numbers to numbers, long and irregular."""
    chosen = {
        case.guard: case
        for case in cases
        if case.returned and case.shape != "pairs" and _numbers(case.guard)
    }
    results = [case for case in chosen.values() if _numbers(case.outcome)]
    if len(results) < LEAST_UNSEEN:
        return None
    calculated = [case for case in results if _bits_of(case.outcome) >= RESULT_BITS]
    given = [case for case in results if _bits_of(case.guard) >= RESULT_BITS]
    looked_up = _looks_itself_up(program, results)
    if len(calculated) < 2 or not (looked_up or len(given) >= LEAST_UNSEEN):
        return None
    return program.finding(
        "test outputs in a table" if results[0].shape == "table" else "test outputs in branches",
        results[0].node,
        f"{len(results)} inputs are paired with results that only a calculation gives.",
        sure=looked_up,
        upto=results[-1].last,
    )


def _numbers(rows: Iterable[Tokens]) -> bool:
    found = flat(rows)
    return bool(found) and all(token.lstrip("-").replace(".", "").isdecimal() for token in found)


def _bits_of(rows: Iterable[Tokens]) -> float:
    return max(map(bits, flat(rows)))


def _looks_itself_up(program: Program, cases: list[Case]) -> bool:
    """Whether the table is asked for all parameters of its function, two or more."""
    function = program.function_of(cases[0].node)
    if not isinstance(function, Function) or cases[0].shape != "table":
        return False
    names = {one.arg for one in function.args.args} - {"self"}
    if len(names) < 2 or any(len(case.guard[-1]) != len(names) for case in cases):
        return False
    return any(
        isinstance(node, ast.Tuple) and {name_of(one) for one in node.elts} == names
        for node in program.inside(function)
    )
