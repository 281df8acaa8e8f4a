"""A server that draws another policy than it tells is found, one that drafts losslessly is not
accused; each bet costs nothing on average if the claimed policy is drawn from.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forensics import load_policy
from forensics.cli.main import main, run
from forensics.errors import OutsideFailure, UserError
from forensics.investigation import (
    Contexts,
    Drawn,
    DrawsConfig,
    check_server,
    choose_environment,
    drawn,
)
from forensics.investigation.served_draws import RATE, KeptDraws, Seen, _Book, judged, report
from forensics.policies import ServerConfig, ServerPolicy
from forensics.policies.departures import NUMBERS, PLAIN, Bets, Departure, bets_on
from forensics.policies.score_columns import TokenPositions
from forensics.protocols import Continuation, SamplingSettings
from forensics.records.files import read_json
from tests.audited_server import AuditedServer
from tests.resampling.completion_stub import running

BUNDLED = Path(__file__).parents[2] / "training" / "bundled"


@cache
def policy(name: str, dtype: str = "float32") -> Any:
    return load_policy(BUNDLED / name, device="cpu", dtype=dtype)


@contextmanager
def serving(kind: str, liar: bool) -> Iterator[AuditedServer]:
    with running(AuditedServer(policy("leak"), policy("capped-base"), kind, liar)) as server:
        yield server


def checked(kind: str, liar: bool = False, samples: int = 24, **suspects: Any) -> Drawn:
    world = choose_environment(str(BUNDLED / "leak"), None, {})[0]
    config = DrawsConfig(samples=samples, seed=3)
    claimed = policy("leak")
    texts = Contexts(environment=world, tasks=4).of(claimed, config)
    with serving(kind, liar) as server:
        address = ServerConfig(url=server.url, at_once=2)
        served = ServerPolicy(address, tokenizer=claimed.tokenizer, scores=False)
        served.renderer = claimed.rendered_for(world).renderer
        return drawn(served, claimed, policy("leak", "bfloat16"), suspects, texts, config)


# -- servers -------------------------------------------------------------------------------


def test_a_liar_is_found_and_named() -> None:
    found = checked("other", liar=True, before=policy("capped-base"))
    assert found.verdict == "tells it but draws another"
    assert found.gap["sampler_gap"] < 1e-5
    assert found.likest.departure.other == "before"
    assert "tells it but draws another" in report(found)


def test_an_honest_server_of_another_policy_fails_both() -> None:
    found = checked("other")
    assert found.verdict == "tells and draws another" and found.gap["sampler_gap"] > 0.1


def test_a_lossless_drafter_is_not_accused_and_silence_is_told() -> None:
    found = checked("lossless", before=policy("capped-base"))
    assert found.verdict == "not enough samples"  # a sure policy needs more than these
    assert found.log_e < -log(RATE)
    text = report(found)
    assert "NOT seen: 0.9 times the temperature" in text
    assert "seen: 98% of the draws from before" in text


def test_a_coarser_arithmetic_is_held_to_what_it_moves_at_the_same_tokens() -> None:
    found = checked("bfloat16")
    assert found.verdict == "not enough samples"
    assert found.floor / 2 < found.gap["sampler_gap"] < 2 * found.floor


def test_a_lossy_drafter_is_found() -> None:
    found = checked("lossy-threshold", liar=True, samples=64, before=policy("capped-base"))
    assert found.verdict == "tells it but draws another"


def test_cut_off_sampling_is_named() -> None:
    found = checked("top-p", liar=True, samples=160)
    assert found.verdict == "tells it but draws another"
    assert found.cut is not None and found.cut.kind == "top-p"
    assert "Cut-off sampling" in report(found)


def test_the_command_exits_by_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("other", True) as server, pytest.raises(SystemExit) as ended:
        main(
            f"check-server {server.url} --checkpoint {BUNDLED / 'leak'} --tasks 4 --samples 16"
            " --device cpu --json".split()
        )
    assert ended.value.code == 1
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "tells it but draws another" and said["departures"]


class Failing:
    """Draws the context's last token; fails once, at the `gone`th piece."""

    def __init__(self, gone: int) -> None:
        self.gone, self.asked = gone, list[int]()

    def sample(self, contexts: Any, samples: int, settings: SamplingSettings, seed: int) -> Any:
        self.asked.append(len(contexts))
        if len(self.asked) == self.gone:
            raise OutsideFailure("the server is gone")
        draw = Continuation(token_ids=(seed,), logprobs=(-1 / 3,), stop="length")
        return [[replace(draw, token_ids=(ids[-1], k)) for k in range(samples)] for ids in contexts]


