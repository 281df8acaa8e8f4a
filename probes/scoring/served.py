"""A checkpoint that a server holds: its tokenizer from its directory, its log-probabilities over HTTP.

The weights need not be in the directory; where they are, they name the runs that are the policy's own. What the server
really serves cannot be hashed, so nothing that it tells is kept, and whether it is the policy that made the runs shows
in the agreement with the sampler.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forensics.errors import UserError
from forensics.policies.checkpoints import inspect_checkpoint
from forensics.policies.completions import ServerConfig
from forensics.policies.loading import load_tokenizer, stop_tokens
from forensics.policies.rendering import rendering_for
from probes.scoring.server import ServerPolicy
from probes.scoring.sides import Side

UNNAMED: Final = "server "  # begins the name of what has no weights here


@dataclass(frozen=True, kw_only=True)
class Served:
    """Where a checkpoint is served: the address up to `/v1`, and the name it is served by (`None`: the only one)."""

    url: str
    model: str | None = None


def served_of(url: str | None, model: str | None, option: str) -> Served | None:
    """`None` without an address. `option`: the one that gives the address. Raises `UserError`."""
    if url is None and model is not None:
        raise UserError(f"{option}-model names what a server serves; give {option} too")
    return None if url is None else Served(url=url, model=model)


def open_served(served: Served, directory: Path) -> tuple[Side, str]:
    """The side, and the policy's name in records: its content hash, or that of what is served.

    Raises `UserError` where nobody answers, or no log-probabilities of a prompt are told.
    """
    folder = directory.expanduser()
    tokenizer = load_tokenizer(folder)
    policy = ServerPolicy(ServerConfig(url=served.url, model=served.model), tokenizer=tokenizer,
                          rendering=rendering_for(tokenizer, stop_tokens(folder)))
    weights = any(folder.glob("model*.safetensors"))
    name = inspect_checkpoint(folder).identity if weights else f"{UNNAMED}{policy.served_as}"
    return Side(identity=None, load=lambda: policy), name
