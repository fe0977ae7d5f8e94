"""Goal: web pages of other origins read what they are allowed to, and nothing by default.
Method: the headers a browser sends, with and without configured origins and hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.access_world import RULES, access_settings, by
from tests.integration.daemon import Daemon
from tests.integration.http_world import check_sealed, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

ORIGIN = {"Origin": "https://page.example"}
ALLOW = "Access-Control-Allow-Origin"
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "POST"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root = tmp_path_factory.mktemp("opened")
    with Daemon(
        root,
        **access_settings(root, RULES),
        access_control_allow_origin="https://page.example, https://other.example",
        http_allowed_hosts="127.0.0.1,kafkalog.test",
    ) as daemon:
        yield daemon
        assert "Unhandled" not in daemon.log_path.read_text(), daemon.log_tail()


def test_nothing_without_configuration(daemon: Daemon) -> None:
    """Off by default."""
    answer = daemon.request("GET", "/topics", None, ORIGIN)
    assert ALLOW not in answer.headers
    refused(daemon.request("OPTIONS", "/topics", None, PREFLIGHT), 405, 405)


def test_a_rebound_name_opens_nothing(daemon: Daemon) -> None:
    """Goal: a page whose own name was made to point here (DNS rebinding) reads and changes nothing.
    Method: its requests, same-origin to its browser, at all APIs, the console and a stream.
    """
    daemon.create_topic("rebound")
    rebound = {"Host": "evil.example:8082"}
    own = {**rebound, "Origin": "http://evil.example:8082", "Sec-Fetch-Site": "same-origin"}
    for method, path in (
        ("GET", "/topics"),
        ("GET", "/v1/topics/rebound/partitions/0/records"),
        ("GET", "/v3/clusters"),
        ("GET", "/console/"),
        ("GET", "/openapi.json"),
        ("GET", "/nope"),
        ("GET", "/debug/config"),
        ("GET", "http://evil.example/topics"),
        ("POST", "/v1/topics/rebound/partitions/0/log:roll"),
        ("DELETE", "/v1/groups/rebound"),
        ("OPTIONS", "/topics"),
    ):
        headers = {} if path.startswith("http:") else own
        answer = daemon.request(method, path, None, headers)
        assert "http.allowed.hosts" in str(refused(answer, 421, 421)["message"]), path
    stream = {**own, "Accept": "text/event-stream"}
    path = "/v1/topics/rebound/partitions/0/records"
    assert daemon.request("GET", path, None, stream).status == 421
    for path in ("/livez", "/readyz", "/metrics"):
        assert daemon.request("GET", path, None, rebound).status == 200
    for host in ("localhost", "127.0.0.1:8082", "[::1]:8082", "kafkalog", "store.svc"):
        assert daemon.request("GET", "/topics", None, {"Host": host}).status == 200


def test_a_preflight_needs_no_credentials(opened: Daemon) -> None:
    """What a browser asks first is answered, to allowed origins alone."""
    answer = opened.request("OPTIONS", "/topics/t-1", None, PREFLIGHT)
    assert answer.status == 204
    assert answer.headers[ALLOW] == "https://page.example"
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
    check_sealed(answer)
    stranger = opened.request("OPTIONS", "/topics", None, {**PREFLIGHT, "Origin": "https://evil"})
    refused(stranger, 401, 40101)
    assert ALLOW not in stranger.headers
    refused(opened.request("OPTIONS", "/topics", None, ORIGIN), 401, 40101)


def test_answers_and_errors_say_who_may_read_them(opened: Daemon) -> None:
    """A page sees results and reasons; caches keep origins apart."""
    for headers, status in (({}, 401), (by("denied"), 403), (by("reader"), 404)):
        answer = opened.request("GET", "/topics/t-none", None, {**ORIGIN, **headers})
        assert answer.status == status
        assert answer.headers[ALLOW] == "https://page.example"
        assert answer.headers["Vary"] == "Origin"
        assert "Kafka-Next-Offset" in answer.headers["Access-Control-Expose-Headers"]
    other = opened.request("GET", "/livez", None, {"Origin": "https://page.example.evil"})
    assert ALLOW not in other.headers
    assert other.headers["Vary"] == "Origin"


def test_hosts_that_are_not_ours_are_refused(opened: Daemon) -> None:
    """A name that an attacker lets point here opens nothing."""
    for host in ("127.0.0.1", "127.0.0.1:80", "KAFKALOG.test:8082"):
        headers = {**by("reader"), "Host": host}
        assert opened.request("GET", "/topics/t-none", None, headers).status == 404
    for host in ("evil.example", "127.0.0.1.evil.example", "evil:127.0.0.1"):
        refused(opened.request("GET", "/topics", None, {"Host": host}), 421, 421)
    assert opened.request("GET", "/readyz", None, {"Host": "10.1.2.3"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        ORIGIN,
        {"Sec-Fetch-Site": "cross-site", **ORIGIN},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(daemon: Daemon, headers: dict[str, str]) -> None:
    """What a page may send without a preflight, with the user's credentials, does nothing."""
    plain = {"Content-Type": "text/plain"}
    topic = "crossed" + "".join(filter(str.isalpha, "".join(headers.values())))
    daemon.create_topic(topic)
    cluster = daemon.request("GET", "/v3/clusters").json["data"][0]["cluster_id"]
    asked = [
        ("POST", "/v1/records:delete", {"partitions": [{"topic": topic, "partition": 0}]}),
        ("POST", "/admin/topics", {"topic_name": f"{topic}-new", "partitions_count": 1}),
        ("POST", f"/v1/topics/{topic}/partitions/0/log:roll", {}),
        ("DELETE", f"/v3/clusters/{cluster}/topics/{topic}", None),
    ]
    for method, path, body in asked:
        refused(daemon.request(method, path, body, {**plain, **headers}), 403, 40301)
    assert daemon.request("GET", f"/topics/{topic}", None, headers).status == 200
    assert daemon.request("GET", f"/topics/{topic}-new").status == 404
    own = {"Origin": f"http://127.0.0.1:{daemon.port}"}
    for whose in ({}, own, {"Sec-Fetch-Site": "same-origin", **own}, {"Sec-Fetch-Site": "none"}):
        answer = daemon.request("POST", f"/v1/topics/{topic}/partitions/0/log:roll", {}, whose)
        assert answer.status == 200, answer.body


def test_a_page_that_is_named_may_ask(opened: Daemon) -> None:
    """Whoever may read answers may send what they answer."""
    site = {"Sec-Fetch-Site": "cross-site"}
    for origin, status in (("https://other.example", 200), ("https://evil.example", 403)):
        headers = {**by("writer"), **site, "Origin": origin}
        answer = opened.request("POST", "/topics/t-none", {"records": [{"value": 1}]}, headers)
        assert answer.status == status, answer.body
