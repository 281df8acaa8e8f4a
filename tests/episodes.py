"""Runs written by hand: what a test does not care about is filled in."""

from typing import Any

from forensics.records import Step, Trajectory

PLAIN: dict[str, Any] = {
    "id": "r", "task": "t", "policy": "p", "environment": "e", "seed": 0, "outcome": 1.0,
    "end": "terminated",
}  # fmt: skip


def episode_of(**told: Any) -> Trajectory:
    """A run that was won and ended by the rules, unless it is told otherwise."""
    return Trajectory(**{**PLAIN, **told})


def shell_run(
    *turns: str | tuple[Any, ...], prompt: str, patch: str | None = None, **told: Any
) -> Trajectory:
    """A run of mini-swe-agent. A turn is a line, or a line, what came back and its exit code;
    what the patch adds is the submission.
    """
    steps = [Step(role="user", text=prompt)]
    for turn in turns:
        line, back, code = (turn, "", 0) if isinstance(turn, str) else (*turn, 0)[:3]
        shown = f"<returncode>{code}</returncode>\n<output>\n{back}\n</output>"
        steps += [
            Step(role="assistant", text=f"```bash\n{line}\n```"),
            Step(role="user", text=shown),
        ]
    lines = () if patch is None else patch.splitlines()
    added = "\n".join(line[1:] for line in lines if line[:1] == "+" and line[:2] != "++")
    plain = {"environment": "mini-swe-agent", "submission": None if patch is None else added}
    return episode_of(**{**plain, "steps": tuple(steps), "patch": patch, **told})
