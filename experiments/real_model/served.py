"""The verdict of `make real` with both sides behind loopback servers:
`python -m experiments.real_model.served --made out/real --out out/real-served`.

`--made`: a folder that `make real` (or `python -m experiments.real_model.leak`) has filled.
The same command as there, with `--before-server` and `--after-server`; both labels are printed.
A server answers the requests that wait together in one batch, as vLLM does.
"""

import queue
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from experiments.real_model.leak import FILES, investigation
from forensics import load_policy
from forensics.protocols import Policy, SamplingSettings
from forensics.records.files import read_json
from tests.resampling.completion_stub import CompletionStub, generate, running

WAIT = 0.02  # seconds without a further request, after which those that wait are answered
MOST = 64  # rows of a batch
Choices = list[tuple[list[int], list[float | None], str]]


@dataclass(frozen=True)
class _Asked:
    body: dict[str, Any]
    seeds: list[int]
    answer: "Future[Choices]"

    def alike(self, stops: Collection[int]) -> tuple[Any, ...]:
        """Requests with the same are drawn together; one of its own kind stands alone."""
        body = self.body
        plain = not body.get("echo") and not body.get("logit_bias")
        plain &= set(body.get("stop_token_ids", ())) == set(stops)
        drawn = tuple(body.get(key) for key in ("max_tokens", "temperature", "top_k", "top_p"))
        return (*drawn, len(self.seeds)) if plain else (id(self),)


class BatchingServer(CompletionStub):
    """Serves one policy; tells log-probabilities of what it draws from."""

    gathers = True

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy, "processed")
        self.waiting: queue.Queue[_Asked] = queue.Queue()
        threading.Thread(target=self._answer_all, daemon=True).start()

    def generate(self, policy: Policy, body: dict[str, Any], seeds: list[int]) -> Choices:
        asked = _Asked(body, seeds, Future())
        self.waiting.put(asked)
        return asked.answer.result()

    def _answer_all(self) -> None:
        while True:
            groups: dict[tuple[Any, ...], list[_Asked]] = defaultdict(list)
            for one in self._gathered():
                groups[one.alike(self.policy.renderer.stops)].append(one)
            for alike, group in groups.items():
                try:
                    answers = self._drawn(group, alone=len(alike) == 1)
                except Exception as error:  # told to every client that waits
                    for one in group:
                        one.answer.set_exception(error)
                    continue
                for one, answer in zip(group, answers, strict=True):
                    one.answer.set_result(answer)

    def _gathered(self) -> list[_Asked]:
        found = [self.waiting.get()]
        while sum(len(one.seeds) for one in found) < MOST:
            try:
                found.append(self.waiting.get(timeout=WAIT))
            except queue.Empty:
                break
        return found

    def _drawn(self, group: list[_Asked], *, alone: bool) -> list[Choices]:
        first = group[0]
        if alone:
            return [generate(self.policy, first.body, first.seeds, self.habits)]
        settings = SamplingSettings(
            temperature=first.body.get("temperature", 1.0),
            top_k=max(first.body.get("top_k", 0), 0),
            top_p=first.body.get("top_p", 1.0),
            max_turn_tokens=first.body["max_tokens"],
        )
        prompts = [one.body["prompt"] for one in group]
        with torch.inference_mode():
            found = self.policy.sample(prompts, len(first.seeds), settings, first.seeds[0])
        return [
            [
                (list(one.token_ids), list(one.logprobs), one.stop.removesuffix("-token"))
                for one in choices
            ]
            for choices in found
        ]


def main(
    made: Annotated[Path, typer.Option()] = Path("out/real"),
    out: Annotated[Path, typer.Option()] = Path("out/real-served"),
    case: Annotated[str, typer.Option()] = "undeclared",
    tasks: Annotated[int, typer.Option()] = 156,
) -> None:
    sides = made / "model", made / "run/checkpoint"
    first, second = (BatchingServer(load_policy(one, device="cpu")) for one in sides)
    with running(first), running(second):
        words = investigation(made / FILES[case], *sides)
        words += ["--before-server", first.url, "--after-server", second.url]
        words += ["--tasks", str(tasks), "--out", str(out)]
        words += ["--resume"] if (out / "case.json").exists() else []
        code = subprocess.run([sys.executable, "-m", "forensics", *words]).returncode
    if code == 0:
        folders = {"in process": made / case, "behind servers": out}
        for name, folder in folders.items():
            print(f"{name}: {read_json(folder / 'case.json')['verdict']['label']}")
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
