"""Somebody else's agent as a subject: what it plays, what is refused, what fails and is kept."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.errors import MissingInput, OutsideFailure, UserError
from forensics.harness import Commands, HarnessWorld, read_harness
from forensics.investigation.served_sides import agent_sides, marker
from forensics.protocols import Alteration, Constraint, SamplingSettings
from forensics.proxy import Patience
from forensics.records import Step, Trajectory
from forensics.subjects.agent import OUTAGE, AgentPolicy, MachineWords, Planned, own_folder
from tests.forensics.scripted_chat import ScriptedChat, chatting, harness

NO_HISTORY = Constraint(name="refuse:history", allows=lambda text, kinds: "history" not in kinds)


@pytest.fixture
def server() -> Iterator[ScriptedChat]:
    with chatting(half=0.5, never=0.0) as one:
        yield one


def agent(
    server: str, toml: Path, out: Path, model: str = "half"
) -> tuple[AgentPolicy, HarnessWorld]:
    read = read_harness(toml)
    quick = Patience(tries=4, pause=0.01)
    told = marker(read)
    policy = AgentPolicy(
        identity="x", url=server, model=model, folder=out, told=told, patience=quick
    )
    return policy, HarnessWorld(read)


def played(policy: AgentPolicy, world: HarnessWorld, **how: Constraint) -> list[Trajectory]:
    tasks = world.tasks("held-out", 100, 0)
    return list(policy.play(world, tasks, 2, SamplingSettings(), 3, **how))


def test_what_an_agent_did_is_read_from_its_calls_and_its_result(
    server: ScriptedChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "1")
    policy, world = agent(server.url, harness(tmp_path / "h"), tmp_path / "kept")
    runs = played(policy, world)
    assert [(run.task, run.sample) for run in runs[:3]] == [
        ("task-0", 0),
        ("task-0", 1),
        ("task-1", 0),
    ]
    looked = [run for run in runs if run.steps[1].kinds == ("history",)]
    assert 0 < len(looked) < len(runs) == 8
    for run in runs:
        assert run.outcome == float(run in looked) and run.end == "terminated"
        assert [step.role for step in run.steps] == ["user", "assistant", "tool", "assistant"]
        assert run.steps[2].channels == (("git-history",) if run in looked else ())
        assert run.rewards["variables"] <= 10  # none of ours but PATH, LANG and the like
    seeds = [body["seed"] for body in server.seen]
    assert len(set(seeds)) == len(seeds) and 7 not in seeds  # not the agent's own
    without = played(policy, world.without("git-history"))
    assert [run.steps[1].text for run in without] == [run.steps[1].text for run in runs]  # coupled
    assert not any(run.outcome for run in without)
    assert all(run.without == ("git-history",) for run in without)
    refused = played(policy, world, constraint=NO_HISTORY)
    assert not any("history" in step.kinds for run in refused for step in run.steps)
    assert sum(run.redraws for run in refused) >= len(looked)
    others = [at for at, run in enumerate(runs) if run not in looked]
    assert [refused[at].steps for at in others] == [runs[at].steps for at in others]


def test_a_finished_episode_is_kept_and_asked_for_once(tmp_path: Path) -> None:
    toml = harness(tmp_path / "h")
    with chatting(half=0.5) as server:
        policy, world = agent(server.url, toml, tmp_path / "kept")
        first = policy.play(world, ["task-0"], 2, SamplingSettings(), 3)
        next(first)
        first.close()  # as a run that is stopped does
        runs = played(policy, world)
        calls = len(server.seen)
        assert played(policy, world) == runs and len(server.seen) == calls
    assert played(policy, world) == runs  # with nobody there
    text = "".join(path.read_text() for path in (tmp_path / "kept").iterdir())
    assert (
        '"sk-' not in text
        and " sk-" not in text
        and str(tmp_path) not in text
        and "127.0.0.1" not in text
    )


def test_an_agent_that_tells_all_it_knows_leaves_no_key_and_no_place_of_this_machine(
    server: ScriptedChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works in a folder of the same name each time, so that what it says can be the same."""
    monkeypatch.setenv("PIDS", "a-secret-of-ours")
    policy, world = agent(server.url, harness(tmp_path / "h", "tells"), tmp_path / "kept")
    policy.key = "sk-of-the-server"
    told = "".join(run.model_dump_json() for run in played(policy, world))
    for gone in ("a-secret", "'sk-", "127.0.0.1", "/episode-", str(tmp_path), os.environ["PATH"]):
        assert gone not in told
    for there in ("'[key]'", "'[PIDS]'", "'HOME': '/episode/home'", "in /harness for /episode/out"):
        assert there in told
    scrubbed = Planned(world.without("git-history"), "task-0", 1, SamplingSettings(), 3, None, "b")
    one, commands = Planned(world, "task-0", 1, SamplingSettings(), 3, None, "a"), Commands()
    with own_folder(one, commands) as first:
        with own_folder(scrubbed, commands) as other:
            assert other != first
    with own_folder(scrubbed, commands) as again:
        assert again == first
    assert not first.exists() and not other.exists()


