"""The peer of `benchmarks.scan`, run by the Python of a virtual environment of
its own: imports nothing of ours.

`scan_peer.py LOGS PATTERNS RESULTS PROCESSES`: all of `inspect_scout`'s
`grep_scanner`, labelled patterns over every message of every transcript,
results written as it writes them. `PATTERNS`: a file of expressions, or
`ordinary`: the words of the labelled example in its own documentation.
"""

import json
import sys
from pathlib import Path

ORDINARY = {
    "errors": ["error", "failed", "exception"],
    "warnings": ["warning", "caution"],
    "security": ["password", "secret", "token"],
}

if __name__ == "__main__":  # it starts processes of its own
    from inspect_ai.log import list_eval_logs, read_eval_log_sample_summaries
    from inspect_scout import grep_scanner, scan, transcripts_from

    logs, patterns, results, processes = sys.argv[1:]
    grep = (
        grep_scanner(ORDINARY)
        if patterns == "ordinary"
        else grep_scanner(
            json.loads(Path(patterns).read_text(encoding="utf-8")), regex=True, ignore_case=False
        )
    )
    status = scan(
        {"grep": grep},
        transcripts=transcripts_from(logs),
        scans=results,
        max_processes=int(processes),
        display="none",
    )
    if not status.complete:
        raise SystemExit(f"the peer did not finish: {[error.error for error in status.errors][:1]}")
    print(
        json.dumps(
            {
                "samples": sum(
                    len(read_eval_log_sample_summaries(log)) for log in list_eval_logs(logs)
                )
            }
        )
    )
