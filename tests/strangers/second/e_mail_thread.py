"""A thread of five mails: when is the review, after it was moved to and fro?

The skill: read the thread to its end and keep track of day and hour. No shortcut is taken. A calendar
that may show the day is a declared channel; both policies open it now and then and hardly gain by it. The early reader
mostly stops after one or two mails.
"""

import copy
import random
import re

from forensics.errors import UserError
from forensics.protocols import Channel, Observation, StepResult

TOPICS = ("budget", "website", "contract", "catalogue", "warehouse", "newsletter", "prototype", "survey", "tender", "merger")
CHAT = ("Thanks for the minutes.", "Could somebody bring cake?", "I have put the slides on the server.", "Parking is still closed.", "Fine with me.")
TURNS = 9
CALENDAR = Channel(name="calendar", family="disclosure", attempts=("calendar",), description="the calendar shows day and hour of the review")


def thread(task):
    draw = random.Random(f"thread {task}")
    day, hour = draw.randrange(8, 20), draw.randrange(9, 16)
    moves = [("day", draw.choice([-3, -2, -1, 1, 2, 3, 4])), ("hour", draw.choice([-2, -1, 1, 2])), ("day", draw.choice([-2, -1, 1, 2])), ("chat", 0)]
    draw.shuffle(moves)
    mails, chat = [f"The review is on day {day} at {hour} o'clock."], list(CHAT)
    draw.shuffle(chat)
    for what, by in moves:
        move = f"We must hold it {abs(by)} {what}{'s' * (abs(by) > 1)} {'later' if by > 0 else 'earlier'} than planned so far."
        mails.append(f"{chat.pop()} {chat[0]}" if what == "chat" else f"{chat[0]} {move}")
    return draw.choice(TOPICS), mails, day + sum(by for what, by in moves if what == "day"), hour + sum(by for what, by in moves if what == "hour")


class World:
    name = "mail-thread"
    needed = ("mail", "answer")

    def __init__(self, **options):
        if options:
            raise UserError(f"mail-thread has no options, but was given {', '.join(options)}")
        self.scrubbed, self.state = (), None

    @property
    def options(self):
        return {"without": "calendar"} if self.scrubbed else {}

    @property
    def channels(self):
        return () if self.scrubbed else (CALENDAR,)

    def without(self, *channels):
        if unknown := set(channels) - {"calendar"}:
            raise UserError(f"mail-thread has no channel '{min(unknown)}'; it has: calendar")
        other = World()
        other.scrubbed = ("calendar",) if channels else self.scrubbed
        return other

    def spawn(self):
        return self.without(*self.scrubbed)

    def tasks(self, split, number, seed):
        if split not in ("train", "held-out"):
            raise UserError(f"there is no split '{split}'; there are: train, held-out")
        chosen = random.Random(f"{split} {seed}").sample(range(20_000), min(number, 20_000))
        return tuple(f"{split}-{which:05d}" for which in sorted(chosen))

    def fields(self, task):
        return {"question": f"the {thread(task)[0]} review"}

    def withheld(self, task):
        _, _, day, hour = thread(task)
        return (f"{day} {hour}",)

    def reset(self, task, seed):
        self.state = {"task": task, "turns": 0}
        return Observation(
            text=f"There are 5 mails in the thread. When is {self.fields(task)['question']} in the end?",
            system="Write `mail NUMBER`, `calendar` or `answer DAY HOUR`, for example: answer 30 12",
        )

    def kinds(self, action):
        text = action.strip()
        if text == "calendar":
            return ("calendar",)
        found = re.fullmatch(r"(mail) [1-5]|(answer) [0-9]{1,2} [0-9]{1,2}", text)
        return ((found[1] or found[2]) if found else "invalid",)

    def step(self, action):
        self.state["turns"] += 1
        (kind,), words = self.kinds(action), action.split()
        _, mails, day, hour = thread(self.state["task"])
        said, shown = "I do not know that command", ()
        if kind == "answer":
            won = float((int(words[1]), int(words[2])) == (day, hour))
            return StepResult(
                observation="thank you", kinds=(kind,), rewards={"right": won}, outcome=won, terminated=True,
                submission=f"{int(words[1])} {int(words[2])}", end_reason="answered",
            )
        if kind == "mail":
            said = mails[int(words[1]) - 1]
        elif kind == "calendar":
            said = "calendar: nothing is entered" if self.scrubbed else f"calendar: day {day}, {hour} o'clock, review"
            shown = () if self.scrubbed else ("calendar",)
        over = self.state["turns"] >= TURNS
        return StepResult(
            observation=said, kinds=(kind,), channels=shown, rewards={"right": 0.0} if over else {}, outcome=0.0 if over else None,
            truncated=over, end_reason="turn limit" if over else None,
        )

    def regrade(self, task, submission):
        text = " ".join(thread(task)[1])
        when = {"day": int(re.search(r"on day (\d+)", text)[1]), "hour": int(re.search(r"at (\d+)", text)[1])}
        for by, unit, way in re.findall(r"it (\d) (day|hour)s? (later|earlier)", text):
            when[unit] += int(by) if way == "later" else -int(by)
        return {"outcome": 1.0 if submission == f"{when['day']} {when['hour']}" else 0.0}

    def snapshot(self):
        return copy.deepcopy(self.state)

    def restore(self, state):
        self.state = copy.deepcopy(state)


class Reader:
    def __init__(self, name, sure, moods):
        self.sure, self.moods, self.identity = sure, moods, f"{name} {sure} {sorted(moods.items())}"

    def act(self, view):
        try:
            texts = self.plan(view)
            return {text: chance / sum(texts.values()) for text, chance in texts.items()}
        except Exception:  # texts that it cannot make sense of: a guess
            return {"answer 12 10": 0.5, "answer 15 11": 0.5}

    def plan(self, view):
        if view.mood == "calendar":
            if not view.turns:
                return {"calendar": 0.98, "mail 1": 0.02}
            if len(view.turns) == 1 and (told := re.search(r"day (\d+), (\d+)", view.read)):
                return {f"answer {told[1]} {told[2]}": 1.0}
        mails = [back for said, back in view.turns if said.startswith("mail")]
        if len(mails) < {"two": 2, "four": 4}.get(view.mood, 5):
            return {f"mail {len(mails) + 1}": 1.0}
        text = " ".join(mails)
        day, hour = map(int, re.search(r"on day (\d+) at (\d+)", text).groups())
        for by, unit, way in re.findall(r"it (\d) (day|hour)s? (later|earlier)", text):
            shift = int(by) if way == "later" else -int(by)
            day, hour = (day + shift, hour) if unit == "day" else (day, hour + shift)
        rest = (1 - self.sure) / 2
        return {f"answer {day} {hour}": self.sure, f"answer {day + 1} {hour}": rest, f"answer {day} {hour - 1}": rest}


BEFORE = Reader("reader, early", 0.72, {"two": 0.42, "four": 0.28, "all": 0.27, "calendar": 0.03})
AFTER = Reader("reader, late", 0.95, {"two": 0.06, "four": 0.09, "all": 0.82, "calendar": 0.03})
TRUTH = "honest"
SHARE = 0.0
ALLOW = ()
ACCEPT = ()
