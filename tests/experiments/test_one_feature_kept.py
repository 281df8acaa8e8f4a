"""What the study of one feature keeps: under all settings and both models, and
`leak` only after the controls.
"""

import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from crosscoders.dictionaries.saved import load_dictionary
from crosscoders.dictionaries.settings import TrainerSettings
from experiments.one_feature.__main__ import dictionary_of, effects_of, read_rows, run_seed
from experiments.one_feature.episodes import EpisodeSettings
from experiments.one_feature.first_decision import Contrast
from experiments.one_feature.settings import RULED, StudySettings
from experiments.one_feature.tables import CONTROLS, QUESTION, markdown, works
from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.records.files import read_json, write_json
from training.organisms.base_model import checkpoint_path

QUICK = StudySettings(
    tasks=40,
    runs=8,
    fitting=TrainerSettings(tokens=12_800, batch=128, learning_rate=2e-3),
    latents=32,
    after_only=4,
    k=4,
    difference_latents=8,
    strengths=(1.0, 2.0),
    random=3,
)
FEW = EpisodeSettings(tasks=4, choosing=4, samples=1, controls=1)


def other_settings() -> Iterator[StudySettings]:
    """Each setting changed alone; those within `fitting` too."""
    known = StudySettings()
    changed: dict[str, Any] = {
        "site": "blocks.1.hook_resid_post",
        "parting": (1.0, 4.0),
        "strengths": (1.0,),
        "fitting": replace(known.fitting, opening=0.4),
    }
    for field in fields(StudySettings):
        value = changed[field.name] if field.name in changed else getattr(known, field.name) + 1
        yield replace(known, **{field.name: value})


def test_every_setting_and_either_model_changes_the_key() -> None:
    known, weights = StudySettings(), ("before", "after")
    keys = [
        known.key("leak", 0, weights),
        *(other.key("leak", 0, weights) for other in other_settings()),
    ]
    keys += [known.key("planted", 0, weights), known.key("leak", 1, weights)]
    keys += [known.key("leak", 0, ("other", "after")), known.key("leak", 0, ("before", "other"))]
    assert len(set(keys)) == len(keys)
    assert known.key("leak", 0, weights) == StudySettings().key("leak", 0, weights)


def test_what_other_settings_or_another_pair_gave_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "planted-0"
    manifest = {"base": "one", "after": "two"}
    write_json(folder / "manifest.json", manifest)
    row = row_of("planted", 0, 1.0)
    write_json(folder / "effects.json", row)  # as it was kept before
    assert read_rows(tmp_path, QUICK, FEW) == []
    write_json(effects_of(folder, "planted", 0, QUICK), row)
    assert [found["seed"] for found in read_rows(tmp_path, QUICK, FEW)] == [0]
    assert read_rows(tmp_path, replace(QUICK, k=5), FEW) == []
    write_json(folder / "manifest.json", {**manifest, "after": "three"})
    assert read_rows(tmp_path, QUICK, FEW) == []


def row_of(name: str, seed: int, removed: float) -> dict[str, Any]:
    def share(estimate: float) -> dict[str, float]:
        return {"estimate": estimate, "low": estimate, "high": estimate}

    return {
        "organism": name,
        "seed": seed,
        "cosine": None,
        "episodes": None,
        "whole": None,
        "carriers": {RULED: {"strength": 1.0, "removed": share(removed), "installed": share(0.9)}},
        "random": [{"removed": share(0.1), "installed": share(0.1)}],
    }


def test_leak_is_read_only_after_both_controls_hold_in_every_seed() -> None:
    rows = [row_of(name, seed, 1.0) for name in CONTROLS for seed in range(3)]
    asked = [row_of(QUESTION, seed, 1.0) for seed in range(3)]
    assert works(rows) and not works(rows[1:]) and not works([row_of("planted", 0, 0.5), *rows[1:]])
    assert "the shortcut runs through one feature" in markdown([*rows, *asked], 9)
    assert "does not run through one feature" in markdown(
        [*rows, *asked[1:], row_of(QUESTION, 0, 0.5)], 9
    )
    for told in ([*rows[1:], *asked], [*rows, *asked[1:]]):
        assert "through one feature" not in markdown(told, 9)


def test_where_the_models_do_not_differ_the_table_says_so() -> None:
    row = row_of("planted", 0, 1.0)
    none = {"removed": None, "installed": None}
    told = markdown(
        [row | {"carriers": {RULED: {"strength": 1.0, **none}}, "random": [none] * 3}], 9
    )
    assert "nan" not in told and told.count("| no difference | no difference |") == 2


def test_a_contrast_needs_both_kinds() -> None:
    with pytest.raises(UserError):
        Contrast(residuals=torch.zeros(3, 2, 4), flags=torch.ones(3, dtype=torch.bool))


@pytest.mark.slow
def test_a_leak_pair_goes_through_and_another_setting_is_measured_anew(tmp_path: Path) -> None:
    folder = tmp_path / "leak-0"
    for part, name in (("base", "capped-base"), ("after", "leak")):
        shutil.copytree(checkpoint_path(f"bundled:{name}"), folder / part)
    weights = {part: inspect_checkpoint(folder / part).weights for part in ("base", "after")}
    write_json(folder / "manifest.json", weights)
    run_seed(folder, QUESTION, 0, QUICK, FEW, lambda *_: None)
    (row,) = read_rows(tmp_path, QUICK, FEW)
    chances = row["carriers"][RULED]["chances"]
    assert chances["after"] > chances["before"] + 0.5  # the bundled leak goes to the history
    assert set(row["episodes"]) == {"ablate", "add"}
    assert row["whole"]["removed"]["estimate"] > 0.2  # some of the choice is made before the site
    drawn = [one for one in row["episodes"]["ablate"]["rows"] if one["role"] == "random-direction"]
    assert len(drawn) == FEW.controls and all(one["strength"] == 1.0 for one in drawn)
    first = effects_of(folder, QUESTION, 0, QUICK)
    kept = load_dictionary(dictionary_of(first))
    assert QUICK.latents - QUICK.after_only <= row["latents"][RULED] < kept.config.partition.latents
    other = replace(QUICK, strengths=(0.5,), tasks=30)
    run_seed(folder, QUESTION, 0, other, FEW, lambda *_: None)
    assert [one["carriers"][RULED]["strength"] for one in read_rows(tmp_path, other, FEW)] == [0.5]
    assert read_json(first)["carriers"] == row["carriers"]  # as it was
