"""Write `tasks.jsonl`: the held-out tasks of `mini-repo` (how many: the first argument)."""

import json
import sys
from pathlib import Path

from training import MiniRepo

if __name__ == "__main__":
    names = MiniRepo().tasks("held-out", int(sys.argv[1]), 0)
    lines = "".join(json.dumps({"id": name}) + "\n" for name in names)
    Path(__file__).with_name("tasks.jsonl").write_text(lines)
