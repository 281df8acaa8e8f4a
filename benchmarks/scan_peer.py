"""The peer of `benchmarks.scan`, run by the Python of a virtual environment of
its own: imports nothing of ours.

`scan_peer.py LOGS RESULTS PROCESSES`: all of `inspect_scout`'s `grep_scanner`, the words
of the labelled example in its own documentation over every message of every transcript,
results written as it writes them.
"""

import sys

ORDINARY = {
    "errors": ["error", "failed", "exception"],
    "warnings": ["warning", "caution"],
    "security": ["password", "secret", "token"],
}

if __name__ == "__main__":  # it starts processes of its own
    from inspect_scout import grep_scanner, scan, transcripts_from

    logs, results, processes = sys.argv[1:]
    status = scan(
        {"grep": grep_scanner(ORDINARY)},
        transcripts=transcripts_from(logs),
        scans=results,
        max_processes=int(processes),
        display="none",
    )
    if not status.complete:
        raise SystemExit(f"the peer did not finish: {[error.error for error in status.errors][:1]}")
