"""`python -m experiments.served_draws --minutes 7`: goes on where it was, and prints the table."""

import time
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.resumable import code_key, run
from forensics import load_policy
from forensics.cli import progress_bars
from forensics.investigation import Contexts, DrawsConfig, choose_environment, drawn
from forensics.policies import ServerConfig, ServerPolicy
from tests.audited_server import FAULTS, HEALTHY, AuditedServer
from tests.resampling.completion_stub import running

BUNDLED = Path("training/bundled")
TASKS, SAMPLES, FIRST = 20, 48, 100
HONEST = 2  # runs of each fault that tells what it draws: its draws are the liar's, seed by seed
LARGE = {"tasks": 80, "samples": 60}  # where a healthy server is to be said to draw it
Case = tuple[str, bool, int, int, int]


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for i in range(20):
        found |= {f"{kind} {i}": (kind, False, i, TASKS, SAMPLES) for kind in HEALTHY}
        for kind in FAULTS if i < 10 else ():
            found[f"{kind} liar {i}"] = (kind, True, i, TASKS, SAMPLES)
            if i < HONEST:
                found[f"{kind} {i}"] = (kind, False, i, TASKS, SAMPLES)
    return found | {f"{kind} large 0": (kind, False, 0, *LARGE.values()) for kind in HEALTHY}


def judge(case: Case) -> dict[str, Any]:
    kind, liar, number, tasks, samples = case
    start = time.monotonic()
    claimed = load_policy(BUNDLED / "leak", device="cpu")
    rough = load_policy(BUNDLED / "leak", device="cpu", dtype="bfloat16")
    before = load_policy(BUNDLED / "capped-base", device="cpu")
    world = choose_environment(str(BUNDLED / "leak"), None, {})[0]
    config = DrawsConfig(samples=samples, seed=FIRST + number)
    texts = Contexts(environment=world, tasks=tasks).of(claimed, config)
    with running(AuditedServer(claimed, before, kind, liar)) as server:
        address = ServerConfig(url=server.url, at_once=2)
        served = ServerPolicy(address, tokenizer=claimed.tokenizer, scores=False)
        served.renderer = claimed.rendered_for(world).renderer  # type: ignore[attr-defined]
        found = drawn(served, claimed, rough, {"before": before}, texts, config)
    best = found.likest
    return {
        "verdict": found.verdict,
        "gap": found.gap["sampler_gap"],
        "floor": found.floor,
        "delta": found.delta,
        "log_e": found.log_e,
        "deviations": found.deviations,
        "tokens": found.tokens,
        "like": best.departure.words,
        "cut": found.cut.words if found.cut else None,
        "needed": {one.departure.words: one.needed for one in found.seen},
        "seconds": time.monotonic() - start,
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, row in rows.items():
        by[name.rsplit(" ", 1)[0]].append(row)
    lines = [
        "| server | runs | gap at fault | draws at fault | gap, nats | tokens bet on | most like |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, some in by.items():
        told = sum(row["verdict"] in ("tells and draws another", "tells another") for row in some)
        drew = sum("draws another" in row["verdict"] for row in some)
        words = [row["like"] for row in some]
        gap = sum(row["gap"] for row in some) / len(some)
        tokens = sorted(row["tokens"] for row in some)[len(some) // 2]
        like = max(set(words), key=words.count)
        lines.append(f"| {name} | {len(some)} | {told} | {drew} | {gap:.2g} | {tokens} | {like} |")
    return "\n".join(lines)


def main(
    minutes: Annotated[float, typer.Option()] = 7.0,
    processes: Annotated[int, typer.Option()] = 2,
    cache: Annotated[Path, typer.Option()] = Path("out/served_draws"),
) -> None:
    with progress_bars() as progress:
        code = code_key("experiments/served_draws", "tests/audited_server.py")
        rows = run(
            cases(),
            judge,
            cache,
            code=code,
            minutes=minutes,
            processes=processes,
            progress=progress,
        )
    print(table(rows))


if __name__ == "__main__":
    typer.run(main)
