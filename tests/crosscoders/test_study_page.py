"""The page of a diff: every figure where it belongs, nothing foreign acts, and
what was not measured is said.
"""

import re
from dataclasses import replace

import pytest

from crosscoders.study.curves import curves, steering_table
from crosscoders.study.diff_files import BASELINES, DIFF, LATENTS, STEERING
from crosscoders.study.page import diff_page, quality_rows, write_page
from crosscoders.study.page_data import LatentView, read_view
from crosscoders.study.pictures import MOST_MARKS, latent_map, network_cells, network_picture
from forensics.errors import UserError
from forensics.records.files import read_json, write_json
from tests.crosscoders.study_folder import EVIL, patching, steering, written
from tests.resampling.test_page import Tags


@pytest.fixture
def view(tmp_path):
    return read_view(written(tmp_path / "diff"))


def test_the_surest_separation_comes_first_and_the_untested_last(view):
    assert [latent.latent for latent in view.separating] == [3, 1, 4, 0, 2]
    top = view.separating[0]
    assert (top.specific, top.difference, top.decoder_cosine) == ("after", 1.5, None)
    assert [word.shade for word in top.contexts[0].words] == [0, 20, 10]
    assert [word.peak for word in top.contexts[0].words] == [False, True, False]


def test_cells_take_patches_by_position_and_grafts_into_before_alone():
    found = {(cell.row, cell.column): cell.share for cell in network_cells(patching())}
    assert found == {
        ("residual, everywhere", "embed"): 0.11,
        ("residual, at the decision", "0"): 0.25,
        ("residual, at the decision", "1"): 0.75,
        ("residual, everywhere", "1"): None,
        ("weights, embedding and output", "embed"): 0.6,
        ("weights, attention", "0"): 0.01,
        ("weights, MLP", "1"): 0.42,
    }
    without = network_cells(patching() | {"behaviour": None})
    assert {cell.share for cell in without} == {0.5}


def test_the_network_says_its_numbers_and_frames_the_site():
    drawn = str(network_picture(patching(), "blocks.1.hook_resid_post"))
    assert "75.0 % (65.0 to 85.0)" in drawn and ">75<" in drawn and "could not be told" in drawn
    assert drawn.count("stroke-width") == 2  # at the decision and everywhere


def test_the_page_holds_every_part_and_no_script(view):
    page = diff_page(view)
    tags = Tags()
    tags.feed(page)
    assert not {name for name, _ in tags.seen} & {"script", "img", "iframe", "link"}
    assert not any(
        key.startswith("on") or (key in ("style", "src", "href") and not str(value).startswith("#"))
        for _, found in tags.seen
        for key, value in found.items()
    )
    assert EVIL not in page and "\x1b" not in page and "&lt;img" in page and r"\x1b" in page
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
        assert said in page, said
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/\S+", "", page)
    assert len(page) < 2_000_000


def test_without_steering_the_page_says_that_nothing_was_tested(tmp_path):
    page = diff_page(read_view(written(tmp_path / "diff", steered=False)))
    assert "Not tested." in page and "reported tasks" not in page


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
    columns, cells, left = steering_table(rows)
    assert columns[:7] == ["role", "in", "mode", "strength", "features", "draw", "dictionary"]
    assert "channel history" in columns and "moved" not in columns and len(cells) == 5 and left == 0


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
    one = LatentView(
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
    drawn = str(latent_map(many))
    assert drawn.count("<g ") <= MOST_MARKS and "latent 99999" in drawn


def test_figures_of_quality_say_what_they_mean():
    rows = {
        name: value
        for name, value, _ in quality_rows(
            {"variance_explained": [0.8, None], "l0": 12.0, "dead_share": 0.25, "rows": 1000}
        )
    }
    assert rows == {
        "variance explained, before": "80.0 %",
        "variance explained, after": "could not be told",
        "active latents a token (L0)": "12",
        "silent latents": "25.0 %",
    }
    assert quality_rows(None) == []


def test_simpler_methods_stand_beside_the_dictionary_with_their_intervals(tmp_path):
    folder = written(tmp_path / "diff")
    page = diff_page(read_view(folder))
    for said in (
        "Beside simpler methods",
        "62.5 %",
        "12.3 of 5",
        "0.91 (0.85 to 0.96)",
        "difference-SAE",
    ):
        assert said in page, said
    content = read_json(folder / BASELINES)
    write_json(folder / BASELINES, content | {"missing": EVIL})
    assert EVIL not in diff_page(read_view(folder))
    (folder / BASELINES).unlink()
    assert "Beside simpler methods" not in diff_page(read_view(folder))


def test_a_folder_that_is_not_whole_is_told_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"holds no diff\.json"):
        read_view(tmp_path)
    folder = written(tmp_path / "diff")
    (folder / LATENTS).write_bytes((folder / LATENTS).read_bytes()[:50])
    with pytest.raises(UserError, match="cannot be read"):
        read_view(folder)
    (folder / LATENTS).unlink()
    with pytest.raises(UserError, match="--resume"):
        read_view(folder)
    write_json(folder / DIFF, {"schema_version": 99})
    with pytest.raises(UserError, match="version 99"):
        read_view(folder)
