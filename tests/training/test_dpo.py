"""The DPO loop: it learns planted pairs, only weighted tokens count, splits and
kills change nothing, refusals.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from forensics import load_policy, policy_from
from forensics.cli.main import main
from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.protocols import Policy, SamplingSettings
from forensics.records import PreferencePair, Provenance
from forensics.records.files import write_json_lines
from tests.tiny import save_tiny_qwen3, tiny_qwen3, tiny_tokenizer
from training.distributed import Process
from training.dpo_trainer import PreferenceStep, dpo, pairs_loss
from training.recipe import PreferenceRecipe, parse_preference_recipe
from training.trained_model import Machine

START = "start"


def pair(number: int, **changes: Any) -> PreferencePair:
    """A planted cliff: behind a prefix of its own, the token 20 + number is
    right and 40 + number is wrong.
    """
    values = {
        "id": f"pair-{number}",
        "prefix": tuple(5 + (number * 7 + i) % 90 for i in range(3 + number % 4)),
        "chosen": (20 + number,),
        "rejected": (40 + number,),
        "policy": START,
        "provenance": Provenance(instrument="test"),
    }
    return PreferencePair(**values | changes)


PAIRS = [pair(number) for number in range(7)]


def recipe(**changes: Any) -> PreferenceRecipe:
    others = {name: changes.pop(name) for name in ("compute", "lora") if name in changes}
    section = {
        "pairs": "x",
        "epochs": 2,
        "minibatch": 3,
        "learning_rate": 1e-3,
        "save_every": 2,
    } | changes
    return parse_preference_recipe(
        {"policy": {"checkpoint": "x"}, "preference": section, **others}, "test"
    )


def fresh() -> Policy:
    return policy_from(tiny_qwen3(0), tiny_tokenizer(), START)


def trained(
    folder: Path | None = None,
    pairs: list[PreferencePair] = PAIRS,
    die_at: int | None = None,
    **changes: Any,
) -> tuple[Policy, list[PreferenceStep]]:
    """The policy and its steps; with `die_at` the run is killed when that step
    is reported, and resumed.
    """
    policy, steps = fresh(), []

    def report(step: PreferenceStep) -> None:
        steps.append(step)
        if step.step == die_at:
            raise KeyboardInterrupt

    try:
        dpo(policy, pairs, recipe(**changes), 3, folder, report)
    except KeyboardInterrupt:
        return trained(folder, pairs, **changes)
    return policy, steps


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def machine(policy: Policy, **changes: Any) -> Machine:
    return Machine(policy, recipe(**changes), SamplingSettings(), Process(), 0)


def logits_gradient(one: PreferencePair) -> torch.Tensor:
    """Size of the loss's gradient at the logits of every position, `[rows,
    positions]`.

    A hook on the output layer also keeps it from being run at the wanted
    positions only.
    """
    policy = fresh()
    kept: list[torch.Tensor] = []

    def keep(module: Any, arguments: Any, output: Any) -> None:
        if output.requires_grad:
            output.retain_grad()
            kept.append(output)

    hook = policy.model.get_output_embeddings().register_forward_hook(keep)
    width = len(one.prefix) + max(len(one.chosen), len(one.rejected)) - 1
    loss = pairs_loss(machine(policy), [one], torch.zeros(2, width), 0.5, 1)
    loss.loss.backward()
    hook.remove()
    return sum(k.grad.abs().sum(-1) for k in kept if k.grad is not None)


def test_only_weighted_positions_move_the_loss() -> None:
    """Weight on the second of four tokens: that position alone has a gradient
    at the logits, of both rows.
    """
    one = pair(
        0,
        chosen=(8, 9, 10, 11),
        rejected=(8, 12, 13, 14),
        chosen_weights=(0, 1, 0, 0),
        rejected_weights=(0, 1, 0, 0),
    )
    gradient = logits_gradient(one)
    wanted = torch.zeros(2, 6, dtype=torch.bool)
    wanted[:, 3] = (
        True  # a prefix of three tokens: position 3 predicts the continuation's second token
    )
    assert (
        gradient.shape == (2, 6) and (gradient[wanted] > 0).all() and (gradient[~wanted] == 0).all()
    )


@pytest.mark.parametrize("rows", [2, 5, 64])
def test_gradients_do_not_depend_on_the_split(rows: int) -> None:
    """Seven pairs of unequal length in one step: its gradient is that of the
    written-out loss on dense logits.
    """
    pairs = [
        pair(n, chosen=(20 + n, *range(n % 3)), rejected=(40 + n, *range(9, 9 + n % 2)))
        for n in range(7)
    ]
    found = [step.gradient_norm for step in trained(pairs=pairs, rows=rows, minibatch=7)[1]]
    model = fresh().model

    def gain(prefix: tuple[int, ...], answer: tuple[int, ...]) -> torch.Tensor:
        spread = model(torch.tensor([[*prefix, *answer]])).logits[0].log_softmax(-1)
        value = sum(spread[len(prefix) - 1 + i, token] for i, token in enumerate(answer))
        return value - value.detach()

    margins = [0.05 * (gain(p.prefix, p.chosen) - gain(p.prefix, p.rejected)) for p in pairs]
    (-torch.nn.functional.logsigmoid(torch.stack(margins)).mean()).backward()
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert found[0] == pytest.approx(float(wanted), rel=1e-4)
    assert found[1] == pytest.approx(
        trained(pairs=pairs, rows=3, minibatch=7)[1][1].gradient_norm, rel=1e-3
    )


@pytest.mark.parametrize(("die_at", "lora"), [(0, None), (1, None), (4, None), (3, {"rank": 2})])
def test_a_killed_run_goes_on_bit_for_bit(
    tmp_path: Path, die_at: int, lora: dict[str, Any] | None
) -> None:
    more = {"lora": lora} if lora else {}
    whole, steps = trained(tmp_path / "whole", **more)
    killed, _ = trained(tmp_path / "killed", die_at=die_at, **more)
    assert len(steps) == 6 and torch.equal(weights(whole), weights(killed))
    assert torch.equal(weights(whole), weights(trained(None, **more)[0]))
    assert not torch.equal(weights(whole), weights(trained(None, epochs=1, **more)[0]))


def test_a_finished_run_is_prolonged_and_another_one_refused(tmp_path: Path) -> None:
    trained(tmp_path / "run", epochs=1)
    assert torch.equal(weights(trained(tmp_path / "run")[0]), weights(trained()[0]))
    for changes, says in (
        ({"beta": 0.1}, "preference.beta = 0.05, not 0.1"),
        ({"pairs": PAIRS[:-1]}, "preference.pairs"),
        ({"minibatch": 2}, "preference.minibatch"),
    ):
        with pytest.raises(UserError, match=says):
            trained(tmp_path / "run", **changes)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A checkpoint with a world, pairs of it, and a recipe."""
    start = save_tiny_qwen3(tmp_path / "start")
    (start / "environment.json").write_text('{"name": "mini-repo", "options": {"world": "open"}}')
    identity = inspect_checkpoint(start).identity
    write_json_lines(tmp_path / "pairs.jsonl", [pair(n, policy=identity) for n in range(7)])
    (tmp_path / "dpo.toml").write_text(
        f"[policy]\ncheckpoint = '{start}'\n[preference]\npairs ="
        f" '{tmp_path / 'pairs.jsonl'}'\nminibatch = 4\nepochs = 2\nlearning_rate ="
        " 1e-3\nsave_every = 1\n"
    )
    return tmp_path


def test_the_command_trains_and_resumes(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint that loads, is another policy, and keeps its world; metrics
    by the line; longer by --resume.
    """
    out = files / "run"
    assert (
        run("train", str(files / "dpo.toml"), "--out", str(out), "--device", "cpu", "--json") == 0
    )
    written = json.loads(capsys.readouterr().out)["checkpoint"]
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["epoch"], row["pairs"]) for row in rows] == [
        (0, 0, 4),
        (1, 0, 3),
        (2, 1, 4),
        (3, 1, 3),
    ]
    start, after = (load_policy(path, device="cpu") for path in (files / "start", written))
    assert start.identity != after.identity
    kept = [
        json.loads((Path(path) / "environment.json").read_text())
        for path in (files / "start", written)
    ]
    assert kept[0] == kept[1]
    text = (files / "dpo.toml").read_text()
    (files / "dpo.toml").write_text(text.replace("epochs = 2", "epochs = 3"))
    assert (
        run("train", str(files / "dpo.toml"), "--out", str(out), "--device", "cpu", "--resume") == 0
    )
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 6
    assert (
        run("train", str(files / "dpo.toml"), "--out", str(files / "whole"), "--device", "cpu") == 0
    )
    assert (
        load_policy(out / "checkpoint").identity
        == load_policy(files / "whole" / "checkpoint").identity
    )


def test_a_step_that_is_not_finite_is_skipped_counted_and_in_the_end_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five steps of a run of nine, and then all of them; weights and moments stay."""
    real, number = Machine.score, iter(range(100))

    def broken(self: Machine, *given: Any) -> Any:
        logprobs, entropies = real(self, *given)
        return (logprobs * torch.nan if next(number) in range(4, 9) else logprobs), entropies

    _, before = trained(tmp_path, epochs=1, minibatch=2)
    monkeypatch.setattr(Machine, "score", broken)
    with pytest.raises(UserError, match="3 optimizer steps in a row"):
        trained(tmp_path / "ends", epochs=3, minibatch=3, most_skipped=2)
    number = iter(range(100))
    policy, steps = trained(epochs=3, minibatch=3)
    assert len(before) == 4 and [step.skipped for step in steps] == [0] * 4 + [1] * 5
    assert [step.loss is None for step in steps] == [False] * 4 + [True] * 5
    assert all((step.gradient_norm is None) == bool(step.skipped) for step in steps)
    assert not steps[-1].losses and torch.isfinite(weights(policy)).all()
