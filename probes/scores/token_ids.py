"""Token ids for a log that has none: the texts in the policy's own rendering,
step by step and append-only.

1. What stands before the first action is the prompt, as the policy is given
   one.
2. An action is its text's tokens and the token that ends an action there. What
   the policy really drew may have been cut into other tokens; nobody can know,
   so the result says that it was tokenised again.
3. What stands between two actions is the rendering's reply to the one before.

An action that ran into the token limit has no ending token.
"""

from collections.abc import Sequence
from typing import Any

from forensics.policies import require
from forensics.protocols import Policy
from forensics.records import Step, Trajectory
from forensics.records.trajectory import handed_in


def lacks_token_ids(trajectory: Trajectory) -> bool:
    """Whether some step of a run has no token ids."""
    return any(step.token_ids is None for step in trajectory.steps)


def with_token_ids(trajectory: Trajectory, policy: Policy) -> Trajectory:
    """The same run with token ids and masks, and without the sampler's
    log-probabilities.

    Raises `UserError` for a policy that has no tokenizer here.
    """
    require(policy, "tokens", task="a log without token ids")
    renderer, tokenizer = policy.renderer, policy.tokenizer
    steps: list[Step] = []
    action: list[int] | None = None
    unwritten: list[Step] = []
    last = max((number for number, _ in trajectory.actions), default=-1)
    for number, step in enumerate(trajectory.steps):
        if step.role != "assistant":
            unwritten.append(step)
            continue
        steps += _given(unwritten, renderer, action)
        cut = (
            number == last
            and trajectory.end == "truncated"
            and not handed_in(trajectory.end, trajectory.end_reason)
        )
        action = _action(step.text, renderer, tokenizer, ended=not cut)
        steps.append(_with_tokens(step, action, drawn=True))
        unwritten = []
    behind = [_with_tokens(step, [], drawn=False) for step in unwritten]  # nobody read it
    return trajectory.model_copy(update={"steps": (*steps, *behind)})


def with_ids(trajectory: Trajectory, ids: Sequence[Sequence[int]]) -> Trajectory:
    """The same run with the token ids of each step that were made before."""
    steps = (
        _with_tokens(step, one, drawn=step.role == "assistant")
        for step, one in zip(trajectory.steps, ids, strict=True)
    )
    return trajectory.model_copy(update={"steps": tuple(steps)})


def _given(steps: Sequence[Step], renderer: Any, action: list[int] | None) -> list[Step]:
    """What the policy did not write; all its tokens stand with the last of its steps."""
    if not steps:
        return []
    if action is None:
        system = "\n\n".join(step.text for step in steps if step.role == "system")
        text = "\n".join(step.text for step in steps if step.role != "system")
        ids = renderer.prompt(text, system or None)
    else:
        ids = renderer.reply("\n".join(step.text for step in steps), action)
    return [_with_tokens(step, [] if step is not steps[-1] else ids, drawn=False) for step in steps]


def _action(text: str, renderer: Any, tokenizer: Any, ended: bool) -> list[int]:
    """Its tokens, and the one that ends an action: the one that a reply puts
    there where it is missing, or the end of text.
    """
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)[
        "input_ids"
    ]
    first = renderer.reply("x", ids)[:1] if ended else ()
    if first and first[0] in renderer.stops:
        return [*ids, *first]
    end = tokenizer.eos_token_id
    return [*ids, end] if ended and end in renderer.stops else list(ids)


def _with_tokens(step: Step, ids: Sequence[int], drawn: bool) -> Step:
    return step.model_copy(
        update={"token_ids": tuple(ids), "sampled": (drawn,) * len(ids), "logprobs": None}
    )
