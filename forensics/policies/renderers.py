"""How an episode's text becomes tokens, append-only, for any tokenizer.

Tokens of a running episode are never re-tokenised: what the policy drew stays
as it was drawn, and each observation is tokenised on its own and appended.
Three renderers:

* *shell*: a transcript, `OBSERVATION\\n$ ACTION\\n`; a token that holds a line
  break ends an action.
* *chat*: the template is rendered once around placeholders and cut at them, so
  that any template works and text from the environment cannot forge control
  tokens (it is tokenised with special tokens split).
* *bare*: the text as it stands, with the tokenizer's own special tokens, which
  is how a policy trained on plain strings knows its prompts; an end-of-text
  token alone ends an action, so an answer may hold line breaks.

An environment decides by its attribute `rendering`, which it need not have: `bare`,
`shell`, `tool` (chat, with observations as messages of the role `tool` instead of `user`),
or `auto` (chat where the tokenizer has a template, else shell). Its `tools`, if it has any (JSON
schemas of functions), are told to the template, which shows them its own way. Where it comes out
as chat, its `chat_note` is said, if it has one: what a world that was not made for chat models
wants its user to know.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Renderer

STYLES = ("auto", "bare", "shell", "tool")
_USER, _SYSTEM, _ASSISTANT = "\u2402U\u2403", "\u2402S\u2403", "\u2402A\u2403"


def style_of(environment: Any) -> str:
    """How the environment wants its texts rendered. Raises `UserError` for a
    word that is not in `STYLES`.
    """
    style = getattr(environment, "rendering", "auto")
    if style not in STYLES:
        raise UserError(
            f"{environment.name} asks for the rendering '{style}'; there are: {', '.join(STYLES)}"
        )
    return str(style)


def tools_of(environment: Any) -> tuple[dict[str, Any], ...]:
    """The schemas of the tools that an environment offers."""
    return tuple(getattr(environment, "tools", ()))


def renderer_for(
    tokenizer: Any,
    extra_stops: Sequence[int] = (),
    style: str = "auto",
    tools: Sequence[dict[str, Any]] = (),
) -> Renderer:
    """The rendering of a `style`; `auto` is chat where the tokenizer has a template, else shell.
    `tools`: what a chat template is told of.
    """
    if style == "bare":
        return BareRenderer(tokenizer, extra_stops)
    if style == "tool":
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "the rendering tool needs a chat template, and the tokenizer has none; take auto or"
                " shell"
            )
        return ChatRenderer(tokenizer, extra_stops, observer="tool", tools=tools)
    if style == "auto" and getattr(tokenizer, "chat_template", None):
        return ChatRenderer(tokenizer, extra_stops, tools=tools)
    return PlainRenderer(tokenizer, extra_stops)


def warn_of_chat(environment: Any, renderer: Renderer) -> None:
    """Say an environment's `chat_note` where a policy plays it through a chat template."""
    note = getattr(environment, "chat_note", "")
    if note and isinstance(renderer, ChatRenderer):
        logging.getLogger("forensics").warning("%s: %s", environment.name, note)


