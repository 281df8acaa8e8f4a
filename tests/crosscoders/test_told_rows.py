"""What a diff tells is read on the rows of tasks that nothing was learnt from."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from crosscoders.activations.outlier_positions import survey
from crosscoders.patching.decisions import starting_with
from crosscoders.study.causes import causes_where_they_act
from crosscoders.study.material import PAIR, SEED
from crosscoders.study.measures import measured
from tests.crosscoders.steering_world import (
    PARTS,
    SHARED,
    cued_runs,
    inquiry_of,
    known_dictionary,
    split,
    stream_of,
)


class Learnt:
    """Rows that were learnt from: whoever asks anything of them fails."""

    def __getattr__(self, name: str) -> None:
        pytest.fail(f"what is told reads `{name}` of rows that were learnt from")


@pytest.fixture(scope="module")
def dictionaries(pair):
    """The same from two first weights, so that all of it comes back."""
    return {PAIR: split(pair), f"{SEED}1": split(pair)}


@pytest.fixture(scope="module")
def inquiry(pair, tmp_path_factory):
    runs = cued_runs(pair, pair.before, pair.after)
    stream, learnt = stream_of(pair, runs), Learnt()
    streams = SimpleNamespace(
        reported=stream,
        learnt=learnt,
        chosen=learnt,
        outliers=survey(stream),
        limits=None,
        small=True,
    )
    folder = tmp_path_factory.mktemp("told")
    return inquiry_of(pair, streams, folder, behaviour=starting_with("history", runs))


@pytest.fixture(scope="module")
def found(inquiry, dictionaries):
    """Without the test of each latent, which chooses a behaviour on the rows learnt from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crosscoders.study.reported.causes_where_they_act", lambda *_, **__: {})
        return measured(inquiry, dictionaries)


def test_table_stability_and_sets_are_those_of_other_tasks(found):
    own = list(range(SHARED, SHARED + PARTS))
    assert (found.table.column("stability")[own] == 1).all()
    assert sorted(found.table.specific("after")) == own
    sets = [(one.which, one.seed) for one in found.reported.sets]
    assert sets == [("specific", 0), ("specific", 1)]
    assert {one.cause.tasks for one in found.reported.sets} == {20}


def test_what_a_latent_causes_is_told_of_other_tasks(pair, inquiry):
    tasks = sorted({text.note.task for text in inquiry.streams.reported.tokenized})
    learnt, reported = (
        inquiry.streams.reported.part(
            [one for one in inquiry.streams.reported.tokenized if one.note.task in part]
        )
        for part in (tasks[:8], tasks[8:])
    )
    asked = replace(inquiry, streams=SimpleNamespace(learnt=learnt, reported=reported))
    found = causes_where_they_act(asked, known_dictionary(pair), [SHARED], 96)
    assert found[SHARED].tasks == len(tasks) - 8 == 12