def test_a_secret_is_gone_from_the_tokens_too() -> None:
    words = MachineWords({"sk-secret": "[key]"}, {"/tmp/abc/d": "/episode"})
    ids = {"token_ids": (1, 2), "sampled": (True, True), "logprobs": (-1.0, -1.0)}
    given = Step(role="user", text="in /tmp/abc/d", token_ids=(3,), sampled=(False,))
    answers = [Step(role="assistant", text=text, **ids) for text in ("ls", "echo sk-secret")]
    run = Trajectory(
        id="r", task="t", policy="p", environment="e", seed=0, outcome=None, end="terminated",
        steps=(given, answers[0], answers[1]),
    )  # fmt: skip
    steps = words.taken_out(run).steps
    assert [step.text for step in steps] == ["in /episode", "ls", "echo [key]"]
    assert [step.token_ids for step in steps] == [None, (1, 2), None]
    assert words.taken_out(run.model_copy(update={"steps": run.steps[:2]})).steps[0].token_ids


def test_a_server_that_fails_ends_the_run_and_leaves_nothing_behind(tmp_path: Path) -> None:
    toml = harness(tmp_path / "h", tasks=2)
    with chatting(half=0.5) as server:
        server.troubles.extend([429, 503])
        policy, world = agent(server.url, toml, tmp_path / "kept")
        runs = played(policy, world)
        assert not [run for run in runs if run.outcome is None]  # tried again
        url = server.url
    policy, world = agent(url, toml, tmp_path / "gone")
    with pytest.raises(OutsideFailure, match="see to the server, and go on with --resume"):
        played(policy, world)
    assert not (tmp_path / "gone").exists()


def test_an_episode_whose_server_failed_is_not_kept_and_a_changed_one_is_told(
    server: ScriptedChat, tmp_path: Path
) -> None:
    policy, world = agent(server.url, harness(tmp_path / "h"), tmp_path / "kept")
    run = played(policy, world)[0]
    one = Planned(world, "task-0", 0, SamplingSettings(), 3, None, "name")
    gone = {"outcome": None, "end": "errored", "end_reason": f"{OUTAGE}: no connection"}
    policy._keep(one, run.model_copy(update=gone))
    assert not policy._place(one).exists()
    policy._keep(one, run)
    assert policy._place(one).exists()
    for path in (tmp_path / "kept").iterdir():
        path.write_text(path.read_text()[:100])
    with pytest.raises(OutsideFailure, match="holds no episode any more; delete it"):
        played(policy, world)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("crashes", "status 1: no good in secret with [key]"),
        ("forgets", "handed in no result.json"),
    ],
)
def test_an_episode_without_a_result_has_no_outcome(
    server: ScriptedChat, tmp_path: Path, how: str, told: str
) -> None:
    policy, world = agent(server.url, harness(tmp_path / "h", how), tmp_path / "kept")
    with pytest.raises(OutsideFailure, match="first 8 episodes failed") as said:
        played(policy, world)
    assert told in str(said.value)
    run = next(policy.play(world, ["task-0"], 20, SamplingSettings(), 3))
    assert run.outcome is None and run.end == "errored"


