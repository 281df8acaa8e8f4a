"""A known direction in a known model: taking it out removes the behaviour,
putting it into the base installs it.
"""

import json
from dataclasses import replace

import pytest
import torch

from crosscoders.dictionaries.saved import save_dictionary
from crosscoders.steering.activation_edits import shift_change
from crosscoders.steering.causal_test import read_bench
from crosscoders.steering.conditions import SteeringConfig, Subject
from crosscoders.steering.evaluation import Bench, Condition
from crosscoders.steering.interventions import parse_position
from crosscoders.steering.readings import Asked, FedDictionary, parse_features, pick, table_beside
from crosscoders.steering.steer_study import Study, rows_of, sentences, summary_of
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from tests.crosscoders.steering_world import SHARED, SITE, cued, known_dictionary, save_pair

MEASURE = "kind:history"
SETTINGS = SamplingSettings()


@pytest.fixture(scope="module")
def dictionary(pair):
    return known_dictionary(pair)


@pytest.fixture(scope="module")
def bench(pair, tmp_path_factory):
    return Bench(
        before=pair.before,
        after=pair.after,
        environment=pair.environment,
        site=SITE,
        position=parse_position("deciding"),
        settings=SETTINGS,
        samples=2,
        seed=1,
        folder=tmp_path_factory.mktemp("bench"),
    )


@pytest.fixture(scope="module")
def splits(pair):
    """Cued tasks only, so that the behaviour is there to be removed."""
    with_cue = []
    for task in pair.environment.tasks("held-out", 200, 0):
        if cued(pair.environment.spawn().reset(task, 0).text):
            with_cue.append(task)
    return tuple(with_cue[:16]), tuple(with_cue[16:44])


@pytest.fixture(scope="module")
def readings(bench, pair):
    return read_bench(bench, pair.environment.tasks("held-out", 80, 7), MEASURE)


def subject_of(dictionary, readings, config, features=(SHARED,)):
    return Subject(
        name="dictionary",
        key="known",
        reader=FedDictionary(dictionary=dictionary, encoding=config.encoding),
        features=features,
        config=config,
        readings=readings,
        seed=0,
    )


def steered(bench, splits, dictionary, readings, config):
    study = Study(
        bench=bench, choosing=splits[0], reporting=splits[1], config=config, measure=MEASURE
    )
    found = study.run([subject_of(dictionary, readings, config)])
    return found, rows_of(found)


def row(rows, role, split="report", **more):
    return next(
        one
        for one in rows
        if one["role"] == role
        and one["split"] == split
        and all(one[key] == value for key, value in more.items())
    )


@pytest.mark.slow
def test_ablating_the_planted_direction_removes_the_behaviour(
    bench, splits, dictionary, readings
) -> None:
    config = SteeringConfig(strengths=(0.5, 1.0), feature_controls=3)
    found, rows = steered(bench, splits, dictionary, readings, config)
    summary = summary_of(found, rows)
    planted, base = (
        row(rows, "unsteered", **{"in": side})["measured"]["estimate"]
        for side in ("after", "before")
    )
    assert planted - base > 0.3, "there is something to remove"
    assert found.direction == -1 and found.strengths["dictionary"]["features"] == 1.0
    assert summary["moved"]["estimate"] >= 0.8
    assert len(summary["random_directions"]) == 20 and summary["p_value"] == 1 / 21
    assert summary["effect"]["high"] < min(summary["random_directions"])
    # a base without the behaviour has nothing to lose: the same ablation hardly changes it
    assert abs(row(rows, "spillover")["effect"]["estimate"]) < 0.1
    # one after-only latent is the whole of the difference, so the baselines that read
    # the difference find it too
    assert row(rows, "difference-subspace")["moved"]["estimate"] >= 0.8
    assert row(rows, "difference-subspace")["directions"] == 1
    assert row(rows, "saturation")["effect"] == row(rows, "features")["effect"]
    assert all(
        abs(one["effect"]["estimate"]) < 0.5 * (planted - base)
        for one in rows
        if one["role"] == "random-feature"
    )
    assert any("random directions of equal norm" in line for line in sentences(found, rows))


