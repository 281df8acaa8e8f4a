"""The command line: `forensics COMMAND`, and what a command of one's own uses."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.cli import options as options
    from forensics.cli.case_output import run_investigation as run_investigation
    from forensics.cli.console import (
        progress_bars as progress_bars,
        say as say,
        say_json as say_json,
        tell as tell,
        telling_of_loading as telling_of_loading,
    )
    from forensics.cli.main import SETTINGS as SETTINGS
    from forensics.cli.options import (
        After as After,
        Backend as Backend,
        Before as Before,
        Device as Device,
        EnvOptions as EnvOptions,
        Force as Force,
        Json as Json,
        OneAfter as OneAfter,
        PairWorld as PairWorld,
        RecordedTraining as RecordedTraining,
        Resume as Resume,
        Run as Run,
        RunsWorld as RunsWorld,
        Sampling as Sampling,
        Seed as Seed,
        ServerModel as ServerModel,
        TrainedTasks as TrainedTasks,
        Without as Without,
        parse_options as parse_options,
        study_command as study_command,
    )

__getattr__, __dir__ = lazy_names(__name__)
