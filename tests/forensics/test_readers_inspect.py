"""Inspect logs, written by hand after inspect_ai 0.3.285: whole and chunked
samples, deflate and zstandard, JSON.
"""

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.readers import Unreadable, inspect_ai, inspect_archive, read_logs
from forensics.records import Step, ToolCall, Trajectory
from tests.forensics.reader_files import damaged, survives, write_zstd_zip

HASH = "0123456789abcdef" * 2
LONG = "a long listing"
HEADER = {
    "version": 2,
    "status": "success",
    "eval": {"run_id": "r", "task": "repair", "model": "lab/model",
     "model_generate_config": {"seed": 7}},
}  # fmt: skip
CALL = {"id": "c", "function": "bash", "arguments": {"cmd": "ls é"}, "type": "function"}
MESSAGES = [
    {"id": "m1", "role": "system", "content": "Be good."},
    {"id": "m2", "role": "user", "content": [{"type": "text", "text": "Mend"}, {"type": "image",
     "image": "data:x"}]},
    {"id": "m3", "role": "assistant", "content": [{"type": "reasoning", "reasoning": "I look."},
     {"type": "reasoning", "reasoning": "X", "redacted": True}, {"type": "text",
     "text": "Looking."}], "tool_calls": [CALL]},
    {"id": "m4", "role": "tool", "content": f"attachment://{HASH}", "function": "bash",
     "error": {"type": "timeout", "message": "too slow"}},
    {"id": "m5", "role": "assistant", "content": "It is done."},
]  # fmt: skip
STEPS = (
    Step(role="system", text="Be good."),
    Step(role="user", text="Mend\n[image]"),
    Step(role="assistant", text="<think>\nI look.\n</think>\nLooking.",
         tool_calls=(ToolCall(name="bash", arguments='{"cmd": "ls é"}'),)),
    Step(role="tool", text=f"{LONG}\nError: too slow"),
    Step(role="assistant", text="It is done."),
)  # fmt: skip
SAMPLE: dict[str, Any] = {
    "id": "t-1",
    "epoch": 2,
    "input": "Mend",
    "target": "",
    "uuid": "u1",
    "messages": MESSAGES,
    "output": {"choices": [{"message": MESSAGES[-1], "stop_reason": "stop"}],
     "completion": "It is done."},
    "scores": {"match": {"value": "P"}, "style": {"value": {"clear": 3, "short": None}},
     "words": {"value": float("inf")}},
    "attachments": {HASH: LONG},
    "events": [],
}  # fmt: skip
RUN = Trajectory(
    id="u1", task="t-1", policy="lab/model", environment="repair", seed=7, sample=1, steps=STEPS,
    rewards={"match": 0.5, "style.clear": 3.0, "style.short": None, "words": None}, outcome=0.5,
    submission="It is done.", end="terminated", end_reason="stop",
)  # fmt: skip
NUMBERED = json.loads(json.dumps(MESSAGES).replace(HASH, "1"))


def chunks(sample: dict[str, Any], folder: str) -> dict[str, Any]:
    """The sample as members of a chunked one: five messages in pieces of two,
    two attachments in pieces of one.
    """
    shell = {
        key: value
        for key, value in sample.items()
        if key not in ("messages", "attachments", "events")
    }
    return {
        f"{folder}/sample.json": {**shell, "message_refs": [[1, 2], [0, 1], [2, 5]]},
        f"{folder}/messages/0.json": [NUMBERED[1], NUMBERED[0]],
        f"{folder}/messages/2.json": NUMBERED[2:4],
        f"{folder}/messages/4.json": NUMBERED[4:],
        f"{folder}/attachments/0.json": ["other"],
        f"{folder}/attachments/1.json": [LONG],
        f"{folder}/events/stats.json": {"chunks": []},
    }


def write_eval(
    path: Path, members: dict[str, Any], header: str | None = "header.json", zstd: bool = True
) -> Path:
    contents = {name: json.dumps(value).encode() for name, value in members.items()}
    contents |= {header: json.dumps(HEADER).encode()} if header else {}
    if zstd:
        return write_zstd_zip(path, contents)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def write_json_log(path: Path, samples: list[Any]) -> Path:
    path.write_text(json.dumps({**HEADER, "samples": samples}))
    return path


def read_one(path: Path) -> Trajectory:
    (found,) = read_logs(path)
    assert isinstance(found, Trajectory), found
    return found


def sample(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**SAMPLE, **changes}.items() if value is not None}


@pytest.mark.parametrize("zstd", [True, False])
@pytest.mark.parametrize("header", ["header.json", "_journal/start.json"])
def test_a_sample_that_is_whole(tmp_path: Path, zstd: bool, header: str) -> None:
    assert (
        read_one(
            write_eval(tmp_path / "a.eval", {"samples/t-1_epoch_2.json": SAMPLE}, header, zstd)
        )
        == RUN
    )
    assert (
        read_one(write_eval(tmp_path / "a.bin", {"samples/t-1_epoch_2.json": SAMPLE}, header, zstd))
        == RUN
    )


