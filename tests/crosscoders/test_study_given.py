# ruff: noqa: F811  (fixtures of another file are parameters here)
"""`diff` with a dictionary that exists: SAEs that SAELens itself saved, ours, and misfits."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from crosscoders import diff
from crosscoders.activations.harvest import harvest
from crosscoders.activations.streams import read_texts
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.saelens import export_saelens
from crosscoders.dictionaries.saved import load_dictionary, open_dictionary, save_dictionary
from crosscoders.dictionaries.settings import Partition
from crosscoders.latents.controls import given_row
from crosscoders.latents.table import SpecificConfig
from crosscoders.study.diff_files import BASELINES, CONTROLS, LATENTS
from forensics import load_policy
from forensics.cli.main import run
from forensics.errors import UserError
from tests.crosscoders.latent_worlds import held
from tests.crosscoders.test_study_diff import CUE, SITE, pair, texts  # noqa: F401

sae_lens = pytest.importorskip("sae_lens")
WIDTH, LATENTS_GIVEN, PLANTED = 64, 16, 5


@pytest.fixture(scope="module")
def change(pair, texts):
    """What the cue's rows have more after training, the mean over rows
    `[width]`, and the mean of all rows.
    """
    policies = [load_policy(path) for path in pair[:2]]
    stream = harvest(policies, read_texts(texts, policies[0].tokenizer), SITE)
    blocks = list(stream.blocks())
    rows = torch.cat([block.activations for block in blocks]).float()
    cue = torch.from_numpy(np.concatenate([block.rows.token for block in blocks]) == pair[2])
    return (rows[cue, 1] - rows[cue, 0]).mean(0), rows.mean((0, 1))


def sae(change, models, kind="jumprelu"):
    """A stock SAE with random latents, of which the planted one reads (and
    writes) what the cue has more.
    """
    gap, _ = change
    config = {"jumprelu": sae_lens.JumpReLUSAEConfig, "standard": sae_lens.StandardSAEConfig}[kind]
    made = sae_lens.SAE.get_sae_class_for_architecture(kind)(
        config(d_in=models * WIDTH, d_sae=LATENTS_GIVEN, apply_b_dec_to_input=False)
    )
    generator = torch.Generator().manual_seed(4)
    unit = gap / gap.norm()
    with torch.no_grad():
        made.W_enc.copy_(0.2 * torch.randn(made.W_enc.shape, generator=generator))
        made.W_dec.copy_(made.W_enc.T)
        made.b_enc.fill_(-0.1)
        made.b_dec.zero_()
        made.W_enc[:, PLANTED] = torch.cat([-unit, unit]) if models == 2 else unit
        made.W_dec[PLANTED] = torch.cat([torch.zeros(WIDTH), unit]) if models == 2 else unit
        made.b_enc[PLANTED] = -0.5 * gap.norm()
        if kind == "jumprelu":
            made.threshold.fill_(0.05)
    made.cfg.metadata.hook_name = SITE
    return made


def rows_of(out):
    return pq.read_table(out / LATENTS).to_pylist()


def test_an_sae_of_one_model_is_told_as_one_and_stands_beside_baselines(
    pair, texts, change, tmp_path
):
    sae(change, 1).save_model(tmp_path / "sae")
    summary = diff(
        *pair[:2],
        out=tmp_path / "out",
        texts=texts,
        dictionary=tmp_path / "sae",
        decisions=0,
        tokens=4000,
    )
    assert summary["specific"] == [] and any(
        "one decoder for both" in said for said in summary["sentences"]
    )
    found = rows_of(tmp_path / "out")
    assert all(row["relative_norm"] == 0.5 for row in found)
    assert found[PLANTED]["nu_after"] < 0.5  # the before model has less of it
    methods = {
        row["name"]: row
        for row in json.loads((tmp_path / "out" / BASELINES).read_text())["methods"]
    }
    assert methods["difference-SAE"]["explained"] > 0.5 > methods["dictionary"]["explained"]
    assert methods["its latents specific to after"]["features"] == 0
    assert "Beside simpler methods" in (tmp_path / "out" / "diff.html").read_text()
    code = run(
        (
            f"diff --before {pair[0]} --after {pair[1]} --texts {texts} --out"
            f" {tmp_path / 'alone'} --dictionary {tmp_path / 'sae'} --no-baselines"
            " --no-controls --decisions 0"
        ).split()
    )
    assert code == 0 and not (tmp_path / "alone" / BASELINES).exists()
    assert json.loads((tmp_path / "alone" / CONTROLS).read_text()) == []


def test_the_control_of_a_given_dictionary_catches_a_rule_that_looks_at_norms_alone(monkeypatch):
    """Latents read the after model and are written for it alone: in a pair of
    equal models scaling finds them all.
    """
    generator = torch.Generator().manual_seed(2)
    dictionary = Dictionary(
        DictionaryConfig(width=8, partition=Partition(latents=6), activation="relu")
    )
    with torch.no_grad():
        dictionary.encoders[0].zero_()
        dictionary.decoders[0].zero_()
    stream = held(torch.randn(400, 2, 8, generator=generator), tasks=10)
    control = given_row(dictionary, stream)
    assert (control["found"], control["holds"]) == ("0 of 6", True)
    monkeypatch.setattr(
        SpecificConfig, "missing", lambda self, nus: np.isfinite(nus["error"].estimate)
    )
    assert given_row(dictionary, stream)["found"] == "6 of 6"


def misfits(folder, change):
    """Folders and the sentence that each must give."""
    wide = sae_lens.SAE.get_sae_class_for_architecture("standard")(
        sae_lens.StandardSAEConfig(d_in=48, d_sae=8)
    )
    wide.cfg.metadata.hook_name = SITE
    wide.save_model(folder / "width")
    sae(change, 1).save_model(folder / "site")
    joined = load_dictionary(
        save_dictionary(
            Dictionary(
                DictionaryConfig(width=32, partition=Partition(latents=8), activation="relu")
            ),
            folder / "narrow",
            site=SITE,
        )
    )
    export_saelens(
        joined, folder / "joined", site=SITE
    )  # two models of width 32, as wide together as one of 64
    three = Dictionary(
        DictionaryConfig(width=WIDTH, partition=Partition(latents=8), models=3, activation="relu")
    )
    save_dictionary(three, folder / "three", site=SITE)
    two = Dictionary(
        DictionaryConfig(width=WIDTH, partition=Partition(latents=8), activation="relu")
    )
    save_dictionary(two, folder / "others", site=SITE, before="b" * 16, after="a" * 16)
    (folder / "empty").mkdir()
    sae(change, 1).save_model(folder / "cut")
    file = folder / "cut" / "sae_weights.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    return {
        "width": "reads 48 features",
        "narrow": "32 wide and here they are 64 wide",
        "joined": "of 2 models",
        "three": "speaks of 3 models",
        "others": "another before checkpoint",
        "empty": "holds no dictionary",
        "missing": "does not exist",
        "cut": "cannot read",
        "site": "--site is blocks.1.hook_resid_post",
    }


def test_what_does_not_fit_is_refused_in_a_sentence_with_exit_code_2(
    pair, texts, change, tmp_path, capsys
):
    for name, told in misfits(tmp_path, change).items():
        site = ["--site", "blocks.1.hook_resid_post"] if name == "site" else []
        code = run(
            [
                *(
                    f"diff --before {pair[0]} --after {pair[1]} --texts {texts} --out"
                    f" {tmp_path / 'out'} --decisions 0 --dictionary {tmp_path / name}"
                ).split(),
                *site,
            ]
        )
        said = " ".join(capsys.readouterr().err.split())
        assert code == 2 and told in said and "Traceback" not in said, (name, said)
        assert not (tmp_path / "out").exists(), name


def test_every_kind_is_known_by_its_files_and_another_file_has_another_key(tmp_path, change):
    sae(change, 2).save_model(tmp_path / "sae")
    found = open_dictionary(tmp_path / "sae")
    assert (found.kind, found.site, found.inputs, found.checkpoints) == (
        "SAELens",
        SITE,
        2 * WIDTH,
        None,
    )
    file = tmp_path / "sae" / "sae_weights.safetensors"
    tensors = load_file(file)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, file)
    assert open_dictionary(tmp_path / "sae").key != found.key
    (tmp_path / "sae" / "cfg.json").write_text("{}")
    with pytest.raises(UserError, match="names no d_in"):
        open_dictionary(tmp_path / "sae")
