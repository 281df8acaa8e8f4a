"""The model that names latents, behind an OpenAI-compatible server. Light at import."""

from dataclasses import dataclass
from os import environ
from typing import Final

from forensics.errors import OutsideFailure, UserError

ANSWER: Final = 40  # tokens
PATIENCE: Final = 120.0  # seconds
KEY: Final = "OPENAI_API_KEY"


@dataclass(frozen=True, kw_only=True)
class LabelServer:
    """`url` ends in `/v1`. A key comes from the environment (`OPENAI_API_KEY`), kept nowhere."""

    url: str
    model: str

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UserError(
                f"--label-server is '{self.url}'; give the address of a server that speaks"
                " chat completions, such as http://127.0.0.1:8000/v1"
            )
        if not self.model:
            raise UserError("--label-server needs --label-model, the name that it serves")

    def ask(self, prompt: str) -> str:
        """What the model answers, greedily. Raises `OutsideFailure`."""
        import httpx

        key = environ.get(KEY)
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": ANSWER,
        }
        try:
            answer = httpx.post(
                self.url.rstrip("/") + "/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=PATIENCE,
            )
            answer.raise_for_status()
            return str(answer.json()["choices"][0]["message"]["content"] or "")
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            ValueError,
            LookupError,
            TypeError,
        ) as error:
            raise OutsideFailure(
                f"the server for labels at {self.url} gave no answer that can be read"
                f" ({type(error).__name__}); start it and go on with --resume"
            ) from error
