"""The main job: from two checkpoints and a world, or from logs alone, to a
verdict in a case folder.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.investigation import folder as folder
    from forensics.investigation.concluded import (
        ablation_rows as ablation_rows,
        measure as measure,
    )
    from forensics.investigation.folder import (
        ABLATION as ABLATION,
        ANSWERS as ANSWERS,
        CASE as CASE,
        CASE_FILES as CASE_FILES,
        EVIDENCE as EVIDENCE,
        Location as Location,
        case_identities as case_identities,
        started_case as started_case,
    )
    from forensics.investigation.inputs import (
        CaseRequest as CaseRequest,
        Inputs as Inputs,
        build_environment as build_environment,
        check_case as check_case,
        check_inputs as check_inputs,
        choose_environment as choose_environment,
        read_task_list as read_task_list,
    )
    from forensics.investigation.run import (
        conclude as conclude,
        investigate as investigate,
        open_case as open_case,
        start_case as start_case,
    )
    from forensics.investigation.scan_run import scan as scan
    from forensics.investigation.served_draws import (
        LEAST_DELTA as LEAST_DELTA,
        TOLERATED as TOLERATED,
        Contexts as Contexts,
        Drawn as Drawn,
        DrawsConfig as DrawsConfig,
        check_server as check_server,
        drawn as drawn,
        sampled_runs as sampled_runs,
    )
    from forensics.investigation.stated_settings import (
        stated_run as stated_run,
        stated_sampling as stated_sampling,
    )

__getattr__, __dir__ = lazy_names(__name__)
