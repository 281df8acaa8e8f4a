"""`python -m experiments.served_draws.redrawn`: the bets over many redraws at fixed contexts.

The claimed policy writes texts once; at each of their tokens a healthy or faulty server's
distribution is formed, and tokens are drawn from it again and again. Contexts stay the claimed
policy's, no server runs, and what earlier texts teach is left out (those two bets keep their
stake), so a fault is found here rather too rarely.
"""

from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from forensics import load_policy, policy_from
from forensics.investigation import (
    LEAST_DELTA,
    TOLERATED,
    Contexts,
    DrawsConfig,
    choose_environment,
    sampled_runs,
)
from forensics.policies import score_log
from forensics.policies.departures import NUMBERS, PLAIN, Bets, bets_on
from forensics.policies.distribution import log_distribution
from forensics.policies.score_columns import TokenPositions
from tests.audited_server import FAULTS, blended, rounded

BUNDLED = Path("training/bundled")
LOOKS = (1 / 7, 3 / 7, 1.0)  # of the tokens that are bet on
WANTED = log(100)


class Kept:
    """A readout that keeps both distributions."""

    names = ("nothing",)

    def __init__(self) -> None:
        self.rows: list[tuple[Any, Any]] = []

    def __call__(self, policy: Any, reference: Any, at: Any) -> Any:
        self.rows.append((policy.clone(), reference.clone()))
        return policy.new_zeros(len(policy), 1)


def both(claimed: Any, other: Any, runs: Any, settings: Any) -> tuple[Any, Any]:
    kept = Kept()
    list(score_log(claimed, other, runs, settings=settings, readouts=[kept]))
    return tuple(torch.cat(part) for part in zip(*kept.rows, strict=True))  # type: ignore[return-value]


def drafted(p: Any, d: Any, accept: Any, greedy: bool) -> Any:
    """What comes out if `d` drafts, and what is refused is drawn from the rest."""
    taken = d * accept.clamp(max=1.0)
    left = (p - d).clamp(min=0)
    if greedy:
        left = torch.nn.functional.one_hot(p.argmax(1), p.shape[1]).to(p.dtype)
    left = torch.where(left.sum(1, keepdim=True) > 0, left, p)
    return taken + (1 - taken.sum(1, keepdim=True)) * left / left.sum(1, keepdim=True)


def faults(claimed: Any, before: Any, runs: Any, settings: Any) -> dict[str, Any]:
    """Log-probabilities of each server at each token `[tokens, vocabulary]`."""
    model = claimed.model
    tokenizer = claimed.tokenizer

    def weights(other: Any, name: str) -> Any:
        return both(claimed, policy_from(other, tokenizer, name), runs, settings)[1]

    log_p, log_d = both(claimed, before, runs, settings)
    p, d = log_p.exp(), log_d.exp()
    ratio, entropy = p / d.clamp(min=1e-30), -(p * log_p.clamp(min=-1e4)).sum(1, keepdim=True)
    typical = (p > torch.minimum(torch.tensor(0.09), 0.3 * (-entropy).exp())).to(p.dtype)
    lossy = {
        "lossless": drafted(p, d, ratio, False),
        "lossy-1.3": drafted(p, d, 1.3 * ratio, False),
        "lossy-threshold": drafted(p, d, torch.where(p > 0.1, torch.ones(()), ratio), False),
        "lossy-typical": drafted(p, d, typical, True),
    }
    cut = {"top-p": {"top_p": 0.95}, "top-k": {"top_k": 20}, "hot": {"temperature": 1.1}}
    return {
        "float32": log_p,
        **{name: q.log() for name, q in lossy.items()},
        "bfloat16": weights(
            load_policy(BUNDLED / "leak", device="cpu", dtype="bfloat16").model, "rough"
        ),
        "other": log_d,
        "stale": weights(blended(model, before.model, 0.1), "stale"),
        "int8": weights(rounded(model, 8), "int8"),
        "int4": weights(rounded(model, 4), "int4"),
        **{name: log_distribution(log_p, replace(settings, **one)) for name, one in cut.items()},
    }


