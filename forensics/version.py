"""The version of the installed code, as evidence states it."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGE = "policy-forensics"


@cache
def code_version() -> str:
    """`policy-forensics X.Y.Z`, or `unknown` where the package is not installed."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return f"{PACKAGE} unknown"
