"""A loopback server with a real small model that takes new weights: adapters by file, as
vLLM does, and whole checkpoints.

Faults that can be planted (`habits`): `hot` draws at 1.2 times the temperature and tells
those probabilities, `stale` serves the weights of the step before, `off by one` puts every
drawn token one position too far.
"""

import copy
from pathlib import Path
from typing import Any

from forensics import load_policy, policy_from
from forensics.protocols import Policy
from tests.resampling.completion_stub import CompletionStub


class ModelServer(CompletionStub):
    """Serves `policy` as `tiny`, and adapters on it under their names."""

    def __init__(self, policy: Policy, *habits: str) -> None:
        super().__init__(policy, "processed", *habits)
        self.start, self.adapters, self.before = policy, dict[str, Policy](), policy

    def adapters_listed(self) -> list[dict[str, Any]]:
        return [{"id": name, "parent": "tiny"} for name in self.adapters]

    def policy_of(self, model: str) -> Policy:
        return self.adapters.get(model, self.policy)

    def manage(self, what: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self.lock:
            if what == "load_lora_adapter":
                self.adapters[body["lora_name"]] = self._taken(
                    _adapted(self.start, body["lora_path"])
                )
            elif what == "unload_lora_adapter":
                if self.adapters.pop(body["lora_name"], None) is None:
                    return 404, {"error": "no such adapter"}
            elif what == "update_weights":
                self.policy = self._taken(load_policy(body["weight_dir"], device="cpu"))
            else:
                return super().manage(what, body)
        return 200, "Success"

    def _taken(self, policy: Policy) -> Policy:
        self.before, older = policy, self.before
        return older if "stale" in self.habits else policy


def _adapted(start: Policy, folder: str) -> Policy:
    from peft import PeftModel

    model = PeftModel.from_pretrained(copy.deepcopy(start.model), folder)
    return policy_from(model.eval(), start.tokenizer, Path(folder).name)
