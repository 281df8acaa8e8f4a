"""What the runs show: the offline backtest, and each arm against outcome only."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dead_groups.runs import (
    ARMS,
    EVALUATION_SEED,
    OUTCOME_ONLY,
    SCALINGS,
    TERMS,
    term_of,
)
from forensics.layers import (
    BacktestConfig,
    CachedGroup,
    cached_groups,
    outcome_correlation,
    revived_share,
    tie_breaker as noise_for,
)
from forensics.records.train_tables import TrainingRecord
from forensics.statistics import Estimate, paired

Row = dict[str, Any]


def offline(cache: Path, seeds: int, weights: dict[str, float]) -> Iterator[Row]:
    """Each term on the dead groups of the outcome-only runs, against the
    tie-breaker and the outcome.
    """
    generator, draws = np.random.default_rng(EVALUATION_SEED), BacktestConfig().draws
    for name in TERMS[:2]:
        groups = [group for seed in range(seeds) for group in _groups(cache, seed, name)]
        extra = [weights[name] * group.term for group in groups]
        noises = [
            [weights[name] * part for part in noise_for(groups, generator)] for _ in range(draws)
        ]
        found, null = (revived_share(groups, extras, 0.0) for extras in ([extra], noises))
        correlation, control = (outcome_correlation(groups, one) for one in (extra, noises[0]))
        yield {
            "term": name,
            "weight": weights[name],
            "groups": len(groups),
            "dead_groups": int(found.n),
            "revived": _share(found),
            "revived_by_tie_breaker": _share(null),
            "correlation": _share(correlation),
            "correlation_of_tie_breaker": _share(control),
            "revival_alone_is_no_merit": found.low <= null.high,
            "points": (
                "right"
                if correlation.low > 0
                else "wrong"
                if correlation.high < 0
                else "nowhere that could be told"
            ),
        }


def _groups(cache: Path, seed: int, name: str) -> list[CachedGroup]:
    record = TrainingRecord(cache / f"{ARMS[0].name}-{seed}")
    return cached_groups(record, lambda row: term_of(name, row))


def policies(results: dict[tuple[str, int], Row], seeds: int) -> Iterator[Row]:
    """Each arm's held-out score, turns and tests minus those of outcome only
    under the same scaling.
    """
    for scaling in SCALINGS:
        arms = {
            arm.term: [results[arm.name, seed] for seed in range(seeds)]
            for arm in ARMS
            if arm.scaling == scaling
        }
        for term, rows in arms.items():
            row = {
                "term": term,
                "scaling": scaling,
                "score": _mean(rows, "score"),
                "turns": _mean(rows, "turns"),
                "tested": _mean(rows, "tested"),
                "dead_share": _mean(rows, "dead_share"),
                "dead_by_outcome": _mean(rows, "dead_by_outcome"),
            }
            if term != OUTCOME_ONLY:
                row |= {
                    f"{name}_change": _change(rows, arms[OUTCOME_ONLY], name)
                    for name in ("score", "tested")
                }
                row["turns_change"] = row["turns"] - _mean(arms[OUTCOME_ONLY], "turns")
                _, low, high = row["score_change"]
                row["verdict"] = (
                    "helps" if low > 0 else "harms" if high < 0 else "no difference is told"
                )
            yield row


def _change(rows: Sequence[Row], base: Sequence[Row], name: str) -> list[float]:
    """Difference of shares with its interval, over tasks and seeds."""
    scores = np.array([[b[name], r[name]] for r, b in zip(rows, base, strict=True)])
    found = paired(scores, np.array([-1.0, 1.0]))
    return [found.estimate, found.low, found.high]


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([np.mean(row[name]) for row in rows]))


def _share(share: Estimate) -> list[float]:
    return [share.estimate, share.low, share.high]


def markdown(table: dict[str, Any]) -> str:
    """Both parts as tables."""
    lines = [
        "# Dead groups",
        "",
        f"Written by `python -m experiments.dead_groups`; {table['seeds']} seeds. 95 % intervals.",
        "",
        "## Offline: what a term would have revived",
        "",
        (
            "| term | weight | dead groups | revived | by a tie-breaker | correlation with the"
            " outcome | tie-breaker's | points |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['term']} | {row['weight']:.3g} | {row['dead_groups']} of {row['groups']} |"
        f" {_told(row['revived'])} | {_told(row['revived_by_tie_breaker'])} |"
        f" {_told(row['correlation'])} | {_told(row['correlation_of_tie_breaker'])} |"
        f" {row['points']} |"
        for row in table["offline"]
    ]
    lines += [
        "",
        "## The learned policies, against outcome only",
        "",
        (
            "| term | advantages divided by | held-out score | change | turns | tested | change |"
            " dead groups in training (by outcome alone) | |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['term']} | {'the group' if row['scaling'] == 'group' else 'nothing'} |"
        f" {row['score']:.3f} | {_told(row.get('score_change'))} | {row['turns']:.2f} |"
        f" {row['tested']:.2f} | {_told(row.get('tested_change'))} | {row['dead_share']:.2f}"
        f" ({row['dead_by_outcome']:.2f}) | {row.get('verdict', '')} |"
        for row in table["policies"]
    ]
    return "\n".join([*lines, ""])


def _told(value: list[float] | None) -> str:
    return "" if value is None else f"{value[0]:.3f} ({value[1]:.3f} to {value[2]:.3f})"
