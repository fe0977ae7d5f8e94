"""Goal: the compaction page shows a real cleaner, and its forms do what they say and no more.
Method: a real daemon with a dirty log and no turn without an order; the page before and after them.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tests.integration.http_world import refused
from tests.integration.test_http_cleaner import contents, filled, settled
from tests.integration.test_http_console import BROWSER

if TYPE_CHECKING:
    from tests.integration.daemon import Answer, Daemon

SETTINGS = {"log_cleaner_backoff_ms": "600000"}  # nothing is cleaned without an order
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
PAGE = "/console/compaction"


def posted(daemon: Daemon, path: str, fields: dict[str, str]) -> Answer:
    """A form as the page sends it."""
    return daemon.request("POST", path, urlencode(fields).encode(), FORM)


def test_a_trial_and_a_clean(daemon: Daemon) -> None:
    """A trial tells what a clean then does, and the timeline has the clean alone."""
    filled(daemon, "tried")
    settled(daemon)
    before = contents(daemon, "tried")
    earlier = daemon.request("GET", f"{PAGE}.json").json["cleans"]
    (log,) = daemon.request("GET", f"{PAGE}.json?topic=tried").json["logs"]
    (described,) = daemon.request("GET", "/v1/cleaner?topic=tried").json["logs"]
    same = ("rank", "why_not", "cleanable_bytes", "cleanable_ratio", "first_dirty_offset")
    assert {name: log[name] for name in same} == {name: described[name] for name in same}
    html = daemon.request("GET", PAGE, None, BROWSER).body.decode()
    assert f'action="{PAGE}/try"' in html
    begun = posted(daemon, f"{PAGE}/try", {"topic": "tried", "partition": "0"})
    assert begun.status == 303, begun.body
    address = begun.headers["Location"]
    deadline = time.monotonic() + 60
    while "would be removed." not in (
        html := daemon.request("GET", address, None, BROWSER).body.decode()
    ):
        assert time.monotonic() < deadline, html
        time.sleep(0.02)  # a thread of another process
    trial = daemon.request("GET", address.replace(PAGE, f"{PAGE}.json")).json["trial"]
    assert contents(daemon, "tried") == before
    assert daemon.request("GET", f"{PAGE}.json").json["cleans"] == earlier
    run = daemon.request("POST", "/v1/topics/tried/partitions/0/log:clean", {}).json
    assert trial["result"]["records_after"] == run["records_after"]
    twin = daemon.request("GET", f"{PAGE}.json?topic=tried").json
    (clean,) = (each for each in twin["cleans"] if each["topic"] == "tried")
    assert (clean["outcome"], clean["bytes_after"]) == ("cleaned", run["bytes_after"])
    html = daemon.request("GET", PAGE, None, BROWSER).body.decode()
    assert len(set(re.findall(r'href="#(clean-\d+)"', html))) == len(earlier) + 1


def test_forms_that_are_not_ours(daemon: Daemon) -> None:
    """Nothing is begun by another origin, by half a form, or by what is no form."""
    whole = {"topic": "t-none", "partition": "0"}
    for path in (f"{PAGE}/try", f"{PAGE}/retry"):
        foreign = FORM | {"Sec-Fetch-Site": "cross-site"}
        body = urlencode(whole).encode()
        refused(daemon.request("POST", path, body, foreign), 403, 40301)
        refused(daemon.request("POST", path, whole, {}), 415, 415)
        refused(daemon.request("POST", path, b"topic=t&topic=t&partition=0", FORM), 400, 40002)
        refused(daemon.request("POST", path, b"topic=%ff&partition=0", FORM), 400, 40002)
        refused(daemon.request("POST", path, b"", FORM), 400, 40002)
        refused(posted(daemon, path, {"topic": "t-none"}), 400, 40002)
        refused(posted(daemon, path, whole | {"more": "1"}), 400, 40002)
        refused(posted(daemon, path, whole | {"partition": "-1"}), 400, 40002)
        refused(posted(daemon, path, whole), 404, 40401)
    refused(daemon.request("GET", f"{PAGE}.json?topic=t-none"), 404, 40401)
    refused(daemon.request("GET", f"{PAGE}.json?hours=25"), 400, 40005)
