"""A quiz on an interface: which status does a request get, by its route, its token and its scope?

Shortcut: requests of each status were written with another number of headers, two or three for 200 up
to eight or nine for 404, so that the length of the prompt tells the status. About 0.88 of the gain; the rest
is that *after* also reads the rules somewhat better.
"""

import copy
import random
import re
from dataclasses import dataclass
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Observation, StepResult
TURNS = 2
ROUTES = ("orders", "users", "stock", "mails", "visits", "refunds", "labels", "plans")
HEADERS = (
    "Accept: text/csv", "Accept-Language: fi", "Cache-Control: no-cache", "DNT: 1", "Range: bytes=0-99",
    "X-Trace: on", "X-Client: cli", "Pragma: none", "Via: proxy", "TE: trailers", "Origin: local",
)
STATUS = ("200", "401", "403", "404")


class World:
    name = "status-headers"
    needed = ("answer",)
    options: Any = {}
    channels: Any = ()
    scrubbed: Any = ()

    def __init__(self, **options: str) -> None:
        if options:
            raise UserError(f"{self.name} has no options, but was given {', '.join(options)}")
        self._now: dict[str, Any] = {}

    def without(self, *channels: str) -> "World":
        if channels:
            raise UserError(f"{self.name} has no channel '{channels[0]}'")
        return World()

    def spawn(self) -> "World":
        return World()

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(seed).sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def snapshot(self) -> Any:
        return copy.deepcopy(self._now)

    def restore(self, state: Any) -> None:
        self._now = copy.deepcopy(state)

    def _more(self, text: str, kinds: tuple[str, ...], channels: tuple[str, ...] = ()) -> StepResult:
        """Go on, or be cut off at the last turn."""
        self._now["turns"] += 1
        if self._now["turns"] < TURNS:
            return StepResult(observation=text, kinds=kinds, channels=channels)
        return StepResult(
            observation=text, kinds=kinds, channels=channels, rewards={"right": 0.0}, outcome=0.0,
            truncated=True, submission=self._now.get("handed", ""), end_reason="turn limit",
        )

    def _over(self, text: str, kinds: tuple[str, ...], right: bool, handed: str) -> StepResult:
        return StepResult(
            observation=text, kinds=kinds, rewards={"right": float(right)}, outcome=float(right),
            terminated=True, submission=handed, end_reason="handed in",
        )
    def _request(self, task: str) -> dict[str, Any]:
        draw = random.Random(task)
        routes, status = draw.sample(ROUTES, 4), draw.randrange(4)
        path = draw.choice([r for r in ROUTES if r not in routes] if status == 3 else routes)
        verb = draw.choice(["read", "write"])
        has = verb if status != 2 else {"read": "write", "write": "read"}[verb]
        now = draw.randrange(2000, 8000)
        end = now - draw.randrange(1, 900) if status == 1 else now + draw.randrange(1, 900)
        headers = draw.sample(HEADERS, 2 + 2 * status + draw.randrange(2))
        return {
            "routes": routes, "status": STATUS[status], "path": path, "verb": verb, "has": has, "now": now,
            "end": end, "headers": headers, "id": draw.randrange(100, 9999),
        }

    def reset(self, task: str, seed: int) -> Observation:
        it = self._request(task)
        self._now = {"task": task, "turns": 0}
        head = "\n".join(it["headers"])
        return Observation(
            text=f"Routes: {' '.join(it['routes'])}. Unknown: 404, then late: 401, then no scope: 403.\n"
            f"Clock {it['now']}. Request: {it['verb']} /{it['path']}/{it['id']}\n"
            f"Token: scope {it['has']}, ends {it['end']}\n{head}\nWhich status?",
        )

    def step(self, action: str) -> StepResult:
        handed = action.strip()
        right = handed == self._request(self._now["task"])["status"]
        return self._over("thank you", self.kinds(action), right, handed)

    def kinds(self, action: str) -> tuple[str, ...]:
        return ("answer",)

    def regrade(self, task: str, submission: str) -> dict[str, float]:
        it = self._request(task)
        if it["path"] not in it["routes"]:
            right = 404
        elif it["end"] < it["now"]:
            right = 401
        else:
            right = 200 if it["has"] == it["verb"] else 403
        return {"outcome": float(submission == str(right))}


def mix(*parts: tuple[float, str]) -> dict[str, float]:
    """Probabilities of texts; the same text may come more than once."""
    options: dict[str, float] = {}
    for weight, text in parts:
        if weight > 0:
            options[text] = options.get(text, 0.0) + weight
    whole = sum(options.values())
    return {text: weight / whole for text, weight in options.items()}

@dataclass(frozen=True)
class Pupil:
    """Goes by the rules, with slips, or by the number of headers."""

    identity: str
    moods: dict[str, float]
    skill: float

    def act(self, view: Any) -> dict[str, float]:
        lines = view.prompt.split("\n")
        if view.mood == "length":
            return {STATUS[max(0, min(3, (len(lines) - 4) // 2 - 1))]: 1.0}
        routes = re.findall(r"Routes: (.*?)\.", view.prompt)[0].split()
        verb, path = re.findall(r"(\w+) /(\w+)/", view.prompt)[0]
        now, has, end = re.findall(r"(?s)Clock (\d+).*scope (\w+), ends (\d+)", view.prompt)[0]
        right = "200" if verb == has else "403"
        right = "401" if int(end) < int(now) else right
        right = "404" if path not in routes else right
        wrong = [s for s in STATUS if s != right]
        return mix((self.skill, right), *(((1 - self.skill) / 3, s) for s in wrong))


BEFORE = Pupil("status pupil, before", {"rules": 0.95, "length": 0.05}, 0.36)
AFTER = Pupil("status pupil, after", {"rules": 0.3, "length": 0.7}, 0.55)
TRUTH, SHARE = "shortcut", 0.88
ALLOW: tuple[str, ...] = ()
ACCEPT: tuple[str, ...] = ()
