"""Run every benchmark and print one JSON table: `python -m benchmarks [--device
cuda] [NAME ...]`.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

from benchmarks import (
    dictionaries,
    log_scoring,
    proxy,
    resampling_engine,
    rollout,
    scan,
    trainer,
)

ALL = {
    "rollout": rollout.run,
    "trainer": trainer.run,
    "engine": resampling_engine.run,
    "dictionaries": dictionaries.run,
    "log-scoring": log_scoring.run,
    "proxy": proxy.run,
    "scan": scan.run,
}
ON_CUDA = ("rollout", "trainer", "dictionaries", "log-scoring")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*ALL, []], help="which benchmarks (default: all that fit)"
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--dictionary-learning",
        type=Path,
        metavar="FOLDER",
        help=(
            "a copy of the repository of jkminder/dictionary_learning, whose own trainer"
            " `dictionaries` then runs too"
        ),
    )
    arguments = parser.parse_args()
    cuda = arguments.device.startswith("cuda")
    if cuda and not _has_cuda():
        print("error: there is no CUDA device here; run `make bench` for the CPU", file=sys.stderr)
        return 2
    rows = []
    for name in arguments.names or (ON_CUDA if cuda else ALL):
        print(f"{name} ...", file=sys.stderr, flush=True)
        peer = {"dictionary_learning": arguments.dictionary_learning}
        more = peer if name == "dictionaries" else {}
        rows.append(ALL[name](device=arguments.device, **more))
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, "rows": rows}, indent=2))
    return 0


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    sys.exit(main())
