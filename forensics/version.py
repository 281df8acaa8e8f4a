"""The version of the installed code, as evidence states it."""

import os
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from forensics.errors import UserError

PACKAGE = "policy-forensics"


@cache
def code_version() -> str:
    """`policy-forensics X.Y.Z`, or `unknown` where the package is not installed."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return f"{PACKAGE} unknown"


def today() -> str:
    """The day in UTC, `2026-11-29`; that of `SOURCE_DATE_EPOCH` (seconds since 1970) where it is
    set, so that the same case gives the same bytes. Raises `UserError` where that is no number.
    """
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds and not seconds.isdecimal():
        raise UserError(
            "SOURCE_DATE_EPOCH must be whole seconds since 1970; set it so, or unset it"
        )
    return time.strftime("%Y-%m-%d", time.gmtime(int(seconds) if seconds else None))
