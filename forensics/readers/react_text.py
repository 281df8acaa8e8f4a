"""A whole ReAct transcript that stands in one answer, taken apart: `with_observations`.

What stands between `Observation:` and the next `Thought:`, `Action:` or `Final Answer:`
came back from a tool, where an `Action:` stands before it. A policy may write
observations itself: its text cannot be told from a real answer in such a log.
"""

import re

from forensics.records import Step

MOST = 1000  # observations of one text
_OBSERVED = re.compile(r"^[ \t]*\**Observation(?: \d{1,4})?:\**[ \t]*", re.M)
_SAID = re.compile(r"^[ \t]*\**(?:Thought|Action|Final Answer)(?: \d{1,4})?:", re.M)
_ACTED = re.compile(r"^[ \t]*\**Action(?: \d{1,4})?:", re.M)


def with_observations(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, a single answer that holds its observations taken apart."""
    if not steps or steps[-1].role != "assistant" or "Observation" not in steps[-1].text:
        return steps
    last = steps[-1]
    single = sum(step.role == "assistant" for step in steps) == 1
    if not single or last.tool_calls or last.token_ids is not None or "Action" not in last.text:
        return steps
    return (*steps[:-1], *_apart(last.text))


def _apart(text: str) -> list[Step]:
    found: list[Step] = []
    at = 0
    while len(found) < 2 * MOST and (observed := _OBSERVED.search(text, at)):
        said = text[at : observed.start()]
        if not _ACTED.search(said):
            break
        following = _SAID.search(text, observed.end())
        end = following.start() if following else len(text)
        found.append(Step(role="assistant", text=said.rstrip("\n")))
        found.append(Step(role="tool", text=text[observed.end() : end].rstrip("\n")))
        at = end
    rest = [Step(role="assistant", text=text[at:])] if text[at:].strip() or not found else []
    return [*found, *rest]
