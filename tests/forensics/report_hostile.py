"""Everything that a model might write to act on its reader, put everywhere a
case folder holds text.
"""

from pathlib import Path
from typing import Any

from forensics.records import (
    Control,
    Evidence,
    Figure,
    Interval,
    Series,
    Span,
    Spans,
    Step,
    Table,
    ToolCall,
    Trajectory,
    Undefined,
    canonical_json,
)
from forensics.records.files import write_json
from forensics.records.verdict import Gap, Source
from forensics.report.data import read_verdict
from tests.forensics.report_case import INPUTS, PROVENANCE, CasePlan, build_case

PAYLOADS = (
    "<script>window.pwned=1;document.title='pwned'</script>",
    "</script><script>window.pwned=1</script>",
    "</style></title></textarea></pre></svg><img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1><a xlink:href="javascript:window.pwned=1">x</a>',
    "' onmouseover='window.pwned=1' x='",
    (
        "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe><base"
        " href='https://example.invalid/'>"
    ),
    (
        "<meta http-equiv=refresh content='0;url=https://example.invalid/'><link rel=stylesheet"
        " href=//example.invalid>"
    ),
    (
        "[click](javascript:window.pwned=1) ![x](https://example.invalid/x.png)"
        " <https://example.invalid>"
    ),
    "{{ 7*7 }} {% raw %} ${7*7} <!-- ]]> --> &lt;b&gt; &#x3c;script&#x3e;",
    (
        "\x1b[31mred\x1b[0m \x1b]8;;https://example.invalid\x1b\\link\x1b]8;;\x1b\\"
        " \x1b]0;title\x07 \x1b[2J\x1b[H"
    ),
    "\x9b31mC1\x9d0;x\x9c \x90q\x9c",
    "user\u202egnp.exe \u2066\u2069\u200f\u061c zero\u200bwidth\ufeff \U000e0041tag",
    "line\u2028separator\u2029paragraph\x85next nul\x00bell\x07back\x08\x7f\rreturn",
    "````\n```\n~~~\n# heading\n- item\n    code\n| a | b |\n===\n---",
    (
        "www.example.invalid mail@example.invalid https://example.invalid/x @someone #12"
        " <b>bold</b> **b** _i_ `c`"
    ),
    "[bold red]markup[/bold red] [link=https://example.invalid]x[/link] :smile: [/]",
    "$\\frac{1}{$ %s {0} \\",
    "e\u0301" + "\u0300" * 40 + " \U0001f469\u200d\U0001f467 \u05e9\u05dc\u05d5\u05dd \u4f60\u597d",
)
ALL = " ".join(PAYLOADS)
LONG = "A" * 100_000


def hostile_case(folder: Path) -> Path:
    """A case whose every text is hostile, down to the keys of its diagnostics
    and the labels of its figures.
    """
    plan = CasePlan(extra=tuple(_runs()), more=(*_evidence(), _undefined()), verdict=_verdict())
    build_case(folder, plan)
    with open(folder / "findings.jsonl", "a", encoding="utf-8") as file:
        file.writelines(f"{canonical_json(row)}\n" for row in _rows())
        file.write(
            canonical_json(_rows()[0]).replace("held-out", "\\ud800lone")
        )  # a lone surrogate, as JSON may hold
        file.write("\n")
    content = {
        "schema_version": 1,
        "status": "complete",
        "verdict": _whole_verdict(folder),
        "provenance": {ALL: [ALL, {ALL: ALL}]},
        "inputs": {
            **INPUTS,
            "after": [{**INPUTS["before"], "path": f"; rm -rf / {ALL}"}],
            ALL: ALL,
        },
    }
    write_json(folder / "case.json", content)
    return folder


