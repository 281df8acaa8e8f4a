"""The page of a diff: every figure where it belongs, nothing foreign acts, and
what was not measured is said.
"""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from crosscoders.study.diff_files import (
    BASELINES,
    DIFF,
    LATENTS,
    STEERING,
    TOKENS,
    Latent,
    read_latents,
    separating,
)
from crosscoders.study.diff_page import (
    MOST_MARKS,
    diff_page,
    latent_fold,
    latent_map,
    network_figure,
    quality_table,
    write_page,
)
from crosscoders.study.instrument import curves, steering_table
from forensics.errors import UserError
from forensics.records.files import read_json, write_json
from forensics.report import draw_page
from forensics.report.charts import draw
from tests.crosscoders.study_folder import EVIL, patching, steering, written
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


def cells(patching, chosen=None):
    figure = network_figure(patching, chosen)
    return {
        (series.name, x): (share, label)
        for series in figure.series
        for x, share, label in zip(series.x, series.y, series.labels, strict=True)
        if label
    }


def test_cells_take_patches_by_position_and_grafts_into_before_alone():
    assert {place: share for place, (share, _) in cells(patching()).items()} == {
        ("residual, everywhere", "embed"): 0.11,
        ("residual, at the decision", "0"): 0.25,
        ("residual, at the decision", "1"): 0.75,
        ("residual, everywhere", "1"): None,
        ("weights, embedding and output", "embed"): 0.6,
        ("weights, attention", "0"): 0.01,
        ("weights, MLP", "1"): 0.42,
    }
    without = cells(patching() | {"behaviour": None})
    assert {share for share, _ in without.values()} == {0.5}


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


def test_without_steering_the_page_says_that_nothing_was_tested(tmp_path):
    drawn = page(written(tmp_path / "diff", steered=False))
    assert "Not tested." in drawn and "reported tasks" not in drawn


def test_a_page_is_drawn_again_with_what_steering_added(tmp_path):
    folder = written(tmp_path / "diff", steered=False)
    write_page(folder)
    write_json(folder / STEERING, [steering("features", 1.0, 0.5)])
    assert "Measured on the reported tasks" in write_page(folder).read_text()


def test_draws_of_a_control_are_one_point_with_their_whole_range():
    rows = [
        steering("random-direction", 1.0, value, draw) for draw, value in enumerate((0.9, 0.7, 0.8))
    ]
    rows += [steering("features", 1.0, 0.3), steering("features", 2.0, 0.1, split="choose")]
    one = curves(rows)[0].series[0]
    assert one.x == ("random-direction, in after", "features, in after")
    assert (one.y, one.low, one.high) == ((0.8, 0.3), (0.7, 0.25), (0.9, 0.35))
    table = steering_table(rows)
    assert table.columns[:7] == ("role", "in", "mode", "strength", "features", "draw", "dictionary")
    assert "channel history" in table.columns and "moved" not in table.columns
    assert len(table.rows) == 5


def test_curves_over_strengths_are_of_the_split_that_chose_and_those_over_features_of_saturation():
    rows = [steering("features", s, 0.5 - 0.2 * s, split="choose") for s in (1.0, 0.5)] + [
        steering("features", 1, 9)
    ]
    rows += [
        steering("saturation", 1.0, v, features=list(range(n)), dictionary=d)
        for d, n, v in (("own", 4, 0.1), ("own", 1, 0.4), ("plain", 1, 0.6))
    ]
    drawn = {figure.title: figure.series for figure in curves(rows)}
    (strength,) = drawn["Measured by strength, on the tasks that chose it"]
    assert (strength.x, strength.y) == ((0.5, 1.0), (0.4, 0.3))
    own, plain = drawn["Measured by number of features"]
    assert (own.name, own.x, own.y, plain.name) == ("own", (1.0, 4.0), (0.4, 0.1), "plain")


def test_a_large_dictionary_is_thinned_but_keeps_what_is_specific():
    one = Latent(
        latent=0,
        partition="shared",
        relative_norm=0.5,
        decoder_cosine=1.0,
        nu_after=1.0,
        nu_before=1.0,
        frequency=0.1,
        q_value=1.0,
    )
    many = [replace(one, latent=i) for i in range(20_000)] + [
        replace(one, latent=99_999, specific="after")
    ]
    figure = latent_map(many)
    assert sum(len(series.x) for series in figure.series) <= MOST_MARKS
    drawn = draw(figure, prefix="a")
    assert drawn.count("latent 99999, shared: relative norm 0.5, nu 1, specific</title>") == 1


def test_figures_of_quality_say_what_they_mean():
    table = quality_table(
        {"variance_explained": [0.8, None], "l0": 12.0, "dead_share": 0.25, "rows": 1000}
    )
    assert {name: value for name, value, _ in table.rows} == {
        "variance explained, before": "80.0 %",
        "variance explained, after": "not measured",
        "active latents a token (L0)": "12",
        "silent latents": "25.0 %",
    }


def test_simpler_methods_stand_beside_the_dictionary_with_their_intervals(folder):
    drawn = page(folder)
    for said in (
        "Beside simpler methods",
        "62.5 %",
        "12.3 of 5",
        "0.91 (0.85 to 0.96)",
        "difference-SAE",
    ):
        assert said in drawn, said
    content = read_json(folder / BASELINES)
    write_json(folder / BASELINES, content | {"missing": EVIL})
    assert EVIL not in page(folder)
    (folder / BASELINES).unlink()
    assert "Beside simpler methods" not in page(folder)


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
