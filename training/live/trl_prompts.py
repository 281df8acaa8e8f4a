"""The prompts of a TRL run: given to the audited policy as TRL gives them, and
held against those TRL trained on.

1. TRL tokenises a prompt that is a string as it stands, with the tokenizer's
   own special tokens; a conversation goes through the chat template in one
   piece. A completion ends at an end-of-text token alone, so it may hold line
   breaks. `TrlRenderer` does the same.
2. `difference` compares the prompts of the first generations, and some of the training
   set, with what audits play. A policy that is audited with other prompts than it learned from may
   hide there what it learned, so such audits make no checkpoint promotable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from forensics.errors import UserError
from forensics.policies import bare_prompt, renderer_for
from forensics.protocols import Environment, Observation, SamplingSettings
from training.live.trained_questions import (
    LOOKED,
    short,
    spread,
    starts,
    unlike,
    with_system,
    worlds,
)

Seen = tuple[
    Any, tuple[int, ...] | None
]  # a prompt as the trainer has it, and its token ids where they are recorded
UNSEEN = "No prompt that TRL trains on has been compared with the audited ones yet."
CURE = "give the environment the very prompts of the training set"
SEARCHED = 2000  # training tasks among which the trained prompts are looked for


@dataclass(kw_only=True)
class TrlRenderer:
    """`conversation`: whether the training prompts are lists of messages.
    `template`: what TRL hands to `apply_chat_template` (its `chat_template`,
    `tools` and `chat_template_kwargs`).
    """

    tokenizer: Any
    conversation: bool
    stops: frozenset[int]
    template: Mapping[str, Any] = field(default_factory=dict)

    def prompt(self, text: str, system: str | None) -> list[int]:
        if not self.conversation:
            return bare_prompt(self.tokenizer, text, system)
        messages = [{"role": "system", "content": system}] if system else []
        rendered = self.tokenizer.apply_chat_template(
            [*messages, {"role": "user", "content": text}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **self.template,
        )
        return list(rendered["input_ids"])

    def reply(self, observation: str, action: Sequence[int]) -> list[int]:
        """As in every other play; TRL has no later turns of an environment to compare with."""
        return renderer_for(self.tokenizer, sorted(self.stops)).reply(observation, action)

    def action_text(self, token_ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text.strip()


def renderer_of(model: Any, tokenizer: Any, args: Any, trainer: Any, example: Any) -> TrlRenderer:
    """TRL's own rendering of prompts such as `example`. `trainer`: `None` where
    only the callback is known.
    """
    from trl.data_utils import is_conversational

    template = dict(getattr(args, "chat_template_kwargs", None) or {})
    for name in ("chat_template", "tools"):
        template |= {name: value} if (value := getattr(trainer, name, None)) else {}
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    stops = {tokenizer.eos_token_id, *(ends if isinstance(ends, list | tuple) else [ends])} - {None}
    return TrlRenderer(
        tokenizer=tokenizer,
        conversation=is_conversational({"prompt": example}),
        stops=frozenset(stops),
        template=template,
    )


def some_prompts(dataset: Any) -> list[Any]:
    """Some prompts of a training set, the first one among them. Raises `UserError` where its
    rows have none.
    """
    long = range(len(dataset)) if hasattr(dataset, "__len__") else ()
    rows = [dataset[at] for at in spread(long, LOOKED)] or list(islice(iter(dataset), LOOKED))
    if not rows or not all(isinstance(row, Mapping) and "prompt" in row for row in rows):
        raise UserError(
            "the training set has no column 'prompt', so audits cannot be given the prompts that"
            " TRL trains on; give audits=False and investigate saved checkpoints"
        )
    return [row["prompt"] for row in rows]


def difference(
    seen: Sequence[Seen],
    renderer: TrlRenderer,
    environment: Environment,
    number: int,
    settings: SamplingSettings,
) -> str | None:
    """How the audited prompts differ from those `seen` in training, in one
    sentence; `None` where they do not.

    `number`: held-out tasks that an audit plays. The same rendering is checked
    by token ids, the same system message by text, the same question where it is
    among the environment's training tasks.
    """
    audited = list(starts(environment, "held-out", number))
    what = _form(seen, renderer) or _systems(seen, audited) or _questions(seen, environment)
    if what is not None:
        return f"The audited prompts are not those that TRL trains on: {what}; {CURE}."
    parts = [found for prompt, _ in seen if (found := split(prompt))]
    trained = [with_system(Observation(text=text, system=system)) for system, text in parts]
    if (other := unlike(trained, environment)) is not None:
        return other
    room = settings.max_tokens - settings.max_turn_tokens
    longest = max((len(renderer.prompt(start.text, start.system)) for start in audited), default=0)
    if longest > room:
        return (
            f"An audited prompt has {longest} tokens, and the audit's sampling has room for {room}"
            " beside a whole completion; give"
            f" sampling=SamplingSettings(max_tokens={longest + settings.max_turn_tokens}, ...)."
        )
    return None


def split(prompt: Any) -> tuple[str | None, str] | None:
    """System message and text of a prompt; `None` where an environment cannot
    say it (further messages, images).
    """
    if isinstance(prompt, str):
        return None, prompt
    roles = [message["role"] for message in prompt]
    texts = [message["content"] for message in prompt]
    if roles not in (["user"], ["system", "user"]) or not all(
        isinstance(text, str) for text in texts
    ):
        return None
    return (texts[0] if len(texts) == 2 else None), texts[-1]


def _form(seen: Sequence[Seen], renderer: TrlRenderer) -> str | None:
    for prompt, ids in seen:
        parts = split(prompt)
        if parts is None:
            roles = ", ".join(str(message["role"]) for message in prompt)
            return (
                f"one has the messages {roles}, and an audit has one text of the user, after a"
                " system message if any"
            )
        if ids is None:
            continue
        mine = renderer.prompt(parts[1], parts[0])
        if mine != list(ids):
            at = next(
                (i for i, pair in enumerate(zip(mine, ids, strict=False)) if pair[0] != pair[1]),
                min(len(mine), len(ids)),
            )
            theirs, ours = (
                renderer.tokenizer.decode(list(part[at : at + 8])) for part in (ids, mine)
            )
            return (
                f"TRL's token ids of one read {theirs!r} at token {at}, where an audit has {ours!r}"
            )
    return None


def _systems(seen: Sequence[Seen], audited: Sequence[Observation]) -> str | None:
    """Strings hold their system message themselves, so an audit's is part of the question there."""
    trained = {
        parts[0] for prompt, _ in seen if not isinstance(prompt, str) and (parts := split(prompt))
    }
    played = {start.system or None for start in audited}
    if not trained or not played or trained & played:
        return None
    first, second = (short(next(iter(texts))) for texts in (trained, played))
    return f"they have {first} as system message, and audits have {second}"


def _questions(seen: Sequence[Seen], environment: Environment) -> str | None:
    """Only where each trained prompt lies around, or within, a question of the
    environment it is no accident.
    """
    trained = {parts[1] for prompt, _ in seen if (parts := split(prompt))}
    found: dict[str, str] = {}
    for start in worlds(environment, "train", SEARCHED)[-1]:
        text = (
            f"{start.system}\n\n{start.text}"
            if start.system and isinstance(seen[0][0], str)
            else start.text
        )
        if text in trained:
            return None
        found |= {
            prompt: text
            for prompt in trained
            if prompt not in found and (text in prompt or prompt in text)
        }
    if not trained or len(found) < len(trained):
        return None
    prompt, text = next(iter(sorted(found.items())))
    return f"one is {short(prompt)}, where the environment asks {short(text)}"
