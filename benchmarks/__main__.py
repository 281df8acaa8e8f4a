"""Run every benchmark and print one JSON table: `python -m benchmarks [--device cuda] [NAME ...]`."""

import argparse
import json
import platform

from benchmarks import callback, demo, memory, recorder, rollout, scoring, trainer

ALL = {"rollout": rollout.run, "demo": demo.run, "memory": memory.run, "callback": callback.run, "trainer": trainer.run,
       "recorder": recorder.run, "scoring": scoring.run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ALL, []], help="which benchmarks (default: all)")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    rows = [ALL[name](device=arguments.device) for name in arguments.names or ALL]
    print(json.dumps({"machine": f"{platform.machine()}, Python {platform.python_version()}", "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
