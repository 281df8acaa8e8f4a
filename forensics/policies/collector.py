"""Python's garbage collector while a batch is decoded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def old_objects_apart() -> Iterator[None]:
    """Full collections within look at what was made within only.

    A process that has loaded torch and transformers holds hundreds of thousands
    of objects that never die; a batch of episodes makes enough new ones that
    the collector walks them all again, 0.2 s each time, about one batch of
    1,024 episodes in two. Nothing is kept for longer than the batch. Where the
    process has set objects apart by itself (`gc.freeze`, as servers do before
    they fork), it is left as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
