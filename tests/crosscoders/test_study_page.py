"""The page of a diff: every figure where it belongs, nothing foreign acts, and
what was not measured is said.
"""

import re
from xml.etree import ElementTree

import pytest

from crosscoders.study.diff_files import DIFF, LATENTS, TOKENS, read_latents, separating
from crosscoders.study.diff_page import diff_page, network_figure
from crosscoders.study.latent_page import latent_fold
from forensics.errors import UserError
from forensics.records.files import read_json, write_json
from forensics.report import draw_page
from forensics.report.charts import draw
from tests.crosscoders.study_folder import EVIL, patching, written
from tests.resampling.test_page import Tags


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