def test_a_sample_in_pieces_and_one_that_is_whole_in_one_log(tmp_path: Path) -> None:
    members = chunks(sample(id=10, uuid="u3"), "samples/10_epoch_2")
    members["samples/9_epoch_2.json"] = sample(id=9, uuid="u2")
    expected = [
        RUN.model_copy(update={"id": f"u{name - 7}", "task": str(name)}) for name in (9, 10)
    ]
    assert list(read_logs(write_eval(tmp_path / "a.eval", members))) == expected


@pytest.mark.parametrize("lost", ["messages/2.json", "messages/4.json"])
def test_a_piece_that_is_missing_is_told_and_the_rest_is_read(tmp_path: Path, lost: str) -> None:
    members = chunks(SAMPLE, "samples/t/1_epoch_2") | {"samples/z_epoch_1.json": SAMPLE}
    del members[f"samples/t/1_epoch_2/{lost}"]
    broken, good = read_logs(write_eval(tmp_path / "a.eval", members))
    assert isinstance(broken, Unreadable) and broken.where == "samples/t/1_epoch_2/sample.json"
    assert good == RUN


def test_messages_behind_a_missing_piece_do_not_move_up(tmp_path: Path) -> None:
    members = chunks(SAMPLE, "samples/1_epoch_2")
    del members["samples/1_epoch_2/messages/2.json"]
    members["samples/1_epoch_2/sample.json"]["message_refs"] = [[0, 3]]
    (found,) = read_logs(write_eval(tmp_path / "a.eval", members))
    assert (
        isinstance(found, Unreadable)
        and found.reason == "of its messages, numbers 2 to 3 are missing"
    )


@pytest.mark.parametrize("zstd", [True, False])
def test_a_wrong_checksum_is_told(tmp_path: Path, zstd: bool) -> None:
    path = write_eval(tmp_path / "a.eval", {"samples/1_epoch_2.json": SAMPLE}, zstd=zstd)
    good = zlib.crc32(json.dumps(SAMPLE).encode()).to_bytes(4, "little")
    assert path.read_bytes().count(good) == 2
    path.write_bytes(path.read_bytes().replace(good, b"evil"))
    (found,) = read_logs(path)
    assert isinstance(found, Unreadable) and found.where == "samples/1_epoch_2.json"


def test_a_broken_member_is_told_by_name(tmp_path: Path) -> None:
    path = write_eval(
        tmp_path / "a.eval", {"samples/a_epoch_1.json": SAMPLE, "samples/b_epoch_1.json": SAMPLE}
    )
    content = bytearray(path.read_bytes())
    content[120] ^= 255
    path.write_bytes(content)
    broken, good = read_logs(path)
    assert (
        isinstance(broken, Unreadable) and broken.where == "samples/a_epoch_1.json" and good == RUN
    )


def test_json_logs_say_the_same(tmp_path: Path) -> None:
    assert read_one(write_json_log(tmp_path / "a.json", [SAMPLE])) == RUN
    broken, good = read_logs(write_json_log(tmp_path / "a.json", [{"epoch": 1}, SAMPLE]))
    assert broken == Unreadable(
        path=tmp_path / "a.json", where="samples 0", reason="the row has no 'id'"
    )
    assert good == RUN


def test_a_json_log_that_breaks_off_gives_the_samples_before(tmp_path: Path) -> None:
    path = write_json_log(tmp_path / "a.json", [SAMPLE, sample(uuid="u2"), sample(uuid="u3")])
    path.write_bytes(path.read_bytes()[:-700])
    first, second, broken = read_logs(path)
    assert first == RUN and second == RUN.model_copy(update={"id": "u2"})
    assert isinstance(broken, Unreadable) and broken.where == "after samples 1"


def test_a_json_log_in_another_order_of_entries(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"samples": [SAMPLE], "status": "success", **HEADER}, indent=1))
    assert list(inspect_ai.reader.read(path)) == [RUN]


