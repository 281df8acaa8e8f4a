"""Names of a package that are loaded when they are first used (PEP 562), so that
importing the package costs nothing.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package. `homes`: name to the module in
    the package that has it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return load, lambda: sorted(homes)
