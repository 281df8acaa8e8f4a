"""What a case compares: one subject before training, one for each training seed after it."""

from forensics.subjects.given import inspect_subjects as inspect_subjects
from forensics.subjects.subject import (
    BEFORE as BEFORE,
    CheckpointSubject as CheckpointSubject,
    HeldPolicy as HeldPolicy,
    Logs as Logs,
    Role as Role,
    ServedPolicy as ServedPolicy,
    Subject as Subject,
    can as can,
    held_subjects as held_subjects,
    opened as opened,
)
