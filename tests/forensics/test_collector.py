"""Objects that were there before a batch are set apart for its time, and never for longer."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from forensics.policies.sequences import frozen_garbage


class _Knot:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def nothing_set_apart() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()


def test_old_garbage_waits_and_new_garbage_does_not() -> None:
    gc.collect()
    old = weakref.ref(_Knot())
    with frozen_garbage():
        new = weakref.ref(_Knot())
        gc.collect()
        assert old() is not None and new() is None
    gc.collect()
    assert old() is None and gc.get_freeze_count() == 0


def test_an_error_ends_it() -> None:
    with pytest.raises(ValueError, match="broken"), frozen_garbage():
        raise ValueError("broken")
    assert gc.get_freeze_count() == 0


def test_what_a_process_set_apart_by_itself_stays_apart() -> None:
    knot = _Knot()
    known = weakref.ref(knot)
    gc.freeze()
    try:
        del knot
        with frozen_garbage(), frozen_garbage():
            pass
        gc.collect()
        assert known() is not None
    finally:
        gc.unfreeze()
    gc.collect()
    assert known() is None
