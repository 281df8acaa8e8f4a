"""A known direction in a known model is chosen by rule, and tested by the command's options."""

import json

import pytest

from crosscoders.dictionaries.saved import save_dictionary
from crosscoders.steering.evaluation import Bench
from crosscoders.steering.interventions import parse_position
from crosscoders.steering.readings import (
    Asked,
    FedDictionary,
    parse_features,
    pick,
    read_bench,
    table_beside,
)
from forensics.errors import UserError
from forensics.protocols import SamplingSettings
from tests.crosscoders.steering_world import SHARED, SITE, known_dictionary, save_pair

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
def readings(bench, pair):
    return read_bench(bench, pair.environment.tasks("held-out", 80, 7), MEASURE)


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
    assert printed["rows"] == written["rows"] and written["features"] == {"top:2": [SHARED]}
    assert written["experiment"]["told_of"] == {
        "features": "top:2",
        "strength": 1,
        "at": "deciding",
    }
    assert {"strength", "features", "channel_use", "success"} <= set(written["rows"][0])
    assert 'features = ["top:2"]' in (stated := (whole / "experiment.toml").read_text())
    assert str(tmp_path) not in stated + json.dumps(written), "where things lie is no part of it"
    assert (whole / "steering.html").is_file()
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
    for name in ("steering.json", "experiment.toml"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    assert _exit(main, [*plain, str(cut), "--resume", "--seed", "3"]) == 2
    assert "seed 0, not 3" in capsys.readouterr().err


def _exit(main, arguments) -> int:
    try:
        return main(arguments) or 0
    except SystemExit as stop:
        return int(stop.code or 0)
