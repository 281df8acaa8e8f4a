"""What a case compares: one subject before training, one for each training seed after it."""

from forensics.subjects.checkpoint import CheckpointSubject as CheckpointSubject
from forensics.subjects.given import inspect_subjects as inspect_subjects
from forensics.subjects.held import HeldPolicy as HeldPolicy, held_subjects as held_subjects
from forensics.subjects.logs import Logs as Logs
from forensics.subjects.served import ServedPolicy as ServedPolicy
from forensics.subjects.subject import (
    BEFORE as BEFORE,
    Role as Role,
    Subject as Subject,
    can as can,
    opened as opened,
)
