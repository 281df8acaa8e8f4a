"""An agent of its own: it plays one task of `mini-repo` by chat completions, and knows nothing of
the program that judges it. `OPENAI_BASE_URL` and `OPENAI_API_KEY` say whom it asks.
"""

import json
import os
import sys
import urllib.request

from training import MiniRepo


def answer(messages: list[dict[str, str]]) -> str:
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps({"model": "served", "messages": messages}).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        },
    )
    with urllib.request.urlopen(request) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


def play(task: str, out: str, scrubbed: str) -> None:
    world = MiniRepo(world="capped")
    world = world.without(*scrubbed.split(",")) if scrubbed else world
    messages = [{"role": "user", "content": world.reset(task, 0).text}]
    step = None
    while step is None or not (step.terminated or step.truncated):
        action = answer(messages)
        step = world.step(action)
        messages.append({"role": "assistant", "content": action})
        messages.append({"role": "user", "content": step.observation})
    result = {"outcome": step.outcome, "rewards": step.rewards, "submission": step.submission}
    with open(f"{out}/result.json", "w") as file:
        json.dump(result | {"truncated": step.truncated}, file)


if __name__ == "__main__":
    play(*sys.argv[1:4])
