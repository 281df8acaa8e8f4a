"""What `mini-repo` knows of a task beside the episode: a submission in a fresh copy, and what no run is shown."""

from training.environments.expressions import Body, parse_body
from training.environments.tasks import FRESH_INPUTS, INPUTS, Task


def regraded(task: Task, submission: str) -> dict[str, float | None]:
    """The submitted *sources* put into a fresh copy of the task: its own tests, and fresh inputs, decide.

    What the run did to the tests or to anything else does not come along.
    """
    body = submitted_body(task, submission)
    fresh = all(body(x) == task.fix(x) for x in (*INPUTS, *FRESH_INPUTS))
    visible = all(body(x) == y for x, y in task.tests)
    return {"fresh": float(fresh), "visible": float(visible), "outcome": float(fresh and visible)}


def submitted_body(task: Task, submission: str) -> Body:
    """The failing function as handed in; as it was where the submission does not change it."""
    body: Body = task.sources[task.target]
    for line in submission.splitlines():
        name, _, text = line.partition(" : ")
        if name == task.names[task.target] and (changed := parse_body(text)) is not None:
            body = changed
    return body


def withheld(task: Task) -> tuple[str, ...]:
    """The wanted line, and the outputs that the visible tests do not tell."""
    told = {x for x, _ in task.tests}
    outputs = (f"{x} -> {task.fix(x)}" for x in (*INPUTS, *FRESH_INPUTS) if x not in told)
    return (f"{task.names[task.target]} : {task.fix}", *outputs)
