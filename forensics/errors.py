"""What may go wrong, in three kinds.

`UserError` is bad input: one sentence with the value and the cure, exit code 2.
`MissingInput` is an instrument asking its case for something the case does not
have; the runner turns it into `Undefined`, never into a number. Anything else
is our own failure, exit code 3.
"""


class UserError(ValueError):
    """Bad input. The message is one sentence that says what is wrong and how to mend it."""


class MissingInput(Exception):
    """The case lacks what an instrument asked for.

    `reason` says what is missing, `cure` which measurement or input would
    supply it.
    """

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(f"{reason} {cure}")
        self.reason = reason
        self.cure = cure
