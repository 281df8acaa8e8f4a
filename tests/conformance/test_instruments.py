"""Every installed instrument through the same checks, on synthetic logs with a known cause."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forensics import conformance
from forensics.case import Case
from forensics.conformance import rewritten, without_logs
from forensics.instruments import Instrument, installed_instruments
from forensics.planted import planted_case
from forensics.records import Evidence, Step, Trajectory, Undefined, canonical_json
from tests.conformance.expectations import AFTER, BEFORE, FINDS, NEEDS_OUTCOMES, SIGNED

TOOLS = installed_instruments()
IDENTICAL_PAIRS = 20


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """One case for each planted cause: 40 tasks, 4 runs of each, two sides, two worlds."""
    folder = tmp_path_factory.mktemp("planted")
    kinds = enumerate(AFTER.items())
    return {
        kind: planted_case(folder / kind, BEFORE, after, tasks=40, seed=number)
        for number, (kind, after) in kinds
    }


@pytest.fixture(scope="module")
def identical(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """A/A pairs: one policy against itself, with independent streams."""
    folder = tmp_path_factory.mktemp("identical")
    return [
        planted_case(folder / str(seed), BEFORE, BEFORE, tasks=24, samples=2, seed=100 + seed)
        for seed in range(IDENTICAL_PAIRS)
    ]


@pytest.fixture(params=TOOLS, ids=lambda tool: tool.name)
def tool(request: pytest.FixtureRequest) -> Instrument:
    return request.param


def test_our_instruments_are_found_through_their_entry_points() -> None:
    assert {"behaviour", "score"} <= {tool.name for tool in TOOLS}


def test_answers_what_it_declares(tool: Instrument, planted: dict[str, Case]) -> None:
    conformance.check_questions(tool, planted["leak"])


@pytest.mark.parametrize("kind", AFTER)
def test_finds_the_planted_cause(tool: Instrument, kind: str, planted: dict[str, Case]) -> None:
    if tool.name not in FINDS:
        measured = [
            a for a in conformance.answers(tool, planted[kind]).values() if isinstance(a, Evidence)
        ]
        assert not measured, (
            f"say in tests/conformance/expectations.py what {tool.name} should find in logs"
        )
        pytest.skip("needs more than logs")
    conformance.check_finds(tool, planted[kind], FINDS[tool.name].get(kind, ()))


def test_is_silent_on_identical_policies(tool: Instrument, identical: list[Case]) -> None:
    conformance.check_silent(tool, identical, signed=SIGNED.get(tool.name, ()))


def test_swapping_the_sides_flips_the_sign(tool: Instrument, planted: dict[str, Case]) -> None:
    for kind in ("leak", "echo"):
        conformance.check_swap(tool, planted[kind], signed=SIGNED.get(tool.name, ()))


def test_same_seed_same_bits(tool: Instrument, planted: dict[str, Case]) -> None:
    conformance.check_same_bits(tool, planted["leak"])


@pytest.fixture(scope="module")
def shuffled(planted: dict[str, Case], tmp_path_factory: pytest.TempPathFactory) -> Case:
    generator = np.random.default_rng(5)
    return rewritten(
        planted["leak"],
        tmp_path_factory.mktemp("shuffled"),
        lambda runs: [runs[i] for i in generator.permutation(len(runs))],
    )


def test_the_order_of_trajectories_does_not_matter(
    tool: Instrument, planted: dict[str, Case], shuffled: Case
) -> None:
    """As `conformance.check_order`, with one shuffled case for all of them."""
    said = [
        list(map(canonical_json, conformance.answers(tool, case).values()))
        for case in (planted["leak"], shuffled)
    ]
    assert said[0] == said[1]


def test_findings_survive_a_save(
    tool: Instrument, planted: dict[str, Case], tmp_path: Path
) -> None:
    conformance.check_saved(tool, planted["echo"], tmp_path)


def _change_runs(**fields: object) -> Callable[[list[Trajectory]], list[Trajectory]]:
    return lambda runs: [run.model_copy(update=fields) for run in runs]


def _change_steps(**fields: object) -> Callable[[list[Trajectory]], list[Trajectory]]:
    def poorer(step: Step) -> Step:
        return step.model_copy(update=fields)

    return lambda runs: [
        run.model_copy(update={"steps": tuple(map(poorer, run.steps))}) for run in runs
    ]


POORER = {
    "outcomes": _change_runs(outcome=None),
    "submissions": _change_runs(submission=None),
    "tokens": _change_steps(token_ids=None, sampled=None, logprobs=None),
    "kinds": _change_steps(kinds=()),
}


@pytest.fixture(scope="module")
def poorer(
    planted: dict[str, Case], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Case]:
    """The case of the leak with something taken from one side, or from both; made once."""

    @cache
    def made(what: str, side: str) -> Case:
        folder = tmp_path_factory.mktemp("poorer")
        return rewritten(planted["leak"], folder, POORER[what], only=[side] if side else [])

    return made


@pytest.mark.parametrize(
    "side",
    ["after-0", *(pytest.param(side, marks=pytest.mark.slow) for side in ("before", ""))],
)
@pytest.mark.parametrize("what", POORER)
def test_missing_input_is_undefined(
    tool: Instrument,
    what: str,
    side: str,
    planted: dict[str, Case],
    poorer: Callable[[str, str], Case],
) -> None:
    less = poorer(what, side)
    lost = conformance.check_missing(tool, planted["leak"], less)
    if what == "outcomes" and side != "before" and tool.name in NEEDS_OUTCOMES:
        found = conformance.answers(tool, less)
        assert (
            all(isinstance(found[name], Undefined) for name in NEEDS_OUTCOMES[tool.name]) and lost
        )


def test_without_logs_every_question_is_undefined(
    tool: Instrument, planted: dict[str, Case]
) -> None:
    nothing = without_logs(planted["leak"], "before", "after-0")
    found = conformance.answers(tool, nothing)
    assert {question for question, _ in found} == set(tool.questions)
    assert all(
        isinstance(answer, Undefined) and answer.reason and answer.cure for answer in found.values()
    )


def test_one_side_alone_gives_no_comparison(tool: Instrument, planted: dict[str, Case]) -> None:
    conformance.check_missing(tool, planted["leak"], without_logs(planted["leak"], "before"))
    conformance.check_missing(tool, planted["leak"], without_logs(planted["leak"], "after-0"))
