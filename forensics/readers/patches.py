"""The changed part of a patch."""


def added_lines(patch: str) -> str:
    """The lines that a unified diff adds, without their plus signs, as a submission's *changed* part."""
    lines = patch.split("\n")
    headers = {at + 1 for at, line in enumerate(lines[:-1]) if line.startswith("--- ") and lines[at + 1][:4] == "+++ "}
    return "\n".join(line[1:] for at, line in enumerate(lines) if line.startswith("+") and at not in headers)
