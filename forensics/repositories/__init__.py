"""Repositories that an agent is given: copies in which nothing later than a commit is left,
and where the answer of a task lies.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.repositories.git import (
        GitFailed as GitFailed,
        Repository as Repository,
        open_repository as open_repository,
        run_git as run_git,
    )
    from forensics.repositories.leaks import (
        Hit as Hit,
        Leaks as Leaks,
        find_leaks as find_leaks,
    )
    from forensics.repositories.scrub import (
        Scrubbed as Scrubbed,
        scrub_repository as scrub_repository,
    )

__getattr__, __dir__ = lazy_names(__name__)
