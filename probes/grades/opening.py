"""What a grading starts from: what was asked, the two checkpoints, the shortcuts of the world, the folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.instruments import load_plugin
from forensics.investigation.inputs import choose_environment, resolve_device
from forensics.policies.checkpoints import inspect_checkpoint, read_environment_hint, require_directory
from forensics.policies.loading import require_loadable
from forensics.protocols import Channel
from forensics.records.files import read_json, write_json
from probes.linear.logs import ProbeRequest
from probes.scoring import Side
from probes.scoring.served import Served, open_served


@dataclass(frozen=True, kw_only=True)
class GradeRun:
    """What was asked on the command line. `server`, `reference_server`: who scores instead of the checkpoint here."""

    logs: Path
    policy: Path
    reference: Path
    environment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    truth: Path | None = None
    n: int | None = None
    select: bool = False
    beta: float = 1.0
    seed: int = 0
    device: str = "auto"
    server: Served | None = None
    reference_server: Served | None = None
    probes: ProbeRequest | None = None


def open_sides(asked: GradeRun) -> tuple[tuple[Side, Side], tuple[str, str]]:
    """The policy and its reference, and their identities. Raises `UserError` for what cannot be loaded or reached."""
    place = resolve_device(asked.device)
    if (asked.policy / "adapter_config.json").is_file() and asked.server is None:
        if asked.reference_server is not None:
            raise UserError("an adapter is read here with its base; leave out --reference-server, or give --server too")
        return _adapted(asked, place)
    ours, theirs = (_side(path, served, place) for path, served in (
        (asked.policy, asked.server), (asked.reference, asked.reference_server)))
    if asked.server and asked.reference_server and ours[0].load().identity == theirs[0].load().identity:
        raise UserError(f"{asked.server.url} serves one model as the policy and as the reference; name two with "
                        "--server-model and --reference-server-model, or give another address")
    return (ours[0], theirs[0]), (ours[1], theirs[1])


def _side(path: Path, served: Served | None, place: str) -> tuple[Side, str]:
    """A checkpoint and its name in records."""
    require_directory(path.expanduser())
    if served is not None:
        return open_served(served, path)
    identity = inspect_checkpoint(path).identity
    require_loadable(path)
    load = load_plugin("forensics.policies", "huggingface")
    # one copy in memory, however many files the log has
    held = cache(partial(load, path.expanduser(), device=place, identity=identity))
    return Side(identity=identity, load=held), identity


def _adapted(asked: GradeRun, place: str) -> tuple[tuple[Side, Side], tuple[str, str]]:
    """A LoRA adapter against its base, with one copy of the weights."""
    from probes.scoring.adapters import load_adapter

    require_loadable(asked.reference)
    policy, reference = load_adapter(asked.policy, asked.reference.expanduser(), device=place)
    ours = Side(identity=policy.identity, load=lambda: policy)
    theirs = Side(identity=reference.identity, load=lambda: reference)
    return (ours, theirs), (policy.identity, reference.identity)


def channels_of(asked: GradeRun, missing: list[str]) -> Sequence[Channel]:
    """Shortcuts that the world of the runs declares; none where nothing says which world that is."""
    named = next((path for path in (asked.policy, asked.reference) if read_environment_hint(path)), asked.policy)
    if asked.environment is None and read_environment_hint(named) is None:
        missing.append("No environment is named, so no step is known to try a shortcut; name it with --env.")
        return ()
    world = choose_environment(named, asked.environment, asked.options)[0]
    return tuple((world.without(*asked.without) if asked.without else world).channels)


def require_same(path: Path, inputs: Mapping[str, Any]) -> None:
    """Remember what was asked. Raises `UserError` where the folder was made for something else."""
    if path.exists():
        before = read_json(path)
        for key, value in inputs.items():
            if before.get(key) != value:
                raise UserError(f"{path.parent} holds a grading with another {key}; give the same, or another --out")
    write_json(path, dict(inputs))