def holdings(log_p: Any, log_d: Any, departures: Any, delta: float) -> Any:
    """What each bet holds for each token that may come `[tokens, vocabulary, departures]`."""
    place = torch.zeros(len(log_p), dtype=torch.long)
    bets, found = Bets(departures), []
    _, row, of = np.unique(log_p[:, :8].numpy(), axis=0, return_index=True, return_inverse=True)
    same = torch.tensor(row[of])
    assert all(torch.allclose(one[same], one, atol=1e-3) for one in (log_p, log_d))
    log_p, log_d, place = log_p[row], log_d[row], place[row]
    for v in range(log_p.shape[1]):
        at = TokenPositions(
            token=torch.full_like(place, v), trajectory=place, step=place, place=place
        )
        rows = bets(log_p, log_d, at)[:, :-2].view(len(place), len(departures), len(NUMBERS))
        found.append((rows[..., 0] - torch.log1p(delta * rows[..., 3])).float())
    return torch.stack(found, 1), torch.tensor(of)


def share_found(q: Any, held: Any, stakes: int, runs: int, generator: np.random.Generator) -> Any:
    cumulative = q.double().exp().cumsum(1)
    found, best = 0, []
    for _ in range(runs):
        u = torch.tensor(generator.random(len(q)))[:, None] * cumulative[:, -1:]
        token = torch.searchsorted(cumulative, u, right=True).clamp(max=q.shape[1] - 1)[:, 0]
        order = torch.tensor(generator.permutation(len(q)))
        logs = held[0][held[1][order], token[order]].double()
        ends = [0, *(round(share * len(q)) for share in LOOKS)]
        looks = torch.stack([logs[a:b].sum(0) for a, b in pairwise(ends)]).cumsum(0)
        idle = torch.zeros(len(LOOKS), stakes - looks.shape[1])
        log_e = torch.cat([looks, idle], 1).logsumexp(1) - log(stakes)
        found += bool((log_e >= WANTED).any())
        best.append(float(log_e.max()))
    return found, float(np.median(best))


def main(
    tasks: Annotated[int, typer.Option()] = 20,
    samples: Annotated[int, typer.Option()] = 48,
    healthy: Annotated[int, typer.Option()] = 1000,
    faulty: Annotated[int, typer.Option()] = 100,
) -> None:
    claimed, before = (load_policy(BUNDLED / one, device="cpu") for one in ("leak", "capped-base"))
    world = choose_environment(str(BUNDLED / "leak"), None, {})[0]
    config = DrawsConfig(samples=samples, seed=100)
    texts = Contexts(environment=world, tasks=tasks).of(claimed, config)
    runs = sampled_runs(claimed.rendered_for(world), texts, config)  # type: ignore[attr-defined]
    servers = faults(claimed, before, runs, config.settings)
    log_p, rough = servers["float32"], servers["bfloat16"]
    chi = (log_p.exp() * torch.expm1((rough - log_p).clamp(-1, 1)).square()).sum(1)
    delta = max(LEAST_DELTA, TOLERATED * float(chi.mean().sqrt()))
    stakes = [*PLAIN, *bets_on("before")]
    held = holdings(log_p, servers["other"], [one for one in stakes if one.kind != "taught"], delta)
    generator = np.random.default_rng(0)
    print(f"{len(log_p)} tokens, vocabulary {log_p.shape[1]}, delta {delta:.2g}", flush=True)
    print("| server | nats a token | total variation | redraws | found | median log e |")
    print("|---|---|---|---|---|---|")
    for name, q in servers.items():
        number = faulty if name in FAULTS else healthy
        kl = (q.exp() * (q.clamp(min=-1e4) - log_p)).sum(1).mean()
        far = ((q.exp() - log_p.exp()).abs().sum(1) / 2).mean()
        found, best = share_found(q, held, len(stakes), number, generator)
        print(f"| {name} | {kl:.2g} | {far:.2g} | {number} | {found} | {best:.1f} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
