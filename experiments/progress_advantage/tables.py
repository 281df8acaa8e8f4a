"""The tables of the study, and what the decision rules say of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

EXACT: Final = 1e-6
Row = Mapping[str, Any]


def decisions(result: Row) -> dict[str, Any]:
    """What the README's rules say, as counts over seeds where they speak of seeds."""
    found = result["organisms"]
    shares = {
        name: [seed["kl"]["choosing_history"] for seed in found[name]["seeds"]] for name in found
    }
    demo = result["step_rewards"]
    return {
        "identity_holds": all(world["curve"][-1]["error"] <= EXACT for world in result["identity"]),
        "shortcut": {
            name: {
                side: signs(seed["shortcut"][side]["history"] for seed in found[name]["seeds"])
                for side in ("before", "after")
            }
            for name in found
        },
        "step_rewards_work": (
            demo["recorded_alike"] == demo["records"] > 0
            and all(one["loss"] is not None for one in (*demo["steps"], *demo["dense"]))
        ),
        "kl_shows_the_leak": (
            all(one["low"] > 0.5 for one in shares["leak"])
            and all(one["high"] < 0.1 for one in shares["honest"])
        ),
    }


def signs(rows: Iterator[Row] | Sequence[Row | None]) -> dict[str, int]:
    """Of intervals, how many lie above 0, below 0, and across it, and how many
    could not be measured.
    """
    counts = {"above": 0, "below": 0, "across": 0, "missing": 0}
    for row in rows:
        if row is None or "missing" in row:
            counts["missing"] += 1
        else:
            counts["above" if row["low"] > 0 else "below" if row["high"] < 0 else "across"] += 1
    return counts


def markdown(result: Row) -> str:
    """All parts."""
    lines = [
        "# Progress advantage",
        "",
        (
            "Written by `python -m experiments.progress_advantage`. 95 % intervals over "
            "tasks, in brackets; seeds are parted by semicolons."
        ),
        "",
        *_identity(result),
    ]
    for name, found in result["organisms"].items():
        lines += [
            "",
            *_advantages(name, found),
            "",
            *_ranking(name, found),
            "",
            *_attribution(name, found),
        ]
    lines += ["", *_shortcut(result), "", *_step_rewards(result), "", *_kl(result)]
    return "\n".join([*lines, ""])


def _identity(result: Row) -> list[str]:
    marks = [row["updates"] for row in result["identity"][0]["curve"]]
    lines = [
        "## (a) The identity in a solvable world",
        "",
        (
            "Largest |beta * summed log-ratio - A*| over all states and steps, after so many exact"
            " updates."
        ),
        "",
        "| transitions | seed | " + " | ".join(str(mark) for mark in marks) + " |",
        "|---" * (2 + len(marks)) + "|",
    ]
    lines += [
        f"| {world['transitions']} | {world['seed']} | "
        + " | ".join(f"{row['error']:.1e}" for row in world["curve"])
        + " |"
        for world in result["identity"]
    ]
    lines += [
        "",
        "Correlation of the summed log-ratio with A* on the way:",
        "",
        "| transitions | seed | " + " | ".join(str(mark) for mark in marks) + " |",
        "|---" * (2 + len(marks)) + "|",
    ]
    lines += [
        f"| {world['transitions']} | {world['seed']} | "
        + " | ".join(
            "" if row["correlation"] is None else f"{row['correlation']:.4f}"
            for row in world["curve"]
        )
        + " |"
        for world in result["identity"]
    ]
    return [
        *lines,
        "",
        f"By the rule the identity {_holds(result['decisions']['identity_holds'])}.",
    ]


def _advantages(name: str, found: Row) -> list[str]:
    lines = [
        f"## (b) `{name}`: step scores against Monte-Carlo advantages",
        "",
        (
            "| runs | score of a step | correlation, by seed | summed log-ratio is better / worse /"
            " no difference told |"
        ),
        "|---|---|---|---|",
    ]
    for setting in found["seeds"][0]["advantages"]:
        seeds = [seed["advantages"][setting] for seed in found["seeds"]]
        for score in seeds[0]["scores"]:
            rows = [one["scores"][score] for one in seeds]
            first = rows[0]["summed_minus_this"] is None
            lines.append(
                f"| {setting} | {score} | {_each([row['correlation'] for row in rows])} | "
                f"{'' if first else _counts([row['summed_minus_this'] for row in rows])} |"
            )
        most = "; ".join(
            "none" if one["ceiling"] is None else f"{one['ceiling']:.2f}" for one in seeds
        )
        spread = "; ".join(f"{one['spread']:.2f}" for one in seeds)
        lines.append(
            f"| {setting} | *the most that could be seen* | {most} (advantages spread by"
            f" {spread}) | |"
        )
    return lines


