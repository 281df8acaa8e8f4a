"""`diff` from end to end on a pair with a known change: one token's embedding
got a direction that nothing else has.
"""

import json

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from crosscoders import diff
from crosscoders.dictionaries.crosscoder_run import train_crosscoders
from crosscoders.dictionaries.saved import load_dictionary, read_metadata
from crosscoders.study.diff_files import (
    CAUSES,
    COLUMNS,
    DICTIONARY,
    LATENTS,
    READERS_FILE,
    TOKENS,
    Shape,
)
from crosscoders.study.diff_page import write_page
from forensics import load_policy, policy_from
from forensics.cli.main import run as command
from forensics.errors import UserError
from forensics.policies import constructed_policy
from tests.tiny import save_tiny_qwen3, tiny_tokenizer

SITE = "blocks.0.hook_resid_post"
WORDS = [
    "the", "fix", "is", "in", "a", "file", "of", "this", "tree", "and", "one", "test", "it",
    "fails", "when",
]  # fmt: skip
CUE = "Q"
SMALL = {"shape": Shape(latents=96, after_only=8, k=6), "tokens": 8_000, "decisions": 6}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Before and after; `after` has a direction more at the cue's embedding, in
    what is read and in what is said.
    """
    folder = tmp_path_factory.mktemp("pair")
    before, after = (save_tiny_qwen3(folder / name, seed=3) for name in ("before", "after"))
    tensors = load_file(after / "model.safetensors")
    (name,) = [name for name in tensors if "embed_tokens" in name]
    token = tiny_tokenizer()(CUE)["input_ids"][0]
    direction = torch.randn(64, generator=torch.Generator().manual_seed(1))
    tensors[name][token] += (direction / direction.norm() * 1.5).to(tensors[name].dtype)
    save_file(tensors, after / "model.safetensors", metadata={"format": "pt"})
    return before, after, token


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Texts of words in random order, the cue in between."""
    generator = torch.Generator().manual_seed(7)
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    rows = []
    for _ in range(80):
        chosen = torch.randint(len(WORDS), (14,), generator=generator).tolist()
        words = [WORDS[i] for i in chosen]
        words.insert(int(torch.randint(14, (1,), generator=generator)), CUE)
        rows.append(json.dumps({"text": " ".join(words)}))
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(scope="module")
def trained_on():
    """Of every training of `made` the tasks and the number of tokens."""
    return []


