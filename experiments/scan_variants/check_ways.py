"""Play the ways of some files and print what each did: `python -m
experiments.scan_variants.check_ways FILE...`; with `--show ID` one of them whole.
"""

import argparse
from collections import Counter
from pathlib import Path

from experiments.scan_variants.ways import play, read_ways
from forensics.errors import UserError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--show")
    given = parser.parse_args()
    ways = read_ways(given.files)
    failed = False
    for way in ways:
        if given.show not in (None, way.id):
            continue
        try:
            played = play(way)
        except (UserError, OSError) as error:
            print(f"{way.id}: FAILED: {error}")
            failed = True
            continue
        print(f"{way.id}: {len(played.turns)} steps, patch of {len(played.patch)} characters")
        if given.show:
            for turn in played.turns:
                print(f"--- {turn.step.run or turn.step.edit or turn.step.create}")
                print(f"[{turn.exit_code}] {turn.output}")
            print(f"--- handed in\n{played.patch}")
    print(Counter((way.kind, way.expected) for way in ways))
    print(Counter((way.kind, way.language) for way in ways))
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