def _ranking(name: str, found: Row) -> list[str]:
    sizes = "; ".join(
        f"{one['success']['before']:.2f} to {one['success']['after']:.2f}" for one in found["seeds"]
    )
    lines = [
        f"## (b) `{name}`: which runs succeed",
        "",
        f"Success before to after: {sizes}.",
        "",
        (
            "| runs of | score | AUROC | best of 4 | gain over a run at random | grade better /"
            " worse / no difference told, AUROC | the same, best of 4 |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for side in ("before", "after"):
        tables = [one["ranking"][side] for one in found["seeds"]]
        for rows in zip(*tables, strict=True):
            mine = rows[0]["score"] == "progress advantage"
            better = [
                "" if mine else _counts([row[f"advantage_minus_this_{what}"] for row in rows])
                for what in ("auroc", "best_of_n")
            ]
            cells = " | ".join(
                _each([row[key] for row in rows])
                for key in ("auroc", "best_of_n", "gain_over_mean")
            )
            lines.append(f"| {side} | {rows[0]['score']} | {cells} | {better[0]} | {better[1]} |")
    return lines


def _attribution(name: str, found: Row) -> list[str]:
    lines = [
        f"## (b) `{name}`: which step lost the run",
        "",
        "| runs | lost runs with a drop of 0.3 | score | predictor | at the step | within one |",
        "|---|---|---|---|---|---|",
    ]
    for setting, part in found["attribution"].items():
        if any("missing" in rows for rows in part["scores"].values() if isinstance(rows, dict)):
            lines.append(f"| {setting} | {part['runs']} | | too few | | |")
            continue
        chance = next(iter(part["scores"].values()))[-1]
        lines.append(
            f"| {setting} | {part['runs']} | | {chance['predictor']} | {_one(chance['at'])} | "
            f"{_one(chance['near'])} |"
        )
        lines += [
            f"| {setting} | {part['runs']} | {score} | {row['predictor']} | {_one(row['at'])} | "
            f"{_one(row['near'])} |"
            for score, rows in part["scores"].items()
            for row in rows[:-1]
        ]
    return lines


def _shortcut(result: Row) -> list[str]:
    lines = [
        "## (c) Does the grade reward reading the history?",
        "",
        (
            "Mean grade of steps that read the history minus "
            "that of the other steps of the same tasks, nats a token."
        ),
        "",
        (
            "| organism | runs of | history minus others | steps | as many steps at random |"
            " rewards / punishes / no difference told |"
        ),
        "|---|---|---|---|---|---|",
    ]
    for name, found in result["organisms"].items():
        for side in ("before", "after"):
            rows = [seed["shortcut"][side] for seed in found["seeds"]]
            steps = "; ".join(str(row["history"].get("steps", "too few")) for row in rows)
            lines.append(
                f"| {name} | {side} | {_each([row['history'] for row in rows])} | {steps} |"
                f" {_each([row['control'] for row in rows])} |"
                f" {_counts([row['history'] for row in rows])} |"
            )
    return lines


def _step_rewards(result: Row) -> list[str]:
    demo, works = result["step_rewards"], result["decisions"]["step_rewards_work"]
    lines = [
        "## (d) Step rewards in the GRPO core (a demonstration; no effect is claimed)",
        "",
        "| step | reward | outcome | mean step reward, nats | loss |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {number} | {row['reward']:.3f} | {row['outcome']:.3f} | {row['graded steps']:.3f} | "
        f"{row['loss']:.4f} |"
        for number, row in enumerate(demo["steps"])
    ]
    losses = ", ".join(f"{row['loss']:.4f}" for row in demo["dense"])
    return [
        *lines,
        "",
        (
            f"{demo['recorded_alike']} of {demo['records']} rows of the run's record hold the"
            " reward of their own step rewards. Dense, a reward for every token's own step: losses"
            f" {losses}."
        ),
        f"By the rule it {'works' if works else 'does not work'}.",
    ]


def _kl(result: Row) -> list[str]:
    lines = [
        "## (e) Where RL spent its KL",
        "",
        (
            "| organism | KL, nats a run | share on choosing the history | share of "
            "steps that read the history, choice and content | largest other kinds |"
        ),
        "|---|---|---|---|---|",
    ]
    for name, found in result["organisms"].items():
        parts = [seed["kl"] for seed in found["seeds"]]
        totals = "; ".join("{:.2f} ({:.2f} to {:.2f})".format(*part["total"]) for part in parts)
        whole = [_share(part["kinds"].get("history")) for part in parts]
        chosen = _each([part["choosing_history"] for part in parts])
        lines.append(
            f"| {name} | {totals} | {chosen} | {'; '.join(whole)} | "
            f"{'; '.join(_others(part['kinds']) for part in parts)} |"
        )
    return [*lines, "", f"By the rule this {_holds(result['decisions']['kl_shows_the_leak'])}."]


def _share(part: Row | None) -> str:
    if part is None or part["share"] is None:
        return "none"
    return f"{part['share']:.2f} ({part['low']:.2f} to {part['high']:.2f})"


def _others(kinds: Mapping[str, Row]) -> str:
    known = [
        (part["share"], kind)
        for kind, part in kinds.items()
        if kind != "history" and part["share"] is not None
    ]
    return ", ".join(f"{kind} {share:.2f}" for share, kind in sorted(known, reverse=True)[:2])


def _holds(yes: bool) -> str:
    return "holds" if yes else "does not hold"


def _counts(rows: Sequence[Row | None]) -> str:
    found = signs(rows)
    missing = f" ({found['missing']} not measured)" if found["missing"] else ""
    return f"{found['above']} / {found['below']} / {found['across']}{missing}"


def _each(rows: Sequence[Row | None]) -> str:
    return "; ".join(_one(row) for row in rows)


def _one(row: Row | None) -> str:
    if row is None or "missing" in row:
        return "not measured"
    return f"{row['estimate']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