def _runs() -> list[Trajectory]:
    """One run that holds every payload, one with a line of 100,000 characters,
    one with many steps.
    """
    bodies = (*PAYLOADS, LONG, ALL)
    steps = tuple(
        Step(
            role="assistant" if i % 2 else "tool",
            text=body,
            kinds=(body[:300],),
            channels=(body[:300],),
            tool_calls=(ToolCall(name=body[:300], arguments=body),),
        )
        for i, body in enumerate(bodies)
    )
    common: dict[str, Any] = {
        "policy": "after-0",
        "environment": ALL,
        "seed": 0,
        "end": "terminated",
    }
    hostile = {"submission": ALL, "end_reason": ALL, "rewards": {ALL: 1.0}, **common}
    many = tuple(Step(role="assistant", text=f"step {number}") for number in range(3000))
    return [
        Trajectory(id=f"hostile {ALL}", task=ALL, steps=steps, outcome=1.0, **hostile),
        Trajectory(
            id="long",
            task="held-out-7-1",
            steps=(Step(role="user", text=LONG),) * 20,
            outcome=0.0,
            **hostile,
        ),
        Trajectory(id="many", task="held-out-7-2", steps=many, outcome=None, **common),
    ]


def _rows() -> list[dict[str, Any]]:
    row = {
        "task": "held-out-7-0",
        "side": "after-0",
        "family": ALL,
        "channel": ALL,
        "attempt_steps": [1, 999_999],
        "obtained": True,
        "obtained_steps": [2],
        "used": True,
        "credited": True,
        "explanation": ALL,
    }
    return [{**row, "trajectory": f"hostile {ALL}"}]


def _evidence() -> list[Evidence]:
    provenance = PROVENANCE.model_copy(
        update={"instrument": ALL, "config": {ALL: ALL}, "inputs": {ALL: ALL}}
    )
    labels = tuple(f"{payload} {number}" for number, payload in enumerate(PAYLOADS))
    values = tuple(float(number) for number in range(len(labels)))
    series = tuple(Series(name=f"{ALL} {number}", x=labels, y=values) for number in range(3))
    figures = [
        Figure(title=ALL, form=form, x_label=ALL, y_label=ALL, series=series)
        for form in ("points", "bars", "stacked", "lines")
    ]
    spans = tuple(
        Span(step=step, label=PAYLOADS[step % len(PAYLOADS)], start=start, end=end)
        for step in (0, 1, 2, 500)
        for start, end in ((0, 5), (3, 9), (-4, 2), (7, 99_999), (9, 3), (None, None))
    )
    table = Table(title=ALL, columns=(ALL, *PAYLOADS, "n"), rows=((*PAYLOADS, ALL, 1.0),) * 100)
    highlight = Spans(title=ALL, trajectory=f"hostile {ALL}", spans=spans)
    return [
        Evidence(
            question=ALL,
            about=ALL,
            layer=ALL,
            method=ALL,
            provenance=provenance,
            estimate=0.5,
            unit=ALL,
            interval=Interval(low=0.4, high=0.6),
            n=3,
            clusters=2,
            control=Control(name=ALL, estimate=0.0, p_value=0.5),
            diagnostics={ALL: ALL, **dict.fromkeys(PAYLOADS, ALL)},
            artifacts=(highlight, table, *figures),
            summary=ALL,
        )
    ]


def _undefined() -> Undefined:
    return Undefined(
        question=ALL, about=ALL, layer=ALL, method=ALL, provenance=PROVENANCE, reason=ALL, cure=ALL
    )


def _verdict() -> dict[str, Any]:
    gap, source = (
        Gap(text=ALL, measurement=ALL, cost=ALL),
        Source(family=ALL, source=ALL, status="tested", reason=ALL),
    )
    sentence = f"Verdict: PHANTOM. {ALL}"
    return {
        "sentence": sentence,
        "reasons": (ALL, *PAYLOADS),
        "gaps": (gap,),
        "sources": (source,),
        "decided_by": ALL,
    }


def _whole_verdict(folder: Path) -> dict[str, Any]:
    verdict = read_verdict(folder)[1].model_dump(mode="json")
    return {**verdict, "share_of_wins_via_channel": {ALL: verdict["gain"]}}
