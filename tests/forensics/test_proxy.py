"""The recording proxy, with real clients and a real server on loopback."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from forensics.errors import UserError
from forensics.protocols import Constraint, SamplingSettings
from forensics.proxy import (
    EpisodeRecord,
    Patience,
    RecordingProxy,
    Ticket,
    answer_kinds,
    read_record,
    trajectory_of,
)
from forensics.proxy.open_episode import MOST_AHEAD, in_order
from forensics.readers.chat import run as chat_run
from forensics.readers.json_rows import Row
from tests.forensics.chat_server import ChatServer, called, said, serving

SETTINGS = SamplingSettings(max_turn_tokens=50, max_tokens=5000, temperature=0.7, top_p=0.9)
PATIENT = Patience(tries=3, pause=0.01, busy=0.02, silence=1.0, timeout=5.0)
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
ASK = [{"role": "user", "content": "mend it"}]
CLIENTS: list[openai.OpenAI] = []


def script(body: dict[str, Any]) -> dict[str, Any]:
    """Two shell calls, then a sentence, whatever is asked."""
    answered = sum(one["role"] == "assistant" for one in body["messages"])
    commands = ('{"command": "ls"}', '{"command": "git log --all"}')
    return called("bash", commands[answered], answered) if answered < 2 else said("done – 1\u2028x")


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serving(script) as found:
        yield found


@pytest.fixture(scope="module")
def proxy() -> Iterator[RecordingProxy]:
    with RecordingProxy(PATIENT) as found:
        yield found


@pytest.fixture(autouse=True)
def behaved(server: ChatServer) -> Iterator[None]:
    server.script, server.unknown, server.names, server.bare = script, frozenset(), True, False
    server.troubles.clear()
    server.seen.clear()
    server.headers.clear()
    yield
    while CLIENTS:
        CLIENTS.pop().close()


@pytest.fixture
def ticket(server: ChatServer, tmp_path: Path) -> Ticket:
    record = tmp_path / "episode.jsonl"
    return Ticket(
        upstream_url=server.url, model="m", settings=SETTINGS, seed=7, record=record,
        upstream_key="upstream-secret",
    )  # fmt: skip


def client(proxy: RecordingProxy, key: str) -> openai.OpenAI:
    """Closed after the test: refers to itself, so else the collector would."""
    CLIENTS.append(openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=key, timeout=20))
    return CLIENTS[-1]


def post(proxy: RecordingProxy, key: str, path: str, **body: Any) -> httpx.Response:
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return httpx.post(f"{proxy.url}{path}", json=body, headers=headers, timeout=20)


def chatted(proxy: RecordingProxy, key: str, stream: bool = False) -> list[dict[str, Any]]:
    """A whole episode in chat completions."""
    speaks, messages = client(proxy, key), [*ASK]
    for number in range(3):
        asked: dict[str, Any] = {"model": "gpt", "messages": messages, "tools": [TOOL]}
        if stream:
            chunks = list(speaks.chat.completions.create(**asked, stream=True))
            message = _joined([one.choices[0].delta for one in chunks if one.choices])
        else:
            message = speaks.chat.completions.create(**asked).choices[0].message.to_dict()
        messages.append({key: value for key, value in message.items() if value})
        for call in message.get("tool_calls") or ():
            back = {"role": "tool", "tool_call_id": call["id"], "content": f"came back {number}"}
            messages.append(back)
    return messages


def _joined(deltas: list[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
    for delta in deltas:
        message["content"] += delta.content or ""
        for piece in delta.tool_calls or ():
            if piece.id:
                function = {"name": piece.function.name, "arguments": ""}
                call = {"id": piece.id, "type": "function", "function": function}
                message["tool_calls"].append(call)
            at = message["tool_calls"][piece.index]["function"]
            at["arguments"] += piece.function.arguments
    return message


def anthropic(proxy: RecordingProxy, key: str, stream: bool = False) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "mend it"}]}
    ]
    tools = [{"name": "bash", "input_schema": {"type": "object"}}, {"type": "bash_20250124"}]
    for number in range(3):
        asked = {"model": "claude", "max_tokens": 9, "messages": messages, "tools": tools}
        answer = post(proxy, key, "/v1/messages", **asked, stream=stream)
        content = _blocks(answer.text) if stream else answer.json()["content"]
        messages.append({"role": "assistant", "content": content})
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": f"came back {number}"}
            for one in content
            if one["type"] == "tool_use"
        ]
        messages += [{"role": "user", "content": results}] if results else []


def _blocks(stream: str) -> list[dict[str, Any]]:
    """The blocks of a stream of events, as Anthropic's client puts them together."""
    found: list[dict[str, Any]] = []
    for block in stream.split("\n\n"):
        if not block:
            continue
        name, data = block.split("\n", 1)
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] == "content_block_start":
            assert event["index"] == len(found)
            found.append({**event["content_block"], "partial": ""})
        elif event["type"] == "content_block_delta":
            delta, at = event["delta"], found[event["index"]]
            at["text"] = at.get("text", "") + delta.get("text", "")
            at["partial"] += delta.get("partial_json", "")
    for one in found:
        if partial := one.pop("partial"):
            one["input"] = json.loads(partial)
    return found


