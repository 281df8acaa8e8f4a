"""The JSON Schema of everything that is written to a file or read from one."""

from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

import forensics.records as records
from forensics.budget import Budget
from forensics.protocols import Channel, SamplingSettings
from forensics.records import Record, VersionedRecord

ABSTRACT: Final = (Record, VersionedRecord)


def schemas() -> dict[str, dict[str, Any]]:
    """Each record's name and its schema; the abstract bases are left out."""
    public = {name: getattr(records, name) for name in records.__all__}
    kinds = {
        name: kind
        for name, kind in public.items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }
    concrete = {name: kind for name, kind in kinds.items() if kind not in ABSTRACT}
    made = {name: kind.model_json_schema() for name, kind in concrete.items()}
    made["Finding"] = TypeAdapter(records.Finding).json_schema()
    for plain in (Budget, Channel, SamplingSettings):
        made[plain.__name__] = TypeAdapter(plain).json_schema() | {"additionalProperties": False}
    return dict(sorted(made.items()))
