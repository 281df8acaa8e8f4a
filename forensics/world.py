"""A world of one's own."""

from forensics.protocols import Environment
from forensics.records import content_hash


def environment_key(environment: Environment) -> str:
    """The identity of a world: its name and every option."""
    return content_hash({"name": environment.name, "options": dict(environment.options)})
