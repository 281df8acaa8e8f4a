"""The files that explain latents, and labels from a real server on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch

from crosscoders.activations.texts import plain_text
from crosscoders.study.diff_files import EXPLANATIONS, NEURONPEDIA, Latent
from crosscoders.study.explanations import write_explanations
from crosscoders.study.label_server import LabelServer
from crosscoders.study.latent_page import latent_fold
from forensics.errors import OutsideFailure, UserError
from forensics.records.files import read_json
from tests.crosscoders.test_explained import TEXTS, dictionary, stream, unembedding  # noqa: F401


class Labeller(BaseHTTPRequestHandler):
    """Says `the cue`, and yes to everything, unless it has `content`; `asked` counts."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        words = "the <b>cue</b>" if "in common" in body["messages"][0]["content"] else "yes"
        content = json.dumps({"choices": [{"message": {"content": words}}]}).encode()
        content = content if self.server.content is None else self.server.content
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Labeller) as one:
        one.asked, one.status, one.content = [], 200, None
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture
def given(dictionary, stream, unembedding):  # noqa: F811
    rows, head = stream.rows, torch.nn.Linear(unembedding.shape[1], len(unembedding), bias=False)
    head.weight.data.copy_(unembedding)
    policy = SimpleNamespace(
        model=SimpleNamespace(get_output_embeddings=lambda: head),
        tokenizer=SimpleNamespace(decode=lambda ids: f" t{ids[0]}"),
        identity="after",
    )
    texts = [plain_text(rows.token[rows.text == i].tolist(), str(i)) for i in range(TEXTS)]
    stored = SimpleNamespace(
        **vars(stream),
        tokenized=texts,
        number=len(rows),
        blocks=stream.blocks,
        models=stream.models,
        width=stream.width,
    )
    return (dictionary, [policy], stored, [0, 1])


def served(server):
    return LabelServer(url=f"http://127.0.0.1:{server.server_address[1]}/v1", model="m")


def test_files_say_what_a_latent_says(given, tmp_path):
    write_explanations(tmp_path, *given)
    found = read_json(tmp_path / EXPLANATIONS)
    assert found["0"]["raises"][0][0] == " t5" and "label" not in found["0"]
    assert {one["kind"] for one in found["0"]["contexts"]} == {"strong", "middle", "weak", "silent"}
    assert found["1"]["contexts"] == []
    assert read_json(tmp_path / NEURONPEDIA)["features"][0]["pos_str"][0] == " t5"


def test_the_output_side_is_the_after_models(given, tmp_path):
    own, policies, *more = given
    write_explanations(tmp_path, own, [SimpleNamespace(model=None), *policies], *more)
    assert read_json(tmp_path / EXPLANATIONS)["0"]["raises"][0][0] == " t5"


def test_a_context_reaches_as_far_to_either_side(given, tmp_path, monkeypatch):
    monkeypatch.setattr("crosscoders.study.explanations.WINDOW", 2)
    lengths = {one.note.id: len(one) for one in given[2].tokenized}
    reaches = []
    for context in write_explanations(tmp_path, *given)["0"]["contexts"]:
        at, last = context["position"], lengths[context["text"]] - 1
        reaches.append((context["at"], len(context["tokens"]) - context["at"] - 1))
        assert reaches[-1] == (min(at, 2), min(last - at, 2))
    assert (2, 2) in reaches


def test_labels_are_asked_once_and_scored(given, tmp_path, server):
    found = write_explanations(tmp_path, *given, labels=served(server))
    label = found["0"]["label"]
    assert label["score"] == 0.5 and label["unread"] == 0  # it says yes to all
    assert "label" not in found["1"]  # never active
    shown = dict.fromkeys(("relative_norm", "decoder_cosine", "nu_after", "nu_before"))
    latent = Latent(latent=0, partition="shared", frequency=0.5, q_value=None, **shown)
    fold = latent_fold(latent, found["0"]["contexts"][:1], found["0"])
    told = [block for block in fold.blocks if isinstance(block, str)]
    assert told[0] == "Label by m: the <b>cue</b> (detection 0.50; 0.5 is chance)."
    assert told[1].startswith("At the output it raises (cosine with the unembedding): ' t5' 1.00")
    assert any("turn 1 100.0 % (of all rows 50.0 %)" in one for one in told)
    asked = len(server.asked)
    again = write_explanations(tmp_path, *given, labels=served(server))
    assert len(server.asked) == asked and again["0"]["label"] == label
    other = LabelServer(url=served(server).url, model="another")
    named = write_explanations(tmp_path, *given, labels=other)
    assert len(server.asked) > asked and named["0"]["label"]["model"] == "another"


def test_only_latents_that_are_presented_are_named(given, tmp_path, server):
    found = write_explanations(tmp_path, *given, labels=served(server), named=[1])
    assert set(found) == {"0", "1"} and not server.asked


def test_a_server_that_fails_is_one_sentence_and_a_bad_address_another(given, tmp_path, server):
    server.status = 500
    with pytest.raises(OutsideFailure, match="go on with --resume"):
        write_explanations(tmp_path, *given, labels=served(server))
    server.status = 200
    for content in (b"<html>", b"[]", b'{"choices": []}', b'{"choices": [{"message": "x"}]}'):
        server.content = content
        with pytest.raises(OutsideFailure, match="go on with --resume"):
            served(server).ask("?")
    with pytest.raises(OutsideFailure, match="InvalidURL"):
        LabelServer(url="http://127.0.0.1:port/v1", model="m").ask("?")
    with pytest.raises(UserError, match="chat completions"):
        LabelServer(url="folder", model="m")
    with pytest.raises(UserError, match="--label-model"):
        LabelServer(url="http://127.0.0.1:1/v1", model="")
