"""The JSON Schema of everything that is written to a file or read from one."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from pydantic import TypeAdapter

import forensics.records as records
from forensics.budget import Budget
from forensics.protocols import Channel, SamplingSettings
from forensics.records.evidence import Answer, EvidenceRow
from forensics.records.record import Record, VersionedRecord

ABSTRACT: Final = (Record, VersionedRecord, Answer)
NO_FILE: Final = "page"  # its records are drawn, never stored


def schemas() -> dict[str, dict[str, Any]]:
    """Each record's name and its schema; the abstract bases are left out."""
    names = [one.name for one in iter_modules(records.__path__) if one.name != NO_FILE]
    kinds = {
        kind.__name__: kind
        for name in names
        for kind in vars(import_module(f"{records.__name__}.{name}")).values()
        if isinstance(kind, type) and issubclass(kind, Record) and kind not in ABSTRACT
    }
    made = {name: kind.model_json_schema() for name, kind in kinds.items()}
    made["EvidenceRow"] = TypeAdapter(EvidenceRow).json_schema()
    for plain in (Budget, Channel, SamplingSettings):
        made[plain.__name__] = TypeAdapter(plain).json_schema() | {"additionalProperties": False}
    return dict(sorted(made.items()))
