"""The version of the installed code, as evidence states it."""

import os
import time
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


def today() -> str:
    """The day in UTC, `2026-11-29`; that of `SOURCE_DATE_EPOCH` where it is set, so that the same
    case gives the same bytes.
    """
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    return time.strftime("%Y-%m-%d", time.gmtime(float(seconds) if seconds else None))
