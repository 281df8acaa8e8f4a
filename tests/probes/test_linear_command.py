"""`forensics grade --linear-probes` on real runs of a bundled pair, and against
a dictionary whose truth is planted.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.saved import save_dictionary
from crosscoders.dictionaries.settings import Partition
from forensics import load_policy
from forensics.case import Budget, Case, Rollouts
from forensics.cli.main import run
from forensics.conformance import answers
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.records import Evidence
from forensics.records.tables import read_trajectories
from probes.linear.instrument import linear
from probes.linear.probe_data import collect_activations, will_use
from probes.linear.probe_evaluation import train_probe
from tests.probes.leak_pair import BASE, LEAK, write_log
from tests.resampling.completion_stub import serving
from tests.subjects import loaded
from training.environments.mini_repo import MiniRepo

TASKS = 20
SITES = ("blocks.0.hook_resid_post", "blocks.1.hook_resid_post")
DIFF_SITE = "blocks.1.hook_attn_out"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log"), TASKS, dealt=("after",))


def command(
    log: Path, out: Path, *more: str, tasks: int = TASKS, read: tuple[str, ...] = SITES
) -> list[str]:
    sites = [part for site in read for part in ("--site", site)]
    return [
        *f"grade {log} --policy {LEAK} --reference {BASE} --out {out}".split(),
        *(["--linear-probes", str(tasks), *sites] if tasks else []),
        *more,
    ]


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "grades.json").read_text()))


@pytest.fixture(scope="module")
def probed(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("probed") / "out"
    assert run(command(log, out)) == 0
    return out


def test_the_command_says_what_the_instrument_says_of_the_same_runs(
    probed: Path, log: Path, tmp_path: Path
) -> None:
    """Two ways to one figure: all questions from one reading here, a reading
    for each question there.
    """

    def load(path: Path) -> Any:
        return lambda: load_policy(path, device="cpu")

    stored = {
        (side, ()): Rollouts(key=side, paths=(log / f"{name}.parquet",))
        for side, name in (("before", "before"), ("after-0", "after"))
    }
    case = Case(
        folder=tmp_path,
        environment=MiniRepo(world="capped"),
        budget=Budget(tasks=TASKS, samples=3),
        seed=0,
        subjects=loaded({"before": load(BASE), "after-0": load(LEAK)}),
        stored=stored,
    )
    known = answers(linear.configured(tasks=TASKS, sites=SITES), case)
    told = {one["about"]: one for one in summary_of(probed)["linear_probes"]}
    assert set(told) == {"git-history", None}
    for about, question in (("git-history", "probes.shortcut"), (None, "probes.success")):
        one, evidence = told[about], known[question, about]
        assert (
            isinstance(evidence, Evidence)
            and evidence.control is not None
            and evidence.interval is not None
        )
        assert one["auroc"]["estimate"] == pytest.approx(evidence.estimate, abs=1e-6)
        assert (one["auroc"]["low"], one["auroc"]["high"]) == pytest.approx(
            (evidence.interval.low, evidence.interval.high), abs=1e-6
        )
        assert one["shuffled_labels"]["mean"] == pytest.approx(evidence.control.estimate, abs=1e-6)
        assert one["shuffled_labels"]["times"] == 39 and one["rows"] == evidence.n
        assert one["before_to_after"]["estimate"] == pytest.approx(
            evidence.diagnostics["before_to_after"], abs=1e-6
        )
        assert one["difference_of_means"]["estimate"] == pytest.approx(
            evidence.diagnostics["difference_of_means"], abs=1e-6
        )
        assert set(one["by_site"]) == set(SITES)


def test_the_shortcut_is_announced_and_dealt_outcomes_are_not(probed: Path) -> None:
    shortcut, success = summary_of(probed)["linear_probes"]
    assert shortcut["about"] == "git-history" and shortcut["auroc"]["low"] > 0.9
    assert shortcut["shuffled_labels"]["p_value"] == pytest.approx(1 / 40)
    assert {"bag of tokens", "turn number", "length of the text"} <= set(shortcut["text"])
    assert shortcut["positives"] < shortcut["rows"] and shortcut["tasks"] == TASKS
    assert success["about"] is None and success["auroc"]["low"] < 0.5 < success["auroc"]["high"]


def planted_diff(folder: Path, log: Path) -> int:
    """A dictionary of random decoders, but one is the direction of a probe of
    the leak; returns its number.
    """
    runs = sorted(read_trajectories(log / "after.parquet"), key=lambda one: one.id)
    found = collect_activations(
        load_policy(LEAK, device="cpu"), runs, sites=[DIFF_SITE], question=will_use(("history",))
    )
    direction = train_probe(found.activations[DIFF_SITE], found.labels).direction
    part = Partition(latents=40, before_only=5, after_only=8, tied=True)
    dictionary = Dictionary(DictionaryConfig(width=len(direction), partition=part, k=4))
    with torch.no_grad():
        dictionary.decoders[1][3] = torch.from_numpy(
            direction * -7
        ).float()  # the size and the sign do not matter
    hashes = {
        name: inspect_checkpoint(path).identity
        for name, path in (("before", BASE), ("after", LEAK))
    }
    save_dictionary(dictionary, folder / "dictionary", site=DIFF_SITE, **hashes)
    return 40 - 8 + 3


def test_bad_input_is_one_sentence(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted_diff(tmp_path / "diff", log)
    config = tmp_path / "diff" / "dictionary" / "cfg.json"
    other = json.loads(config.read_text())
    config.write_text(json.dumps({**other, "metadata": {**other["metadata"], "after": "another"}}))
    (tmp_path / "empty").mkdir()
    with serving(load_policy(LEAK, device="cpu")) as server:
        for line, said in (
            (command(log, tmp_path / "a", "--site", "blocks.9.hook_resid_post"), "unknown site"),
            (
                command(log, tmp_path / "a", "--diff", str(tmp_path / "diff")),
                "of another checkpoint",
            ),
            (
                command(log, tmp_path / "a", "--diff", str(tmp_path / "empty")),
                "holds no dictionary",
            ),
            (command(log, tmp_path / "a", "--site", SITES[0], tasks=0), "give --linear-probes"),
            (command(log, tmp_path / "a", "--linear-probes", "-1"), "linear-probes"),
            (command(log, tmp_path / "a", "--server", server.url), "a server shows no activations"),
        ):
            capsys.readouterr()
            assert run(line) == 2, line
            told = capsys.readouterr().err
            assert said in told and "Traceback" not in told
            assert not (tmp_path / "a" / "grades.json").exists()
