"""One task of the taskset `receipts`, as `vf-eval` plays it. `OPENAI_BASE_URL` and
`OPENAI_API_KEY` say whom verifiers asks: its interception forwards to that address. Unless
`answer-file` is taken out, the file that grades the agent lies beside the receipt.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig


def main(task: str, out: str, without: str) -> None:
    taskset = {"id": "receipts", "task": {"answers": "answer-file" not in without}}
    config = EvalConfig(
        env={"taskset": taskset, "agent": {"runtime": {"type": "subprocess"}, "max_turns": 8}},
        model="served",
        client={"base_url": os.environ["OPENAI_BASE_URL"], "api_key_var": "OPENAI_API_KEY"},
        select={"include": {"ids": [task]}},
        output_dir=Path(out),
        push=False,
        rich=None,
    )
    [episode] = asyncio.run(run_eval(config))
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok:
        sys.exit(f"verifiers ended with {'; '.join(error.message for error in errors)}")
    [trace] = episode.traces
    rewards = {name: reward.score for name, reward in trace.rewards.items()}
    result = {"outcome": trace.reward, "rewards": rewards, "submission": trace.info["totals.txt"]}
    (Path(out) / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:4])