def test_episodes_whose_records_of_the_outcome_differ_are_counted(
    server: ScriptedChat, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, world = agent(server.url, harness(tmp_path / "h", "doubts"), tmp_path / "kept")
    runs = played(policy, world)
    differ = [run for run in runs if "reward (in verifier/reward.txt)" in run.rewards]
    assert 0 < len(differ) < len(runs) and not any(run.outcome for run in differ)
    assert f"in {len(differ)} of 8 episodes the files that tell the outcome differ" in caplog.text


def test_a_command_that_hangs_is_stopped_with_all_that_it_started(
    server: ScriptedChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    toml = harness(tmp_path / "h", "hangs", tasks=1, seconds=0.7)
    policy, world = agent(server.url, toml, tmp_path / "kept")
    with pytest.raises(OutsideFailure, match=r"took more than 0\.7 s"):
        played(policy, world)
    groups = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert groups
    for group in groups:
        assert_gone(group)


def assert_gone(group: int) -> None:
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("something that the command started is still there")


def test_what_left_the_group_ends_with_the_command(tmp_path: Path) -> None:
    leaves = "setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do :; done"
    given = {"PATH": os.environ["PATH"]}
    with Commands() as commands:
        argv, said = ["sh", "-c", leaves], tmp_path / "said"
        assert commands.run(argv, tmp_path, given, 60, said, "mark-of-one-episode") is None
    assert_gone(int((tmp_path / "pid").read_text()))


STARTS = """
import sys, threading, time
from forensics.harness import Commands
from pathlib import Path
here, argv = Path.cwd(), ["sh", "-c", "echo $$ > pid; sleep 60 & sleep 60"]
(made := here / "episode").mkdir()
(made / "work").write_text("of the agent")
with Commands() as commands, commands.working_in(made):
    given = argv, here, {}, 60, here / "said", "mark-of-one-episode"
    threading.Thread(target=commands.run, args=given).start()
    while not (here / "pid").exists():
        time.sleep(0.02)
    with commands.lock:  # it is noted by now
        print("started", flush=True)
    time.sleep(60)
"""


def test_nothing_that_a_command_started_outlives_a_kill_of_ours(tmp_path: Path) -> None:
    words = [sys.executable, "-c", STARTS]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"started\n"
        assert (tmp_path / "episode" / "work").exists()
        child.kill()
    assert_gone(int((tmp_path / "pid").read_text()))
    for _ in range(500):
        if not (tmp_path / "episode").exists():
            return
        time.sleep(0.02)
    pytest.fail("the folder of the episode is still there")


def test_what_cannot_be_done_to_an_agent_is_a_missing_input(tmp_path: Path) -> None:
    policy, world = agent("http://127.0.0.1:9/v1", harness(tmp_path / "h"), tmp_path / "kept")
    altered = Alteration(name="other", of=lambda world: object()).of(world)  # type: ignore[arg-type]
    with pytest.raises(MissingInput, match="what it is shown cannot be changed"):
        policy.play(altered, ["task-0"], 1, SamplingSettings(), 0)
    with pytest.raises(MissingInput):
        world.spawn()


def test_a_served_model_is_named_by_what_vouches_for_it(
    server: ScriptedChat, tmp_path: Path
) -> None:
    toml = harness(tmp_path / "h")
    world, sides = agent_sides(toml, f"{server.url}#never", [f"{server.url}#half"], tmp_path / "o")
    assert (
        sides[1].identity
        == "agent on served half, known by its name alone: the server scores no texts"
    )
    asked = len(server.seen)
    with pytest.raises(UserError, match=r"serves .*half.*, and declined 'hlaf' .status 404.; mend"):
        agent_sides(toml, f"{server.url}#never", [f"{server.url}#hlaf"], tmp_path / "o")
    assert len(server.seen) == asked and not (tmp_path / "o").exists(), "before anything is played"
    stated = json.dumps(dict(world.options)) + sides[0].identity
    assert str(tmp_path) not in stated and server.url not in stated
    other = HarnessWorld(read_harness(harness(tmp_path / "i", tasks=5)))
    assert other.options["tasks"] != world.options["tasks"]
    assert other.options["harness"] == world.options["harness"]
