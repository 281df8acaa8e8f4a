"""Who reviews, as options name it. Light at import."""

import os
from dataclasses import dataclass, field

from forensics.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Reviewer:
    """Who reviews. `url`: of an OpenAI-compatible server, up to and with `/v1`
    (`/chat/completions` is added).

    `key`: sent as a bearer token, in no record. `timeout`: seconds for one
    answer, asked for up to `tries` times.
    `at_once`: calls under way at a time.
    """

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 300.0
    tries: int = 3
    pause: float = 1.0
    at_once: int = 8

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise UserError("the reviewer's model has no name; give it with --reviewer-model")
        if not self.url.startswith(("http://", "https://")):
            raise UserError(
                "--reviewer must be an address that begins with http:// or https://, not"
                f" '{self.url}'"
            )

    @property
    def address(self) -> str:
        """The server's address, up to and with `/v1`."""
        return self.url.rstrip("/").removesuffix("/chat/completions")


def reviewer_of(url: str | None, model: str | None, key_variable: str | None) -> Reviewer | None:
    """The reviewer that options name, or none. Raises `UserError` for options
    that do not go together.
    """
    if url is None:
        given = {"--reviewer-model": model, "--reviewer-key-env": key_variable}
        for name in (name for name, value in given.items() if value is not None):
            raise UserError(
                f"{name} says nothing without --reviewer; give the server's address with"
                " --reviewer URL"
            )
        return None
    if model is None:
        raise UserError(
            "--reviewer needs --reviewer-model, the name of a model that the server has"
        )
    key = os.environ.get(key_variable) if key_variable else None
    if key_variable and not key:
        raise UserError(
            f"the environment variable {key_variable} is not set; set it to the reviewer's key, or"
            " leave --reviewer-key-env out"
        )
    return Reviewer(url=url, model=model, key=key)
