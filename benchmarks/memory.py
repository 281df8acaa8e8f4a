"""Peak memory of an investigation against the number of its trajectories: it
must not grow with them.

The smallest size fills one batch of the decoder (256 tasks, 4 episodes each),
so what is compared is what grows beyond it. Each size runs in a process of its
own; what is compared is the peak resident memory.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIMIT = 1.15  # of the smallest case's peak, for eight times the trajectories

CHILD = """
import json, resource, sys
from pathlib import Path
from forensics import investigate
from forensics.case import Budget
from training import checkpoint_path
pair = checkpoint_path("bundled:capped-base"), checkpoint_path("bundled:leak")
investigate(*pair, out=Path(sys.argv[1]), budget=Budget(tasks=int(sys.argv[2])), seed=1)
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def run(device: str = "cpu", sizes: tuple[int, ...] = (256, 512, 1024, 2048)) -> dict[str, Any]:
    """Peak MiB by number of tasks (4 episodes a task, policy and world)."""
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            output = subprocess.run(
                [sys.executable, "-c", CHILD, str(Path(folder) / str(size)), str(size)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            peaks[size] = json.loads(output.splitlines()[-1])
    return {
        "benchmark": "peak memory (MiB) by tasks",
        "limit": LIMIT,
        "ratio": round(peaks[sizes[-1]] / peaks[sizes[0]], 3),
        "peaks": {str(size): round(peak) for size, peak in peaks.items()},
        "device": device,
    }