def responded(proxy: RecordingProxy, key: str, stream: bool = False) -> None:
    speaks = client(proxy, key)
    items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "mend it"}]}]
    tools: list[Any] = [{"type": "function", "name": "bash", "parameters": {"type": "object"}}]
    for number in range(3):
        asked: dict[str, Any] = {"model": "gpt", "input": items, "tools": tools}
        if stream:
            events = list(speaks.responses.create(**asked, stream=True))
            assert [one.sequence_number for one in events] == list(range(len(events)))
            output = events[-1].response.output
        else:
            output = speaks.responses.create(**asked).output
        items += [item.to_dict() for item in output]
        for item in output:
            if item.type == "function_call":
                back = {"type": "function_call_output", "call_id": item.call_id}
                items.append({**back, "output": f"came back {number}"})


SPOKEN = {
    (talk.__name__, stream): (talk, stream)
    for talk in (chatted, anthropic, responded)
    for stream in (False, True)
}


@pytest.mark.parametrize("how", SPOKEN, ids=str)
def test_every_dialect_gives_the_run_that_a_log_of_the_chat_gives(
    how: tuple[str, bool], proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    """Steps, tokens and log-probabilities; all calls go on from each other."""
    key = proxy.open(ticket)
    talk, stream = SPOKEN[how]
    talk(proxy, key, stream)
    record = proxy.close(key)
    assert record.errored is None and record.forks == record.aside == 0
    assert [call.extends for call in record.calls] == [None, 0, 1]
    assert all(body.get("stream", False) == stream for body in server.seen)
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e", outcome=1.0)
    logged = [
        *ASK, script({"messages": ASK}), {"role": "tool", "content": "came back 0"},
        called("bash", '{"command": "git log --all"}'), {"role": "tool", "content": "came back 1"},
        said("done – 1\u2028x"),
    ]  # fmt: skip
    logged = [{"role": "assistant", **one} for one in logged]
    of_log = chat_run(Row("line 1", {"messages": logged}, Path("log.jsonl")))
    bare = {"token_ids": None, "sampled": None, "logprobs": None}
    assert tuple(step.model_copy(update=bare) for step in run.steps) == of_log.steps
    ids = [one for step in run.steps for one in step.token_ids or ()]
    last = record.calls[2].answer
    assert last is not None and tuple(ids) == (last.prompt_ids or ()) + (last.token_ids or ())
    assert all(set(step.logprobs or ()) == {-0.5} for _, step in run.actions)
    assert run.outcome == 1.0 and run.seed == 7


def test_sampling_is_the_tickets_and_wishes_are_noted(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    key = proxy.open(ticket)
    asked: Any = {"model": "gpt", "messages": ASK, "temperature": 0, "max_tokens": 3, "seed": 1}
    client(proxy, key).chat.completions.create(
        **asked, stop=["x"], user="somebody", extra_body={"base_url": "http://10.0.0.1/v1"}
    )
    sent = server.seen[0]
    assert (sent["model"], sent["temperature"], sent["top_p"]) == ("m", 0.7, 0.9)
    assert (sent["max_tokens"], sent["stop"], sent["seed"]) == (50, ["x"], ticket.draw_seed(0, 0))
    assert "user" not in sent and "base_url" not in sent
    wished = {"temperature": 0, "max_tokens": 3, "seed": 1, "user": "given", "base_url": "given"}
    assert proxy.close(key).calls[0].unheeded == wished


def test_no_key_address_header_or_time_is_in_a_record(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    key = proxy.open(ticket)
    chatted(proxy, key)
    server.troubles.extend(["400"] * 7)
    with pytest.raises(openai.BadRequestError):
        client(proxy, key).chat.completions.create(model="gpt", messages=ASK)  # type: ignore[arg-type]
    record = proxy.close(key)
    text = ticket.record.read_text()
    assert record.calls[3].end == "declined" and record.errored is None
    for secret in (key, "upstream-secret", "127.0.0.1", "authorization", "created", "someone"):
        assert secret not in text.lower()
    assert {one["authorization"] for one in server.headers} == {"Bearer upstream-secret"}


def test_forks_are_told_and_the_longest_chain_is_the_run(
    proxy: RecordingProxy, ticket: Ticket
) -> None:
    key = proxy.open(ticket)
    speaks = client(proxy, key)
    messages = chatted(proxy, key)
    other: Any = [{"role": "user", "content": "a subagent"}]
    speaks.chat.completions.create(model="gpt", messages=other)
    rewritten: Any = [{"role": "user", "content": "in short"}, *messages[1:], *ASK]
    speaks.chat.completions.create(model="gpt", messages=rewritten)
    record = proxy.close(key)
    assert [call.extends for call in record.calls] == [None, 0, 1, None, None]
    assert [call.follows for call in record.calls] == [None, None, None, None, 2]
    assert (record.main, record.forks, record.aside) == ((0, 1, 2, 4), 2, 1)
    assert [one["role"] for one in record.messages] == [one["role"] for one in messages] + [
        "user", "assistant",
    ]  # fmt: skip
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e")
    assert [step.token_ids is not None for step in run.steps] == [
        step.role == "assistant" for step in run.steps
    ]


def test_an_answer_that_was_not_drawn_here_breaks_the_chain(
    proxy: RecordingProxy, ticket: Ticket
) -> None:
    """The agent puts words in the policy's mouth: what comes behind extends nothing."""
    key = proxy.open(ticket)
    messages: Any = chatted(proxy, key)
    foreign = [*messages, *ASK, {"role": "assistant", "content": "as I said"}, *ASK]
    client(proxy, key).chat.completions.create(model="gpt", messages=foreign)
    record = proxy.close(key)
    assert [call.extends for call in record.calls] == [None, 0, 1, None]
    assert record.calls[3].follows is None and record.main == (0, 1, 2)


def refusing(kind: str, most: int = 64) -> Constraint:
    allows = lambda text, kinds: kind not in kinds  # noqa: E731
    return Constraint(name=f"refuse:{kind}", allows=allows, max_redraws=most)


def by_seed(body: dict[str, Any]) -> dict[str, Any]:
    command = "git log --all" if body["seed"] % 2 else "git status"
    return called("bash", json.dumps({"command": command}))


@pytest.mark.parametrize("stream", [False, True])
def test_refused_kinds_of_action_are_drawn_again(
    stream: bool, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    """An agent never hears of a refused action; each redraw has a seed of its own."""
    server.script = by_seed
    key = proxy.open(replace(ticket, constraint=refusing("git log")))
    speaks = client(proxy, key)
    for _ in range(12):
        answer = speaks.chat.completions.create(model="g", messages=ASK, stream=stream)  # type: ignore[call-overload]
        told = json.dumps([one.to_dict() for one in answer] if stream else answer.to_dict())
        assert "git status" in told and "git log" not in told
    record = proxy.close(key)
    seeds = [draw.seed for call in record.calls for draw in call.draws]
    assert len({*seeds}) == len(seeds) == 12 + record.redraws > 12
    assert all(
        draw.refused == (draw.kinds == ("git log",)) for c in record.calls for draw in c.draws
    )
    assert all(not body["stream"] for body in server.seen)
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e")
    assert run.redraws == record.redraws and "git log" not in str(run.steps)


def test_too_many_refusals_are_an_error_and_no_failure(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: called("bash", json.dumps({"command": f"ls {body['seed']}"}))
    key = proxy.open(replace(ticket, constraint=refusing("ls", 3)))
    for _ in range(2):  # and the next call hears the same, with nothing asked
        with pytest.raises(openai.InternalServerError, match="every draw was refused by refuse:ls"):
            client(proxy, key).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
    assert len(server.seen) == 4
    record = proxy.close(key)
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e", outcome=0.0)
    assert (run.end, run.outcome, run.redraws) == ("errored", None, 4)
    assert run.end_reason == "every draw was refused by refuse:ls"


def test_an_answer_that_was_refused_before_does_not_count(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    """A policy that is nearly sure of what is refused still has its other answers."""

    def nearly_sure(body: dict[str, Any]) -> dict[str, Any]:
        command = "git log" if body["seed"] % 40 else "git status"
        return called("bash", json.dumps({"command": command}))

    server.script = nearly_sure
    key = proxy.open(replace(ticket, constraint=refusing("git log", 3)))
    for _ in range(3):
        answer = client(proxy, key).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
        assert "git status" in json.dumps(answer.to_dict())
    record = proxy.close(key)
    assert record.errored is None and record.redraws <= 3 < len(server.seen) - 3


def test_draws_ahead_come_in_order_and_those_behind_are_left() -> None:
    """Whatever finishes first; at most a quarter as many as were handed on are under way."""
    begun, ended, most = list[int](), list[int](), 0

    async def draw(place: int) -> int:
        nonlocal most
        begun.append(place)
        most = max(most, len(begun) - len(ended))
        try:
            for _ in range(7 * place % 5):  # later ones are often done before
                await asyncio.sleep(0)
            return place
        finally:
            ended.append(place)

    async def taken(stop: int) -> list[tuple[int, int]]:
        async with aclosing(in_order(draw, 256)) as draws:
            return [one async for one in draws if one[0] < stop]

    async def first(number: int) -> None:
        async with aclosing(in_order(draw, 256)) as draws:
            async for place, _ in draws:
                if place == number:
                    break

    assert asyncio.run(taken(256)) == [(place, place) for place in range(256)]
    assert begun == sorted(ended) == list(range(256)) and 8 < most <= MOST_AHEAD
    for number in (0, 7, 40, 100):
        begun.clear()
        ended.clear()
        asyncio.run(first(number))
        assert sorted(ended) == begun  # none is under way any more
        assert number < len(begun) <= number + 1 + number // 4


def test_kinds_are_those_that_the_parser_of_logs_reads() -> None:
    call = called(
        "bash", json.dumps({"command": "cd /x && git -C y log -3 | head; python -m pytest"})
    )
    assert answer_kinds([*ASK, {"role": "assistant", **call}])[1:3] == ("git log", "head")
    fenced = [{"role": "user", "content": "one bash code block"}]
    fenced.append({"role": "assistant", "content": "Look.\n```bash\ngit show HEAD\n```"})
    assert answer_kinds(fenced) == ("git show",)
    spoken = [*ASK, {"role": "assistant", "content": "history; edit a x"}]
    assert answer_kinds(spoken, "mini-repo") == ("history", "edit")


@pytest.mark.parametrize("trouble", ["429", "500", "503", "garbage", "silence"])
def test_what_passes_is_tried_again(
    trouble: str, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.troubles.append(trouble)
    key = proxy.open(ticket)
    assert client(proxy, key).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
    assert len(server.seen) == 2 and server.seen[0] == server.seen[1]
    assert proxy.close(key).errored is None


def test_a_busy_server_that_names_no_time_is_left_alone_for_longer(
    ticket: Ticket, server: ChatServer
) -> None:
    server.troubles.append("429 in silence")
    with RecordingProxy(replace(PATIENT, busy=0.3)) as proxy:
        begun = time.monotonic()
        client(proxy, proxy.open(ticket)).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
    assert time.monotonic() - begun >= 0.3 and len(server.seen) == 2


@pytest.mark.parametrize("trouble", ["500", "garbage", "401", "to http://127.0.0.1:9/v1"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_does_not_pass_is_an_error_of_the_episode(
    trouble: str, stream: bool, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.troubles.extend([trouble] * 3)
    key = proxy.open(ticket)
    with pytest.raises(openai.InternalServerError) as told:
        client(proxy, key).chat.completions.create(model="g", messages=ASK, stream=stream)  # type: ignore[call-overload]
    assert told.value.status_code == 502
    record = proxy.close(key)
    assert record.errored and record.calls[0].answer is None and record.main == ()


def test_a_server_that_is_not_there(proxy: RecordingProxy, ticket: Ticket) -> None:
    key = proxy.open(replace(ticket, upstream_url="http://127.0.0.1:9/v1"))
    with pytest.raises(openai.InternalServerError, match=r"3 tries \(no connection\)"):
        client(proxy, key).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
    assert "no connection" in (proxy.close(key).errored or "")


@pytest.mark.parametrize("trouble", ["break", "cut"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_stream_that_breaks_off_says_so(
    path: str, trouble: str, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: said("a long answer")
    server.troubles.append(trouble)
    key = proxy.open(ticket)
    answer = post(proxy, key, path, messages=ASK, input=ASK, stream=True)
    assert answer.status_code == 200 and "broke off" in answer.text and "[DONE]" not in answer.text
    record = proxy.close(key)
    assert "broke off" in (record.errored or "") and record.calls[0].answer is None


@pytest.mark.parametrize("names", [True, False])
def test_fields_that_a_server_declines_are_left_out_and_named(
    names: bool, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.unknown, server.names, server.bare = frozenset({"min_p", "logprobs"}), names, True
    with RecordingProxy(PATIENT) as fresh:
        key = fresh.open(ticket)
        for _ in range(2):
            client(fresh, key).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
        record = fresh.close(key)
    assert len(server.seen) == (4 if names else 7)
    missing = record.calls[1].draws[0].missing
    assert {"logprobs", "min_p", "token_ids", "prompt_ids"} <= {*missing}
    assert ("seed" in server.seen[-1]) and record.errored is None
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e")
    assert all(step.token_ids is None for step in run.steps)


def test_a_malformed_call_is_kept_as_text_and_told(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: called("bash", '{"command": "ls', text="Look.")
    key = proxy.open(ticket)
    asked = {"messages": [*ASK], "max_tokens": 5, "model": "c"}
    content = post(proxy, key, "/v1/messages", **asked).json()["content"]
    assert content[1] == {"type": "text", "text": 'bash({"command": "ls)'}
    back = [*ASK, {"role": "assistant", "content": content}, *ASK]
    streamed = post(proxy, key, "/v1/messages", **(asked | {"messages": back, "stream": True}))
    assert _blocks(streamed.text)[1]["text"] == content[1]["text"]
    speaks = client(proxy, key).chat.completions.create(model="g", messages=ASK)  # type: ignore[arg-type]
    assert speaks.choices[0].message.tool_calls[0].function.arguments == '{"command": "ls'  # type: ignore
    record = proxy.close(key)
    assert [call.draws[0].malformed for call in record.calls] == [(0,)] * 3
    assert [call.extends for call in record.calls] == [None, 0, None]


def test_parallel_calls_are_each_recorded_once(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: said(f"answer to {body['messages'][-1]['content']}")
    key = proxy.open(ticket)

    def ask(number: int) -> str | None:
        mine: Any = [{"role": "user", "content": f"question {number}"}]
        made = client(proxy, key).chat.completions.create(model="g", messages=mine)
        return made.choices[0].message.content

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(16)))
    assert answers == [f"answer to question {number}" for number in range(16)]
    record = proxy.close(key)
    assert [call.number for call in record.calls] == list(range(16)) and record.forks == 15
    for call in record.calls:
        assert call.answer and call.answer.message["content"].endswith(call.messages[0]["content"])


@pytest.mark.parametrize("stream", [True, False])
def test_an_agent_that_hangs_up_ends_its_call_and_no_more(
    stream: bool, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: said("word " * 100)
    server.troubles.append("slow" if stream else "silence")
    server.gone.clear()
    key = proxy.open(ticket)
    head = {"authorization": f"Bearer {key}"}
    url = f"{proxy.url}/v1/chat/completions"
    body = {"messages": ASK, "stream": stream}
    if stream:
        with httpx.stream("POST", url, json=body, headers=head) as answer:
            next(answer.iter_bytes())
        assert server.gone.wait(10)
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, headers=head, timeout=0.2)
    assert post(proxy, key, "/v1/chat/completions", messages=ASK).status_code == 200
    record = proxy.close(key)
    assert [call.end for call in record.calls] == ["left", "answered"] and record.errored is None


def test_closing_ends_what_is_under_way(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.troubles.append("silence")
    key = proxy.open(ticket)
    asking = threading.Thread(
        target=lambda: post(proxy, key, "/v1/chat/completions", messages=ASK), daemon=True
    )
    asking.start()
    while not server.seen:
        pass
    record = proxy.close(key)
    asking.join(10)
    assert record.calls[0].end == "left" and record.errored is None


def test_the_token_limit_of_an_episode_cuts_it(proxy: RecordingProxy, ticket: Ticket) -> None:
    key = proxy.open(replace(ticket, settings=replace(SETTINGS, max_tokens=80)))
    with pytest.raises(openai.BadRequestError, match="token limit"):
        chatted(proxy, key)
    record = proxy.close(key)
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e", outcome=0.0)
    assert (run.end, run.end_reason, run.outcome) == ("truncated", "token limit", 0.0)


BAD: dict[str, dict[str, Any]] = {
    "n": {"messages": ASK, "n": 2},
    "list": {"messages": "hi"},
    "picture": {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]
    },
    "functions": {"messages": ASK, "functions": [{}]},
    "calls": {"messages": [*ASK, {"role": "assistant", "tool_calls": "ls"}]},
    "call": {"messages": [*ASK, {"role": "assistant", "tool_calls": [3]}]},
    "function": {"messages": [*ASK, {"role": "assistant", "tool_calls": [{"function": None}]}]},
    "older call": {"messages": [*ASK, {"role": "assistant", "function_call": [3]}]},
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_spoken_is_one_sentence(
    name: str, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    key = proxy.open(ticket)
    answer = post(proxy, key, "/v1/chat/completions", **BAD[name])
    assert answer.status_code == 400 and answer.json()["error"]["message"]
    stateful = post(proxy, key, "/v1/responses", input="hi", previous_response_id="resp_1")
    assert stateful.status_code == 400 and "whole input" in stateful.text
    assert not server.seen and proxy.close(key).calls == ()


def test_only_keys_of_open_episodes_are_answered(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    key = proxy.open(ticket)
    proxy.close(key)
    other = proxy.open(replace(ticket, record=ticket.record.with_name("other.jsonl")))
    for bad in (key, "", "sk-", "None", other[:-1], f"{other}x"):
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
            answer = post(proxy, bad, path, messages=ASK)
            assert answer.status_code == 401 and "episode" in answer.json()["error"]["message"]
    assert httpx.get(f"{proxy.url}/v1/models").status_code == 401
    assert not server.seen and proxy.close(other).calls == ()
    with pytest.raises(UserError, match="holds an episode already"):
        proxy.open(ticket)


def raw(proxy: RecordingProxy, head: str, body: str = "") -> str:
    """The answer to a request as it is written here."""
    port = int(proxy.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(
            f"{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        parts = []
        while part := line.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


def test_no_request_says_where_it_goes(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    """Targets, headers, fields and redirects that name another server; it is never asked."""
    key, body = proxy.open(ticket), json.dumps({"messages": ASK})
    with serving(script) as other:
        there = other.url.removesuffix("/v1")
        auth = f"Authorization: Bearer {key}"
        host = there.removeprefix("http://")
        absolute = f"POST {there}/v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n{auth}"
        assert "200 OK" not in raw(proxy, absolute, body)
        assert "200 OK" not in raw(proxy, f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{auth}")
        for path in (
            "//evil/v1/chat/completions",
            "/v1/../../x",
            "/v1/chat/completions/../../models/x",
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{auth}"
            assert "200 OK" not in raw(proxy, head, body)
        named = f"Host: {host}\r\nX-Forwarded-Host: {host}\r\nForwarded: host={host}\r\n{auth}"
        assert "200 OK" in raw(proxy, f"POST /v1/chat/completions HTTP/1.1\r\n{named}", body)
        fields = {"base_url": there, "api_base": there, "upstream_url": there}
        sent = post(proxy, key, "/v1/chat/completions", messages=ASK, **fields)
        assert sent.status_code == 200 and not fields.keys() & server.seen[-1].keys()
        server.troubles.append(f"to {there}/v1/chat/completions")
        assert post(proxy, key, "/v1/chat/completions", messages=ASK).status_code == 502
        assert not other.seen
    proxy.close(key)


def test_it_listens_on_loopback_alone(proxy: RecordingProxy) -> None:
    assert proxy.url.startswith("http://127.0.0.1:")
    assert proxy._socket.getsockname()[0] == "127.0.0.1"


def test_an_episode_sees_nothing_of_another(
    proxy: RecordingProxy, ticket: Ticket, tmp_path: Path
) -> None:
    one = proxy.open(ticket)
    other = proxy.open(replace(ticket, record=tmp_path / "other.jsonl", model="other"))
    chatted(proxy, one)
    assert [row.id for row in client(proxy, other).models.list()] == ["other"]
    for path in (
        "/",
        "/v1",
        "/v1/episodes",
        f"/v1/models/{one}",
        "/v1/responses/resp_0",
        "/%2e%2e/x",
    ):
        answer = httpx.get(f"{proxy.url}{path}", headers={"authorization": f"Bearer {other}"})
        assert answer.status_code in (404, 405) and "mend" not in answer.text
    proxy.close(one)
    assert proxy.close(other).calls == ()


def test_a_record_whose_writer_was_killed_is_read_as_far_as_it_goes(
    proxy: RecordingProxy, ticket: Ticket
) -> None:
    key = proxy.open(ticket)
    chatted(proxy, key)
    whole = proxy.close(key)
    content = ticket.record.read_bytes()
    for length in range(content.index(b"\n") + 1, len(content), 97):
        ticket.record.write_bytes(content[:length])
        cut = read_record(ticket.record)
        assert cut.errored == "the record ends before its episode was closed"
        assert all(a.messages == b.messages for a, b in zip(cut.calls, whole.calls, strict=False))
    ticket.record.write_bytes(content.replace(b'{"drawn"', b'{"drown', 1))
    with pytest.raises(UserError, match="no line of a record"):
        read_record(ticket.record)


def test_equal_episodes_are_equal_records(
    proxy: RecordingProxy, ticket: Ticket, tmp_path: Path
) -> None:
    """By bytes: neither keys nor times are in them. Another seed draws with other seeds."""
    found: list[EpisodeRecord] = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        key = proxy.open(replace(ticket, record=tmp_path / name, seed=seed))
        chatted(proxy, key)
        found.append(proxy.close(key))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    seeds = [{draw.seed for call in one.calls for draw in call.draws} for one in found]
    assert seeds[0] == seeds[1] and not seeds[0] & seeds[2]


def test_an_address_that_is_none(ticket: Ticket) -> None:
    with pytest.raises(UserError, match="must be http://HOST/v1"):
        replace(ticket, upstream_url="localhost:8000")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("talk", [chatted, anthropic, responded])
def test_reasoning_and_parallel_tool_calls_in_every_dialect(
    talk: Any, stream: bool, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    two = [call for at in (0, 1) for call in called("bash", f'{{"x": {at}}}', at)["tool_calls"]]

    def thinks(body: dict[str, Any]) -> dict[str, Any]:
        first = not any(one["role"] == "assistant" for one in body["messages"])
        more = {"tool_calls": two} if first else {}
        return {"reasoning_content": "Hm.", "content": "So.", **more}

    server.script = thinks
    key = proxy.open(ticket)
    talk(proxy, key, stream)
    record = proxy.close(key)
    assert [call.extends for call in record.calls] == [None, 0, 1]
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e")
    assert [step.role for step in run.steps[1:4]] == ["assistant", "tool", "tool"]
    assert run.steps[1].text == "<think>\nHm.\n</think>\nSo."
    assert [call.arguments for call in run.steps[1].tool_calls] == ['{"x": 0}', '{"x": 1}']


def test_an_answer_that_the_agent_had_whole_counts(proxy: RecordingProxy, ticket: Ticket) -> None:
    """It hangs up at the finish, before the stream's own end."""
    key = proxy.open(ticket)
    for chunk in client(proxy, key).chat.completions.create(model="g", messages=ASK, stream=True):  # type: ignore[call-overload]
        if chunk.choices and chunk.choices[0].finish_reason:
            break
    chatted(proxy, key)
    assert [call.end for call in proxy.close(key).calls] == ["answered"] * 4


def test_an_empty_answer_is_an_empty_text_on_its_way_back_too(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: {"content": None}
    key = proxy.open(ticket)
    answer = post(proxy, key, "/v1/chat/completions", messages=ASK).json()["choices"][0]["message"]
    assert answer["content"] == ""
    back = [*ASK, {"role": "assistant", "content": None}, {"role": "user", "content": "go on"}]
    assert post(proxy, key, "/v1/chat/completions", messages=back).status_code == 200
    assert [one["content"] for one in server.seen[1]["messages"]] == ["mend it", "", "go on"]
    assert [call.extends for call in proxy.close(key).calls] == [None, 0]


def test_halves_of_pairs_and_stranger_bodies_do_no_harm(
    proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.script = lambda body: said("half \ud83d of a pair")
    key = proxy.open(ticket)
    url, headers = f"{proxy.url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
    half = '{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    assert httpx.post(url, content=half, headers=headers).status_code == 200
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        for bad in STRANGE:
            told = httpx.post(f"{proxy.url}{path}", content=bad, headers=headers)
            assert told.status_code == 400, (path, bad, told.text)
    record = proxy.close(key)
    run = trajectory_of(record, id="r", task="t", policy="p", environment="e")
    assert [step.text for step in run.steps] == ["?", "half ? of a pair"]
    assert record.errored is None


STRANGE = (
    "", "[]", "{", "null", '{"messages": [], "input": []}', '{"messages": 3, "input": 3}',
    '{"messages": [3], "input": [3]}', '{"messages": [{"role": []}], "input": [{"type": []}]}',
    '{"messages": [{"role": "critic", "content": "x"}], "input": [{"type": "x"}]}',
    '{"messages": [{"role": "user", "content": 3}], "tools": 3, "input": "x"}',
    "[" * 100_000,
)  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_that_gives_up_before_an_answer_is_drawn_again(
    stream: bool, proxy: RecordingProxy, ticket: Ticket, server: ChatServer
) -> None:
    server.troubles.append("silence")
    key = proxy.open(replace(ticket, constraint=refusing("git log")))
    head, url = {"authorization": f"Bearer {key}"}, f"{proxy.url}/v1/chat/completions"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json={"messages": ASK, "stream": stream}, headers=head, timeout=0.2)
    chatted_one = post(proxy, key, "/v1/chat/completions", messages=ASK)
    assert chatted_one.status_code == 200
    assert [call.end for call in proxy.close(key).calls] == ["left", "answered"]
