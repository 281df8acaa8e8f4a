"""OpenHands events as steps: those of OpenHands 0.x (`action`, `observation`) and of its agent SDK 1.x (`kind`).

Format: OpenHands 0.9 to 0.62 `events/serialization/event.py`, `events/observation/commands.py`; openhands-sdk 1.58
`event/llm_convertible/`.

1. The policy's events are those whose source is `agent`. Their text and tool call are those of the model's response
   where the event keeps it, else the `thought` and the action with its arguments under OpenHands's name for the tool.
   Calls of one response that follow each other are one step; its text stands in it once.
2. What came back is the content, with the exit code behind it in the words in which OpenHands shows it to the model.
3. Events of the harness about itself (states, recalls that show nothing) are no steps.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from forensics.readers.documents import entries, listed, text_of, within
from forensics.readers.messages import steps_of
from forensics.readers.scores import whole
from forensics.records import Step, ToolCall
from forensics.records.trajectory import Ending

KINDS = ("SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent",
         "UserRejectObservation", "ConversationErrorEvent")  # fmt: skip
TOOLS = {"run": "execute_bash", "run_ipython": "execute_ipython_cell"}
ABOUT = ("thought", "reasoning_content", "confirmation_state", "security_risk", "hidden", "blocking", "is_static")
SILENT = ("change_agent_state", "agent_state_changed", "null", "recall", "condensation", "condensation_request",
          "condense", "pause", "resume", "stop", "start", "task_tracking_state")  # fmt: skip
BUDGETS = ("maximum iteration", "max iteration", "maximum budget", "max_iterations", "stuck in a loop", "timeout",
           "timed out", "maxiterationsreached")  # fmt: skip
MERGED = 1000  # calls in one step
EXIT = "[Command finished with exit code {}]"


def is_event(value: Any) -> bool:
    """Whether a JSON value looks like an event of either kind."""
    event = entries(value)
    if "kind" in event:
        return str(event["kind"]).endswith(("Event", "Observation")) and "source" in event
    return ("action" in event and ("args" in event or "source" in event)) or (
        "observation" in event and ("extras" in event or "cause" in event or "source" in event)
    )


@dataclass
class Run:
    """The steps of the events so far, and how the run ended as far as they tell."""

    steps: list[Step] = field(default_factory=list)
    finished: bool = False
    failure: str | None = None
    _response: str | None = None  # whose call the last step holds
    _spoken: str | None = None  # whose text was told last

    def add(self, event: Mapping[str, Any]) -> None:
        """One more event. Raises `ValueError` or the like where it is none."""
        if not is_event(event):
            raise ValueError("it is no event")
        add = self._add_new if "kind" in event else self._add_action if "action" in event else self._add_observation
        before = len(self.steps)
        add(event)
        if len(self.steps) > before and self.steps[-1].role != "assistant":
            self._response = None

    def ending(self) -> tuple[Ending, str | None]:
        """How the run ended: finished by the policy, cut off by a budget, or failed."""
        if self.failure is not None and not self.finished:
            return ending_of(self.failure)
        return ("terminated", "finish") if self.finished else ("truncated", "the run ends without a finish")

    def _add_new(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind == "SystemPromptEvent":
            self.steps.append(Step(role="system", text=text_of([event.get("system_prompt")])))
        elif kind == "MessageEvent":
            message = entries(event.get("llm_message"))
            content = [*listed(message.get("content")), *listed(event.get("extended_content"))]
            self.steps += steps_of([{**message, "content": content}])
        elif kind == "ActionEvent":
            self._act(_thought(event), _call_of(event), event.get("llm_response_id"))
            self.finished = event.get("tool_name") == "finish"
        elif kind == "ConversationErrorEvent":
            self.failure = f"{event.get('code')}: {event.get('detail')}"
        elif kind in KINDS:
            self.steps.append(Step(role="tool", text=_shown(event)))

    def _add_action(self, event: Mapping[str, Any]) -> None:
        action, args, source = event["action"], entries(event.get("args")), event.get("source")
        if action in SILENT:
            return
        if action == "system":
            self.steps.append(Step(role="system", text=text_of(args.get("content"))))
        elif source == "user" or (source is None and action == "message" and not self.steps):
            self.steps.append(Step(role="user", text=text_of(args.get("content", args.get("command")))))
        elif action == "message":
            self.steps.append(Step(role="assistant", text=text_of(args.get("content", event.get("message")))))
        else:
            response = entries(within(event, "tool_call_metadata", "model_response"))
            self._act(_response_text(response, args), _called(event, response), response.get("id"))
            self.finished = action in ("finish", "reject")

    def _add_observation(self, event: Mapping[str, Any]) -> None:
        extras = entries(event.get("extras"))
        if event["observation"] == "agent_state_changed":
            state = extras.get("agent_state")
            self.failure = str(extras.get("reason") or state) if state == "error" else self.failure
            self.finished = self.finished or state == "finished"
        elif event["observation"] not in SILENT:
            code = within(extras, "metadata", "exit_code")
            self.steps.append(Step(role="tool", text=_with_code(text_of(event.get("content")), code, extras)))

    def _act(self, text: str, call: ToolCall, response: Any) -> None:
        """One call of a response, in the step of the calls of the same response that stand just before."""
        last = self.steps[-1] if self.steps else None
        if last is not None and response == self._response is not None and len(last.tool_calls) < MERGED:
            self.steps[-1] = last.model_copy(update={"tool_calls": (*last.tool_calls, call)})
        else:
            repeated = response is not None and response == self._spoken
            self.steps.append(Step(role="assistant", text="" if repeated else text, tool_calls=(call,)))
        self._response = self._spoken = response if isinstance(response, str) else None


def ending_of(failure: str) -> tuple[Ending, str | None]:
    """How a run ended that failed with these words."""
    cut = any(word in failure.lower() for word in BUDGETS)
    return ("truncated" if cut else "errored"), failure[:500]


def events_in(history: Iterable[Any]) -> Iterator[Any]:
    """The events of a history, which older versions keep as pairs of an action and what came back."""
    for entry in history:
        yield from entry if isinstance(entry, list) else [entry]


def _thought(event: Mapping[str, Any]) -> str:
    message = {"role": "assistant", "content": event.get("thought"), "reasoning": event.get("reasoning_content")}
    return steps_of([message])[0].text


def _call_of(event: Mapping[str, Any]) -> ToolCall:
    """The call as the model wrote it; 1.0 kept it in the shape of chat completions."""
    call = entries(event.get("tool_call"))
    return steps_of([{"role": "assistant", "tool_calls": [call]}])[0].tool_calls[0]


def _shown(event: Mapping[str, Any]) -> str:
    if "error" in event or "rejection_reason" in event:
        return str(event.get("error") or f"Action rejected: {event.get('rejection_reason')}")
    observation = entries(event.get("observation"))
    content = observation.get("content", observation.get("output", observation.get("message")))
    code = within(observation, "metadata", "exit_code")
    return _with_code(text_of(content), code, observation)


def _with_code(text: str, code: Any, fields: Mapping[str, Any]) -> str:
    known = whole(code if code is not None else fields.get("exit_code"))
    if known is None or known == -1 or EXIT.format(known) in text:
        return text
    return f"{text}\n{EXIT.format(known)}"


def _response_text(response: Mapping[str, Any], args: Mapping[str, Any]) -> str:
    message = entries(entries(next(iter(listed(response.get("choices"))), None)).get("message"))
    if not message:
        return text_of(args.get("thought"))
    return steps_of([{**message, "role": "assistant", "tool_calls": None, "function_call": None}])[0].text


def _called(event: Mapping[str, Any], response: Mapping[str, Any]) -> ToolCall:
    """The call that an action was made from, else the action itself as a call."""
    asked = within(event, "tool_call_metadata", "tool_call_id")
    for choice in listed(response.get("choices")):
        for call in listed(within(choice, "message", "tool_calls")):
            if entries(call).get("id") == asked and asked is not None:
                return steps_of([{"role": "assistant", "tool_calls": [call]}])[0].tool_calls[0]
    args = {key: value for key, value in entries(event.get("args")).items() if key not in ABOUT and value is not None}
    name = within(event, "tool_call_metadata", "function_name") or TOOLS.get(event["action"], event["action"])
    return ToolCall(name=str(name), arguments=json.dumps(args, ensure_ascii=False))
