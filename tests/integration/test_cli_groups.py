"""Goal: the command line shows groups and sets them back, with honest exit statuses.
Method: the real command in its own process against a real daemon; output compared to the byte.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.daemon import V2
from tests.integration.test_cli_over_http import done, run

if TYPE_CHECKING:
    from tests.integration.daemon import Daemon

SETTINGS = {"offsets_topic_num_partitions": "3", "http_trusted_proxies": "127.0.0.0/8"}


def test_the_life_of_a_group(daemon: Daemon) -> None:
    daemon.create_topic("t", 2)
    daemon.produce_text("t", "a", "b", "c")
    end = sum(len(daemon.fetch_all("t", number)) for number in range(2))
    assert end == 3
    full = 0 if daemon.fetch_all("t", 0) else 1
    entry = {"topic": "t", "partition": full, "offset": 1}
    daemon.request("PUT", "/v1/groups/billing/offsets", {"offsets": [entry]})
    daemon.request("POST", "/consumers/billing", {"name": "c1"}, {"Content-Type": V2})
    path = "/consumers/billing/instances/c1"
    assigned = {"partitions": [{"topic": "t", "partition": full}]}
    assert daemon.request("POST", f"{path}/assignments", assigned).status == 204
    assert done(run(daemon, "groups", "list")) == (
        b"GROUP    STATE   MEMBERS\nbilling  Stable  1\n"
    )
    assert done(run(daemon, "groups", "describe", "billing")).decode() == (
        "TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID\n"
        f"t      {full}          1               3               2    c1\n"
    )
    refused = run(daemon, "groups", "delete", "billing")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"The group has 1 member. Delete" in refused.stderr
    daemon.request("DELETE", path)
    shown = run(daemon, "groups", "reset-offsets", "billing", "--to-latest")
    assert shown.returncode == 0
    assert shown.stderr == b"Nothing was changed; add --execute.\n"
    expected = f"TOPIC  PARTITION  OLD-OFFSET  NEW-OFFSET\nt      {full}          1           3\n"
    assert shown.stdout.decode() == expected
    words = ("groups", "reset-offsets", "billing", "--shift-by", "1", "--topic", "t", "--execute")
    partly = run(daemon, *words)
    assert partly.returncode == 3
    assert partly.stderr.decode() == f"Error: t-{1 - full}: t-{1 - full} has no commit to shift\n"
    found = json.loads(done(run(daemon, "groups", "describe", "billing", "--output", "json")))
    assert [each["offset"] for each in found["offsets"]] == [2]
    assert done(run(daemon, "groups", "delete", "billing")) == b"Deleted group billing.\n"
    assert run(daemon, "groups", "describe", "billing").returncode == 1


def test_what_a_reset_takes(daemon: Daemon) -> None:
    """Partitions, the default by its name; an offset that no log has is clipped and said."""
    daemon.create_topic("u", 2)
    daemon.request("POST", "/topics/u/partitions/0", {"records": [{"value": "YQ=="}] * 3})
    reset = ("groups", "reset-offsets", "g")
    nothing = run(daemon, *reset, "--to-latest", "--all-topics", "--dry-run")
    assert nothing.returncode == 1
    assert nothing.stderr == b"Error: Group g has no commit: name topics, --topic orders\n"
    above = run(daemon, *reset, "--to-offset", "9999", "--topic", "u:0", "--execute")
    assert done(above).decode().splitlines()[1:] == ["u      0          -           3"]
    assert above.stderr == b"Offset 9999 is above the end of u-0; 3 is taken\n"
    before = run(daemon, *reset, "--shift-by", "-5", "--dry-run")
    assert before.returncode == 0
    assert before.stderr.splitlines()[0] == b"Offset -2 is before the start of u-0; 0 is taken"
