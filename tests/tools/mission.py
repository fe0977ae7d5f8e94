"""Print the mechanisms of docs/mission.md with the tests that ran and passed for each.

Reads build/mission.jsonl (MISSION_RESULTS names another), which tests/conftest.py appends to at
the end of every test session. A row counts only when one of its tests ran and passed and none
failed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (M\d\d) \| (.+) \|$")


def rows() -> dict[str, str]:
    lines = (ROOT / "docs" / "mission.md").read_text(encoding="utf-8").splitlines()
    return {match[1]: match[2] for line in lines if (match := ROW.match(line))}


def outcomes() -> dict[str, dict[str, str]]:
    """Mechanism -> test -> its newest outcome."""
    found: dict[str, dict[str, str]] = {}
    log = Path(os.environ.get("MISSION_RESULTS", ROOT / "build" / "mission.jsonl"))
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            for mechanism in entry["mechanisms"]:
                found.setdefault(mechanism, {})[entry["test"]] = entry["outcome"]
    return found


def main() -> int:
    """Print one line a mechanism, its tests below it."""
    seen = outcomes()
    covered = 0
    for number, text in rows().items():
        tests = seen.get(number, {})
        passed = sorted(test for test, outcome in tests.items() if outcome == "passed")
        failed = sorted(test for test, outcome in tests.items() if outcome == "failed")
        covered += bool(passed) and not failed
        mark = "FAILED" if failed else ("ok" if passed else "-")
        print(f"{number} {mark:6} {text[:100]}")
        for test in [*failed, *passed]:
            print(f"      {test}")
    print(f"mission: {covered} of {len(rows())} mechanisms have a test that ran and passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