@pytest.fixture(scope="module")
def made(pair, texts, trained_on, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "diff"

    def heard(stream, jobs, **more):
        (tokens,) = {job.settings.tokens for job in jobs.values()}
        trained_on.append(({text.task for text in stream.texts}, tokens))
        return train_crosscoders(stream, jobs, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crosscoders.study.material.train_crosscoders", heard)
        summary = diff(pair[0], pair[1], out=out, texts=texts, **SMALL)
    return out, summary


def rows_of(out):
    return {row["latent"]: row for row in pq.read_table(out / LATENTS).to_pylist()}


def test_the_change_is_found_at_the_cue_and_nowhere_else(made, pair):
    out, summary = made
    assert summary["site"] == SITE
    found = rows_of(out)
    assert set(COLUMNS) <= set(found[0])
    specific = summary["specific"]
    assert specific and all(found[latent]["partition"] == "after-only" for latent in specific)
    again = [latent for latent in specific if found[latent]["stability"] == 1]
    assert again  # the cue's latent is no one seed's
    causes = json.loads((out / CAUSES).read_text())
    assert causes["measure"] == "loss" and sorted(causes["latents"]) == sorted(map(str, again))
    readers = json.loads((out / READERS_FILE).read_text())
    tests = [*causes["latents"].values(), *(one["cause"] for one in readers)]
    assert {one["tasks"] for one in tests} == {32}  # of 80 texts those that nothing was learnt from
    held = [one for one in again if causes["latents"][str(one)]["holds"]]
    assert summary["reported"] == held
    leads, beside, own, where = summary["sentences"][: summary["opening"]]
    account = summary["sentences"][summary["opening"]]
    assert leads.startswith("The mean and the first 2 principal components of the models' diff")
    assert "costs elsewhere was not measured" in account  # no behaviour is known
    assert "the dictionary's" in beside and summary["reader"] == "components"
    assert "comes back from 2 other seeds and moves the loss" in own
    assert summary["sentences"].count(where) == 1 and "of the KL at the decisions" in where
    tokens = json.loads((out / TOKENS).read_text())
    assert all(
        context["tokens"][context["at"]].strip() == CUE for context in tokens[str(specific[0])]
    )


def test_nothing_is_trained_on_a_task_that_is_told_of(made, trained_on):
    contexts = json.loads((made[0] / TOKENS).read_text()).values()
    told = {context["task"] for latent in contexts for context in latent}
    assert told and [tokens for _, tokens in trained_on] == [8_000]
    for tasks, _ in trained_on:
        assert len(tasks) == 48 and not tasks & told


def test_models_in_memory_are_their_directories(pair, texts, tmp_path, monkeypatch):
    """The same numbers under the same identities, and one goes on with what the other began."""
    sides, held = [tmp_path / "before", tmp_path / "after"], []
    for place, side in zip(pair[:2], sides, strict=True):
        model = load_policy(place, device="cpu", dtype="float32").model
        model.save_pretrained(side)
        tiny_tokenizer().save_pretrained(side)
        held.append(policy_from(model, tiny_tokenizer()))
    small = {"texts": texts, "shape": Shape(latents=96, after_only=8, k=6), "tokens": 2_000}
    small |= {"controls": False, "baselines": False, "site": SITE, "decisions": 0, "seeds": 1}
    monkeypatch.setattr("crosscoders.study.measures.MOST_LATENTS", 0)
    found = diff(*held, out=tmp_path / "held", **small)
    assert any("Stability was not measured" in one for one in found["sentences"])
    assert not any("learnt from the same tasks" in one for one in found["sentences"])
    assert found["presented"], "this pair has a latent of its own"
    tokens = json.loads((tmp_path / "held" / TOKENS).read_text())
    assert set(tokens) == set(map(str, found["presented"]))  # however many others stand before
    assert found == diff(*sides, out=tmp_path / "saved", **small)
    assert found == diff(*sides, out=tmp_path / "held", resume=True, **small)
    scorer = constructed_policy(lambda text: [1.0], tiny_tokenizer(), "scorer")
    with pytest.raises(UserError, match="a model in memory needs weights in this process"):
        diff(held[0], scorer, out=tmp_path / "scorer", **small)


def test_with_few_tasks_it_is_said_that_all_were_learnt_from(pair, texts, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(texts.read_text().splitlines()[:2]))
    small = {"shape": Shape(latents=96, after_only=8, k=6), "tokens": 200, "seeds": 1}
    small |= {"controls": False, "baselines": False, "site": SITE, "decisions": 0}
    found = diff(pair[0], pair[1], out=tmp_path / "out", texts=few, **small)
    assert found["sentences"][0].startswith("There are fewer than 5 tasks")
    assert any(one.endswith("tokens of 2 tasks to report on") for one in found["facts"])


def test_a_checkpoint_against_itself_is_refused_or_a_control(pair, texts, tmp_path):
    small = {"texts": texts, "shape": Shape(latents=96, after_only=8, k=6), "tokens": 2_000}
    small |= {"controls": False, "baselines": False, "site": SITE, "decisions": 0, "seeds": 1}
    with pytest.raises(UserError, match=r"hold the same weights.*--identical"):
        diff(pair[0], pair[0], out=tmp_path / "refused", **small)
    assert not (tmp_path / "refused").exists()
    found = diff(pair[0], pair[0], out=tmp_path / "control", identical=True, **small)
    assert found["sentences"][0].startswith("A control: before and after hold the same weights")
    assert found["reported"] == found["specific"] == [] and found["command"] == ""


def test_the_dictionary_and_the_page_are_there(made):
    out = made[0]
    dictionary = load_dictionary(out / DICTIONARY)
    assert dictionary.config.partition.tied and dictionary.config.partition.after_only == 8
    assert read_metadata(out / DICTIONARY)["site"] == SITE
    page = (out / "diff.html").read_text()
    assert "What leads (2 principal" in page[page.index("<summary>More") : page.index("</details>")]
    assert write_page(out).read_text() == page and all(
        word in page for word in ("latent-", "nu", "same-model pair")
    )
    assert len(page) < 2_000_000
    assert not (out / "training").exists()


def test_going_on_repeats_nothing_and_says_the_same(made, pair, texts, monkeypatch):
    out, summary = made
    monkeypatch.setattr(
        "crosscoders.study.material.train_crosscoders",
        lambda *_, **__: pytest.fail("it was trained again"),
    )
    monkeypatch.setattr(
        "crosscoders.study.pipeline.locate", lambda *_: pytest.fail("it was patched again")
    )
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert diff(pair[0], pair[1], out=out, texts=texts, resume=True, **SMALL) == summary
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_another_diff_is_not_mixed_into_a_folder_and_nothing_is_loaded_to_say_so(
    made, pair, texts, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        "forensics.subjects.subject.load_policy", lambda *_, **__: pytest.fail("loaded")
    )
    again = {"out": made[0], "texts": texts, "resume": True}
    other = save_tiny_qwen3(tmp_path / "other", seed=4)
    with pytest.raises(UserError, match="started with after "):
        diff(pair[0], other, **again, **SMALL)
    monkeypatch.setattr(  # other settings are refused before a checkpoint is even hashed
        "crosscoders.study.pipeline.inspect_subjects", lambda *_, **__: pytest.fail("inspected")
    )
    with pytest.raises(UserError, match="with tokens"):
        diff(pair[0], pair[1], **again, **{**SMALL, "tokens": 1000})
    with pytest.raises(UserError, match="started with reader none, not mean-after"):
        diff(pair[0], pair[1], reader="mean-after", **again, **SMALL)
    monkeypatch.setattr(  # and by the command before torch is imported
        "crosscoders.study.plan.plan", lambda *_: pytest.fail("a plan was made")
    )
    given = {"before": pair[0], "after": pair[1], "texts": texts, "out": made[0], "tokens": 1000}
    asked = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    assert command(["diff", *asked, "--resume"]) == 2
    assert "started with shape" in capsys.readouterr().err
    with pytest.raises(UserError, match="not empty"):
        diff(pair[0], pair[1], out=made[0], texts=texts, **SMALL)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"decisions": 0}, "chosen by patching"),
        ({"tokens": 0}, "at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"reader": "tarot"}, "--reader is 'tarot'"),
        ({"reader": "crosscoder"}, "use one of: components, mean-after"),
        ({"runs": "b", "texts": "c"}, "exclude each other"),
        ({"nonsense": 1}, "cannot be asked"),
        ({"texts": "nowhere.txt"}, "nowhere.txt"),
        ({"runs": "nowhere"}, "does not exist"),
    ],
)
def test_what_means_nothing_is_refused(pair, tmp_path, asked, told):
    from pathlib import Path

    asked = {
        name: Path(value) if name in ("runs", "texts") else value for name, value in asked.items()
    }
    with pytest.raises(UserError, match=told):
        diff(pair[0], pair[1], out=tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()
