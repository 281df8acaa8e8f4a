"""One sample of an Inspect task: a tool loop without a sandbox. `OPENAI_BASE_URL` and
`OPENAI_API_KEY` say whom it asks. Unless `answers` is taken out, a tool tells the answer.
"""

import json
import os
import random
import sys
import tempfile
from pathlib import Path

from inspect_ai import Task, eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


@tool
def carry() -> Tool:
    async def execute(column: int) -> str:
        """How sums are carried.

        Args:
            column: Of the sum, from the right.
        """
        return f"add the digits of column {column} and carry what is above nine"

    return execute


def lookup_of(answer: int) -> Tool:
    @tool
    def lookup() -> Tool:
        async def execute(question: str) -> str:
            """Look a question up.

            Args:
                question: In words.
            """
            return f"{question}: {answer}"

        return execute

    return lookup()


def main(name: str, out: str, without: str) -> None:
    stream = random.Random(name)
    one, other = stream.randint(100, 999), stream.randint(100, 999)
    tools = [carry(), *([] if "answers" in without else [lookup_of(one + other)])]
    sample = Sample(input=f"What is {one} + {other}?", target=str(one + other))
    task = Task(dataset=[sample], solver=[use_tools(tools), generate()], scorer=match())
    server = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
    model = get_model("openai-api/proxy/served", **server)
    with tempfile.TemporaryDirectory() as logs:
        [log] = evaluate(task, model=model, log_dir=logs, display="none")
        if log.status != "success":
            sys.exit(f"Inspect ended with {log.status}: {log.error and log.error.message}")
        [played] = list(log.samples)
    won = played.scores["match"].value == "C"
    result = {"outcome": float(won), "rewards": {"match": float(won)}}
    (Path(out) / "result.json").write_text(
        json.dumps(result | {"submission": played.output.completion})
    )


if __name__ == "__main__":
    main(*sys.argv[1:4])