@pytest.mark.parametrize("changes, expected", [
    ({"error": {"message": "boom"}, "scores": None}, ("errored", "boom", None)),
    ({"limit": {"type": "token", "limit": 5}}, ("truncated", "token limit", 0.5)),
    ({"output": {"choices": [{"message": {}, "stop_reason": "max_tokens"}]}}, ("truncated",
     "max_tokens", 0.5)),
    ({"scores": {"grade": {"value": 42.7}}}, ("terminated", "stop", None)),
    ({"scores": {"grade": {"value": float("nan")}}}, ("terminated", "stop", None)),
    ({"scores": {"grade": {"value": "I"}}}, ("terminated", "stop", 0.0)),
    ({"scores": {"grade": {"value": True}}}, ("terminated", "stop", 1.0)),
    ({"scores": {"grade": {"value": "unclear"}}}, ("terminated", "stop", None)),
    ({"scores": None, "score": {"value": "C"}}, ("terminated", "stop", 1.0)),
    ({"scores": {}}, ("terminated", "stop", None)),
])  # fmt: skip
def test_endings_and_scores(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = read_one(write_json_log(tmp_path / "a.json", [sample(**changes)]))
    assert (found.end, found.end_reason, found.outcome) == expected


def test_the_patch_of_a_scorer_is_the_submission(tmp_path: Path) -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-old\n+new\n+++ counts too\n"
    scores = {"swe": {"value": 1.0, "metadata": {"model_patch": patch}}}
    found = read_one(write_json_log(tmp_path / "a.json", [sample(scores=scores)]))
    assert (found.submission, found.patch) == ("new\n++ counts too", patch)


def model_event(given: list[Any], made: Any, **changes: Any) -> dict[str, Any]:
    return {"event": "model", "input": given, "output": {"choices": [{"message": made}]}, **changes}


def test_generations_that_the_messages_lost_come_from_the_calls(tmp_path: Path) -> None:
    """m3 and m4 were compacted away; the first call has its input in the pool;
    the grader is not the policy.
    """
    events = [
        {"event": "span_begin", "type": "solver"},
        model_event([], MESSAGES[2], input_refs=[[0, 2]]),
        model_event([], {"id": "g", "role": "assistant", "content": "grade"}, role="grader"),
        model_event(MESSAGES[:4], MESSAGES[4]),
        {"event": "span_begin", "type": "scorer"},
        model_event([], {"id": "s", "role": "assistant", "content": "score"}),
    ]
    kept = [MESSAGES[0], MESSAGES[1], MESSAGES[4]]
    compacted = sample(
        messages=kept, events=events, events_data={"messages": MESSAGES[:2], "calls": []}
    )
    assert read_one(write_json_log(tmp_path / "a.json", [compacted])) == RUN
    whole = sample(messages=kept, events=[*events[:1], model_event(kept, kept[-1]), *events[4:]])
    assert [step.text for step in read_one(write_json_log(tmp_path / "b.json", [whole])).steps][
        -2:
    ] == ["Mend\n[image]", "It is done."]


def test_a_short_text_that_names_a_long_one_often_is_refused(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": f"attachment://{HASH}" * 100}]
    bomb = sample(attachments={HASH: "x" * 1_000_000}, messages=messages)
    (found,) = read_logs(write_json_log(tmp_path / "a.json", [bomb]))
    assert isinstance(found, Unreadable) and "attachments" in found.reason


def test_logs_without_samples_or_header_are_told(tmp_path: Path) -> None:
    for members, header in (({}, "header.json"), ({"samples/a_epoch_1.json": SAMPLE}, None)):
        (found,) = read_logs(write_eval(tmp_path / "a.eval", members, header))
        assert isinstance(found, Unreadable)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_logs_never_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    members = chunks(SAMPLE, "samples/1_epoch_2") | {"samples/2_epoch_2.json": SAMPLE}
    good = write_eval(place / "good.eval", members, zstd=data.draw(st.booleans()))
    survives(inspect_archive.reader, place / "bad.eval", data.draw(damaged(good.read_bytes())))
    log = write_json_log(place / "good.json", [SAMPLE, SAMPLE]).read_bytes()
    survives(inspect_ai.reader, place / "bad.json", data.draw(damaged(log)))


@pytest.mark.parametrize("zstd", [True, False])
@pytest.mark.parametrize("header", ["header.json", "_journal/start.json"])
def test_of_an_archive_that_breaks_off_the_whole_samples_are_read(
    tmp_path: Path, header: str, zstd: bool
) -> None:
    names = [f"samples/t-{n}_epoch_1.json" for n in range(4)]
    members = {header: {**HEADER, "eval": {**HEADER["eval"], "dataset": {"samples": 6}}}}
    members |= {name: {**SAMPLE, "id": f"t-{n}", "uuid": f"u{n}"} for n, name in enumerate(names)}
    whole = write_eval(tmp_path / "whole.eval", members, header=None, zstd=zstd)
    with zipfile.ZipFile(whole) as archive:
        last = archive.getinfo(names[3]).header_offset
    path = tmp_path / "a.eval"
    path.write_bytes(whole.read_bytes()[: last + 80])
    lost, *runs = read_logs(path)
    assert isinstance(lost, Unreadable) and lost.where == "the end of the archive"
    assert "3 of the 6 samples that were to be run are whole" in lost.reason
    assert [run.task for run in runs if isinstance(run, Trajectory)] == ["t-0", "t-1", "t-2"]
    assert [run.policy for run in runs if isinstance(run, Trajectory)] == ["lab/model"] * 3
    assert runs == list(read_logs(whole))[:3]
    path.write_bytes(whole.read_bytes()[:40])
    (nothing,) = read_logs(path)
    assert isinstance(nothing, Unreadable) and "first member" in nothing.reason


def test_members_whose_lengths_stand_behind_them_are_salvaged(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: object) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(HEADER))
        for n in range(3):
            archive.writestr(f"samples/t_epoch_{n}.json", json.dumps({**SAMPLE, "uuid": f"u{n}"}))
    content = pipe.getvalue()
    path = tmp_path / "a.eval"
    path.write_bytes(content[: content.rindex(b"PK\x03\x04") + 200])
    lost, *runs = read_logs(path)
    assert isinstance(lost, Unreadable)
    assert [run.id for run in runs if isinstance(run, Trajectory)] == ["u0", "u1"]
