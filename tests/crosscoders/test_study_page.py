"""The page of a diff: every figure where it belongs, nothing foreign acts, and
what was not measured is said.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crosscoders.study.diff_files import (
    CAUSES,
    DIFF,
    LATENTS,
    TOKENS,
    DiffRequest,
    read_latents,
    separating,
)
from crosscoders.study.diff_page import (
    baselines_table,
    diff_page,
    in_play,
    latent_fold,
    network_figure,
)
from crosscoders.study.pipeline import DiffStudy, next_commands
from crosscoders.study.reported import Reported
from forensics.errors import UserError
from forensics.records.files import read_json, write_json
from forensics.report import draw_page
from forensics.report.charts import draw
from tests.crosscoders.study_folder import EVIL, ROWS, latent, patching, written
from tests.resampling.test_page import Tags

METHOD = {"name": "one", "explained": 0.5, "features": 5, "feature": None, "auroc": None}


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "diff")


def page(folder):
    return draw_page(diff_page(folder))


def test_the_surest_separation_comes_first_and_the_untested_last(folder):
    found = separating(read_latents(folder, ["history", "won"]))
    assert [latent.latent for latent in found] == [3, 1, 4, 0, 2]
    top = found[0]
    assert (top.specific, top.difference, top.decoder_cosine) == ("after", 1.5, None)
    (context, _) = latent_fold(top, read_json(folder / TOKENS)["3"]).blocks
    told = [(context.text[s.start : s.end], s.value, s.framed) for s in context.spans]
    assert told == [(EVIL, 1.0, True), (" end", 0.5, False)]


def test_latents_that_come_nearest_come_back_only_where_that_was_measured(folder, tmp_path):
    unknown = page(written(tmp_path / "one", reported=[], presented=[3]))
    assert "Whether another seed finds them was not measured" in unknown
    assert "come back from every other seed, but" not in unknown
    table = pq.read_table(folder / LATENTS)
    known = table.append_column("stability", pa.array([1.0] * len(table)))
    written(folder, reported=[], presented=[3])
    pq.write_table(known, folder / LATENTS)
    assert "come back from every other seed, but are not shown to cause" in page(folder)


def test_the_network_says_its_numbers_and_frames_the_site():
    figure = network_figure(patching(), "blocks.1.hook_resid_post")
    assert figure.framed == (("residual, at the decision", "1"), ("residual, everywhere", "1"))
    assert {series.x for series in figure.series} == {("embed", "0", "1")}
    drawn = draw(figure, prefix="a")
    assert "75.0 % (65.0 to 85.0)" in drawn and "could not be told" in drawn
    texts = [e.text for e in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"75", "11", "42", "–"} <= {*texts}


def test_the_page_holds_every_part_and_no_script(folder):
    drawn = page(folder)
    tags = Tags()
    tags.feed(drawn)
    assert not {name for name, _ in tags.seen} & {"script", "img", "iframe", "link"}
    assert not any(
        key.startswith("on") or (key in ("style", "src", "href") and not str(value).startswith("#"))
        for _, found in tags.seen
        for key, value in found.items()
    )
    assert EVIL not in drawn and "\x1b" not in drawn and "&lt;img" in drawn and r"\x1b" in drawn
    for said in (
        "The change is carried.",
        "same model twice",
        "forensics diff --out D",
        "difference 1.5",
        "latent-3",
        "80.0 %",
        "could not be told",
        "cross-entropy recovered",
        "random-direction",
    ):
        assert said in drawn, said
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/\S+", "", drawn)
    assert len(drawn) < 2_000_000


def test_a_folder_that_is_not_whole_is_told_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"holds no diff\.json"):
        diff_page(tmp_path)
    folder = written(tmp_path / "diff")
    (folder / LATENTS).write_bytes((folder / LATENTS).read_bytes()[:50])
    with pytest.raises(UserError, match="is not a Parquet file"):
        diff_page(folder)
    (folder / LATENTS).unlink()
    with pytest.raises(UserError, match="--resume"):
        diff_page(folder)
    write_json(folder / DIFF, {"schema_version": 99})
    with pytest.raises(UserError, match="another version"):
        diff_page(folder)


def sections(folder):
    return {section.title: section for section in diff_page(folder).sections}


def test_latents_that_are_never_active_are_counted_and_separate_nothing(folder):
    silent = latent(5, frequency=0.0, q_value=None, difference_history=0.0)
    pq.write_table(pa.Table.from_pylist([*ROWS, silent]), folder / LATENTS)
    found = sections(folder)["What separates the steps"]
    assert [one.title for one in found.blocks] == [f"latent {n}" for n in (3, 1, 4, 0, 2)]
    assert "Left out: 1 never active." in found.hint


def test_after_a_test_on_stored_texts_play_alone_is_said_to_be_untested(tmp_path):
    folder, title = written(tmp_path / "diff", steered=False), "What happens when features are"
    assert sections(folder)[f"{title} changed"].empty.startswith("Not tested. ")
    effect = {"estimate": -0.2, "low": -0.3, "high": -0.1}
    one = {"effect": effect, "measure": "loss", "tasks": 9, "unchanged": 0.38, "random": [0.05]}
    write_json(folder / CAUSES, {"latents": {"3": {**one, "p_value": 1.0, "holds": False}}})
    found = sections(folder)
    assert found[f"{title} changed"].empty.startswith("Not tested in play")
    assert "not shown to be more than" in str(found["What separates the steps"].blocks[0])


def test_what_is_reported_opens_the_page_and_else_what_comes_nearest(folder):
    for asked, title in (([3], "The latents that are reported"), ([], "No latent is reported")):
        written(folder, reported=asked, presented=[3])
        found = sections(folder)
        assert next(iter(found)) == title
        assert [one.title for one in found[title].blocks] == ["latent 3"]
        again = found["What separates the steps"]
        assert "latent 3" not in [one.title for one in again.blocks]
        assert "1 latent above" in again.hint


def test_a_command_says_where_nothing_was_shown_on_stored_texts(folder):
    summary = {"reader_command": "steer one", "command": "steer two", "reported": [3]}
    yes, no = {"holds": True}, {"holds": False}
    for cause, whole, shown in ((yes, no, True), (no, yes, True), (no, no, False)):
        told = in_play(summary, [{"cause": cause, "whole": whole}])
        assert told["reader_command"][1] == "steer one"
        assert told["reader_command"][0].startswith("To test the leading reader") == shown
        assert ("was not shown to move more than rotations" in told["reader_command"][0]) != shown
        assert told["command"] == ("To test latents in play:", "steer two")
    nothing = {"reported": [], "together": []}
    assert in_play(summary | nothing, [])["command"][0].startswith("No latent is reported")
    assert in_play(summary | nothing | {"together": [1, 2]}, [])["command"][0].startswith("To test")
    assert in_play({"command": ""}, []) == {}


def test_the_commands_test_what_leads_and_what_was_found():
    def printed(reader, latents, **found):
        leads = SimpleNamespace(name=reader, latents=latents, place="P", encoding="both")
        own = Reported(latents=[], left_out={}, seeds=2, **found)
        told = SimpleNamespace(models=2, table=SimpleNamespace(contrasts=[]), reported=own)
        request = DiffRequest(before="B", after="A")
        commands = next_commands(request, Path("O"), told, None, [SimpleNamespace(reader=leads)])
        return {
            name: line.partition("--features ")[2].split()[0] for name, line in commands.items()
        }

    assert printed("components", (0, 1, 2)) == {"command": "contrast:5", "reader_command": "0,1,2"}
    assert printed("mean-after", (0, 1), back=[8, 7]) == {"command": "8,7", "reader_command": "0,1"}
    many = tuple(range(9))
    cause = SimpleNamespace(holds=True)
    sets = [SimpleNamespace(which="specific", latents=many, cause=cause)] * 3
    assert printed("components", (0, 1), sets=sets)["command"] == ",".join(map(str, many))


def test_few_active_rows_are_no_zero():
    (row,) = baselines_table([{**METHOD, "active": 0.047}]).rows
    assert row[2] == "0.047 of 5"


def test_what_answers_first_stands_and_the_rest_opens(tmp_path):
    folder = written(tmp_path / "diff", sentences=["One.", "Two.", "Three."], opening=2)
    told = diff_page(folder)
    assert (told.sentences, told.more) == (("One.", "Two."), ("Three.",))
    study, at = DiffStudy(request=None), SimpleNamespace(path=folder)
    printed = study.write(read_json(folder / DIFF), at).sentences
    assert printed[:4] == ("- One.", "- Two.", "", "- Three.")
    assert diff_page(written(folder, sentences=["One.", "Two."])).more == ()  # of an older diff


def test_the_command_that_tests_latents_in_play_is_printed(folder):
    study, at = DiffStudy(request=None), SimpleNamespace(path=folder)
    printed = study.write(read_json(folder / DIFF), at).sentences
    assert printed[-1].startswith("\nNo latent is reported; to look in play all the same:")
    assert "forensics diff --out D" in printed[-1]
    assert "# No latent is reported; to look in play all the same:\nforensics" in page(folder)
    assert len(study.write(read_json(folder / DIFF) | {"command": ""}, at).sentences) == 1
