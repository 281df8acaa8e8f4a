"""Options that several commands share. Light at import: defaults are written out, and a test holds them."""

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
Device = Annotated[str, typer.Option("--device", help="auto (CUDA where there is one), cpu, mps, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")]
EnvOptions = Annotated[
    list[str] | None,
    typer.Option("--env-option", metavar="K=V", help="An option of the environment; may be given again."),
]
Seed = Annotated[int, typer.Option("--seed", help="The root of every random stream.")]
Temperature = Annotated[float, typer.Option("--temperature", help="Sampling temperature; 0 is greedy.")]
TopK = Annotated[int, typer.Option("--top-k", help="Draw from the K likeliest tokens; 0 is off.")]
TopP = Annotated[float, typer.Option("--top-p", help="Draw from the likeliest tokens up to P; 1 is off.")]
TurnTokens = Annotated[int, typer.Option("--max-turn-tokens", help="Tokens an action may have.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", help="Tokens of an episode, the prompt included.")]
RepetitionPenalty = Annotated[
    float, typer.Option("--repetition-penalty", help="Divides the logits of tokens that the text has; 1 is off.")
]
PresencePenalty = Annotated[
    float, typer.Option("--presence-penalty", help="Taken from the logits of tokens that were drawn; 0 is off.")
]
FrequencyPenalty = Annotated[
    float, typer.Option("--frequency-penalty", help="The same for each time that one was drawn; 0 is off.")
]