@pytest.mark.slow
def test_a_strength_that_breaks_the_policy_is_not_chosen(
    bench, splits, dictionary, readings
) -> None:
    """At every token and far too strong nothing is handed in any more; the mild
    one is taken, and it is told.
    """
    everywhere = replace(
        bench, position=parse_position("everywhere"), samples=1, identity="everywhere"
    )
    shift = torch.zeros(96)
    shift[:48] = 1.0
    choosing = splits[0][:8]

    def best(strengths):
        config = SteeringConfig(mode="add", strengths=strengths)
        study = Study(
            bench=everywhere, choosing=choosing, reporting=choosing, config=config, measure=MEASURE
        )
        made = [
            Condition(
                role="shift",
                acting="after",
                change=shift_change(shift, mode="add", strength=s),
                strength=s,
            )
            for s in strengths
        ]
        return study._best(study._all(made, "choose", "x"), -1)

    assert best((0.01, 30.0)) == (0.01, True)
    assert best((30.0, 60.0))[1] is False


def test_features_are_listed_or_ranked_by_a_rule(dictionary, readings, tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader, table = FedDictionary(dictionary=dictionary), tmp_path / "latents.parquet"
    assert parse_features("12, 7,12") == Asked(rule="listed", number=2, listed=(12, 7))
    for bad in ("top:0", "top:", "first:3", "1,x", ""):
        with pytest.raises(UserError, match="neither a list of latents"):
            parse_features(bad)
    assert table_beside(tmp_path / "dictionary") is None

    def written(*specific: int) -> None:
        names = ["after" if i in specific else "none" for i in range(SHARED + 1)]
        pq.write_table(pa.table({"latent": list(range(SHARED + 1)), "specific": names}), table)

    written(3, SHARED)
    assert table_beside(tmp_path / "dictionary") == table
    assert pick(parse_features("top:2"), reader, readings, table) == (SHARED,)
    written(3)
    with pytest.raises(UserError, match="none of the 1 specific latents is more active"):
        pick(parse_features("top:2"), reader, readings, table)
    assert pick(parse_features("contrast:2"), reader, readings, table)[0] == SHARED
    assert len(pick(parse_features("contrast:2"), reader, readings, table)) == 2, (
        "shared ones are ranked too"
    )
    written()
    with pytest.raises(UserError, match="calls no latent specific"):
        pick(parse_features("top:2"), reader, readings, table)
    with pytest.raises(UserError, match="does not exist"):
        table_beside(tmp_path, tmp_path / "nothing.parquet")


@pytest.mark.slow
def test_the_command_is_killed_and_goes_on(pair, dictionary, tmp_path, capsys, monkeypatch) -> None:
    from forensics.cli.main import main

    before, after = save_pair(pair, tmp_path)
    save_dictionary(dictionary, tmp_path / "dictionary", site=SITE)
    plain = (
        f"steer --before {before} --after {after} --dictionary {tmp_path / 'dictionary'}"
        " --features top:2 --tasks 8 --choosing 30 --samples 1 --controls 2 --strengths 1"
        " --device cpu --json --out"
    ).split()
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert _exit(main, [*plain, str(whole)]) == 0
    printed = json.loads(capsys.readouterr().out)
    written = json.loads((whole / "steering.json").read_text())
    assert printed["rows"] == written["rows"] and written["features"]["dictionary"] == [SHARED]
    assert {"strength", "features", "channel_use", "success"} <= set(written["rows"][0])
    assert _exit(main, [*plain, str(whole)]) == 2, "nothing is overwritten"
    played, play = [], Bench._played

    def dies(self, condition, tasks):
        if len(played) == 6:
            raise KeyboardInterrupt
        played.append(condition)
        return play(self, condition, tasks)

    monkeypatch.setattr(Bench, "_played", dies)
    assert _exit(main, [*plain, str(cut)]) not in (0, 2)
    monkeypatch.setattr(Bench, "_played", play)
    assert not (cut / "steering.json").exists()
    assert _exit(main, [*plain, str(cut), "--resume"]) == 0
    assert (cut / "steering.json").read_bytes() == (whole / "steering.json").read_bytes()
    assert _exit(main, [*plain, str(cut), "--resume", "--seed", "3"]) == 2
    assert "seed 0, not 3" in capsys.readouterr().err


def _exit(main, arguments) -> int:
    try:
        return main(arguments) or 0
    except SystemExit as stop:
        return int(stop.code or 0)