class PlainRenderer:
    """`OBSERVATION\\n$ ACTION\\n`."""

    def __init__(self, tokenizer: Any, extra_stops: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        breaks = {i for i in range(len(tokenizer)) if "\n" in tokenizer.decode([i])}
        self.stops = frozenset(breaks | set(extra_stops) | _eos(tokenizer))
        self._breaks = frozenset(breaks)
        if not self.stops:
            raise UserError(
                "the tokenizer has neither a line break nor an end-of-text token, so no action"
                " could end"
            )

    def prompt(self, text: str, system: str | None) -> list[int]:
        head = f"{system}\n\n" if system else ""
        bos = getattr(self._tokenizer, "bos_token_id", None)
        return ([bos] if bos is not None else []) + _encode(self._tokenizer, f"{head}{text}\n$ ")

    def reply(self, observation: str, action: Sequence[int]) -> list[int]:
        ended = bool(action) and action[-1] in self._breaks
        return _encode(self._tokenizer, f"{'' if ended else chr(10)}{observation}\n$ ")

    def action_text(self, token_ids: Sequence[int]) -> str:
        return _text(self._tokenizer, tuple(token_ids))


class BareRenderer:
    """The text as it stands, and nothing between an action and what the environment says to it."""

    def __init__(self, tokenizer: Any, extra_stops: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self.stops = frozenset(set(extra_stops) | _eos(tokenizer))
        if not self.stops:
            raise UserError(
                "neither tokenizer nor model names an end-of-text token, so no bare answer could"
                " end; name one, or take the rendering auto or shell"
            )

    def prompt(self, text: str, system: str | None) -> list[int]:
        return bare_prompt(self._tokenizer, text, system)

    def reply(self, observation: str, action: Sequence[int]) -> list[int]:
        return _encode(self._tokenizer, observation)

    def action_text(self, token_ids: Sequence[int]) -> str:
        return _text(self._tokenizer, tuple(token_ids))


class ChatRenderer:
    """The tokenizer's own chat template, cut at placeholders. `observer`: the role of
    observations.
    """

    def __init__(
        self,
        tokenizer: Any,
        extra_stops: Sequence[int] = (),
        observer: str = "user",
        tools: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._told = {"tools": list(tools)} if tools else {}
        turns = [
            _message("user", _USER),
            _message("assistant", _ASSISTANT),
            _message(observer, _SYSTEM),
        ]
        self._close, rest = _split(self._render(turns), _ASSISTANT)[1], ""
        self._close, rest = _split(self._close, _SYSTEM)
        self._open = rest
        first = _encode(tokenizer, self._close)[:1]
        self.stops = frozenset(set(first) | set(extra_stops) | _eos(tokenizer))

    def prompt(self, text: str, system: str | None) -> list[int]:
        messages = ([_message("system", _SYSTEM)] if system else []) + [_message("user", _USER)]
        before, after = _split(self._render(messages), _USER)
        ids = []
        if system:
            start, before = _split(before, _SYSTEM)
            ids = [*_encode(self._tokenizer, start), *_literal(self._tokenizer, system)]
        return [
            *ids,
            *_encode(self._tokenizer, before),
            *_literal(self._tokenizer, text),
            *_encode(self._tokenizer, after),
        ]

    def reply(self, observation: str, action: Sequence[int]) -> list[int]:
        close = _encode(self._tokenizer, self._close)
        if action and close and action[-1] in self.stops:
            close = close[1:]  # the policy drew the end-of-turn token itself
        return [
            *close,
            *_literal(self._tokenizer, observation),
            *_encode(self._tokenizer, self._open),
        ]

    def action_text(self, token_ids: Sequence[int]) -> str:
        return _text(self._tokenizer, tuple(token_ids))

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self._told
            )
        except Exception as error:
            roles = ", ".join(message["role"] for message in messages)
            raise UserError(
                f"the tokenizer's chat template cannot render the messages {roles} ({error})"
            ) from error
        if self._told and all(tool["function"]["name"] not in text for tool in self._told["tools"]):
            raise UserError(
                "the tokenizer's chat template shows no tools; give one that does, or take a world"
                " whose prompt names them"
            )
        return text


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _split(text: str, placeholder: str) -> tuple[str, str]:
    before, found, after = text.rpartition(placeholder)
    if not found:
        raise UserError(
            "the tokenizer's chat template drops a message; give a template that keeps every turn"
        )
    return before, after


def bare_prompt(tokenizer: Any, text: str, system: str | None) -> list[int]:
    """Token ids of a text as it stands, after a system text if any, with the
    tokenizer's own special tokens.
    """
    return list(_whole(tokenizer, f"{system}\n\n{text}" if system else text))


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(_tokens(tokenizer, text, False)) if text else []


def _literal(tokenizer: Any, text: str) -> list[int]:
    """Tokens of a text in which control tokens are only characters."""
    return list(_tokens(tokenizer, text, True)) if text else []


@lru_cache(maxsize=16384)
def _tokens(tokenizer: Any, text: str, literal: bool) -> tuple[int, ...]:
    """Tokens of a text. Environments repeat themselves, so this is worth remembering."""
    return tuple(
        tokenizer(text, add_special_tokens=False, split_special_tokens=literal)["input_ids"]
    )


@lru_cache(maxsize=4096)
def _whole(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text=text)["input_ids"])


@lru_cache(maxsize=16384)
def _text(tokenizer: Any, token_ids: tuple[int, ...]) -> str:
    text: str = tokenizer.decode(list(token_ids), skip_special_tokens=True)
    return text.strip()


def _eos(tokenizer: Any) -> set[int]:
    return {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set()