def test_draws_are_kept_piece_by_piece(tmp_path: Path) -> None:
    contexts = [[1, number] for number in range(40)]
    served = Failing(3)
    with pytest.raises(OutsideFailure):
        KeptDraws(served, tmp_path).sample(contexts, 2, SamplingSettings(), 0)
    rows = KeptDraws(served, tmp_path).sample(contexts, 2, SamplingSettings(), 0)
    assert served.asked == [16, 16, 8, 8]
    assert [[draw.token_ids for draw in row] for row in rows] == [
        [(number, 0), (number, 1)] for number in range(40)
    ]
    assert {draw.logprobs for row in rows for draw in row} == {(-1 / 3,)}
    KeptDraws(served, tmp_path).sample(contexts[:16], 2, SamplingSettings(), 1)
    assert served.asked[-1] == 16  # another seed


@pytest.mark.slow
def test_a_check_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was drawn is asked for once, and the answer is that of a check in one piece."""
    world = choose_environment(str(BUNDLED / "leak"), None, {})[0]
    asked: list[int] = []
    real = ServerPolicy.sample

    def sample(self: ServerPolicy, prefixes: Any, *more: Any) -> Any:
        asked.append(len(prefixes))
        if len(asked) == 3:
            raise OutsideFailure("the server is gone")
        return real(self, prefixes, *more)

    def check(server: AuditedServer, tasks: int = 4, **how: Any) -> Drawn:
        contexts = Contexts(environment=world, tasks=tasks)
        config = DrawsConfig(samples=4, seed=3, device="cpu")
        return check_server(
            f"{server.url}", BUNDLED / "leak", contexts=contexts, config=config, **how
        )

    monkeypatch.setattr("forensics.investigation.served_draws.PIECE", 2)
    with serving("bfloat16", False) as server:
        whole = check(server)
        monkeypatch.setattr(ServerPolicy, "sample", sample)
        with pytest.raises(OutsideFailure):
            check(server, out=tmp_path / "kept")
        with pytest.raises(UserError, match="is not empty"):
            check(server, out=tmp_path / "kept")
        with pytest.raises(UserError, match="contexts"):
            check(server, tasks=5, out=tmp_path / "kept", resume=True)
        again = check(server, out=tmp_path / "kept", resume=True)
    assert again.as_json() == whole.as_json() == read_json(tmp_path / "kept/check-server.json")
    assert len(asked) == 1 + len([*(tmp_path / "kept" / "draws").iterdir()]) > 3
    assert server.url not in (tmp_path / "kept" / "check-server-inputs.json").read_text()


@pytest.mark.parametrize("more", [[], ["--env", "mini-repo"], ["--prompts", "P"]])
def test_a_checkpoint_that_is_not_there_is_said_so(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts").write_text("say it\n")
    words = [str(tmp_path / "prompts") if word == "P" else word for word in more]
    gone = ["--checkpoint", str(tmp_path / "gone")]
    assert run(["check-server", "http://127.0.0.1:9/v1", *gone, *words]) == 2
    assert f"{tmp_path / 'gone'} does not exist" in capsys.readouterr().err
    assert run(["check-server", "http://127.0.0.1:9/v1", "--checkpoint", ".", "--resume"]) == 2
    assert run(["check-server", "x", "--checkpoint", "http://x.org/y", *words]) == 2
    assert "is an address, not a checkpoint directory" in capsys.readouterr().err


# -- bets ----------------------------------------------------------------------------------


def numbers(p: torch.Tensor, token: torch.Tensor, bets: Bets, other: torch.Tensor) -> Any:
    place = torch.zeros_like(token)
    at = TokenPositions(token=token, trajectory=place, step=place, place=place)
    found = bets(p.log(), other.log(), at)[:, :-2]
    return found.view(len(token), len(bets.departures), len(NUMBERS))


def every_token(size: int = 30) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    p, other = (
        torch.randn(size, generator=generator, dtype=torch.float64).mul(2).softmax(0)
        for _ in range(2)
    )
    return p.repeat(size, 1), torch.arange(size), other.repeat(size, 1)


@pytest.mark.parametrize("departure", [*PLAIN, *bets_on("other")], ids=lambda one: one.words)
def test_a_bet_is_fair_under_the_claim_and_tells_its_growth_elsewhere(departure: Departure) -> None:
    p, token, other = every_token()
    bets = Bets([departure])
    numbers(p, torch.zeros_like(token), bets, other)  # teaches: one token came always
    bets.learn()
    log_r, growth, variance, sigma, distance = numbers(p, token, bets, other)[:, 0].T
    p = p[0]
    q = p * log_r.exp()
    assert float(q.sum()) == pytest.approx(1, abs=1e-6)
    assert float(growth[0]) == pytest.approx(float((q * log_r).sum()), abs=1e-6)
    expected = (q * log_r.square()).sum() - growth[0].square()
    assert float(variance[0]) == pytest.approx(float(expected), abs=1e-6)
    assert float(sigma[0]) == pytest.approx(float((q * q / p).sum() - 1) ** 0.5, abs=1e-5)
    assert float(distance[0]) == pytest.approx(float((q - p).abs().sum() / 2), abs=1e-6)


def test_a_tolerated_arithmetic_gains_nothing() -> None:
    """Of all p' with chi2(p' || p) = delta^2 the worst for a bet is p (1 + delta (r - 1) / sigma):
    there it gains 1 + delta sigma exactly, which is what it pays."""
    p, token, other = every_token()
    log_r, _, _, sigma, _ = numbers(p, token, Bets([PLAIN[3]]), other)[:, 0].T
    p, r, delta = p[0], log_r.exp(), 0.01
    worst = p * (1 + delta * (r - 1) / sigma)
    assert float(worst.sum()) == pytest.approx(1) and float(worst.min()) > 0
    assert float((worst * r).sum()) == pytest.approx(1 + delta * float(sigma[0]))


def test_each_holding_pays_for_the_tolerated_arithmetic() -> None:
    book: Any = _Book.__new__(_Book)
    book.delta, numbers = 0.1, np.zeros((3, 2, len(NUMBERS)))
    numbers[:, 0, 0], numbers[:, 0, NUMBERS.index("sigma")] = 0.5, 2.0
    book.numbers = [numbers[:1], numbers[1:]]
    assert book.holdings() == pytest.approx([3 * (0.5 - log(1.2)), 0.0])


# -- the verdict ---------------------------------------------------------------------------


def seen(departure: Departure, needed: int | None) -> Seen:
    return Seen(departure=departure, log_e=0, kl=0, distance=0, needed=needed)


def test_silence_is_innocence_only_where_what_matters_would_have_been_seen() -> None:
    rows = [seen(one, 100) for one in PLAIN]
    assert judged(False, False, rows, 100) == "draws it"
    assert judged(False, False, rows, 99) == "not enough samples"
    whole = bets_on("drafter")[-1]
    assert judged(False, False, [*rows, seen(whole, None)], 100) == "not enough samples"
    assert judged(True, False, rows, 100) == "tells another"
    assert judged(True, True, rows, 100) == "tells and draws another"
    assert judged(False, True, rows, 100) == "tells it but draws another"
