"""Goal: a client that a tool makes of our description works, without a line by hand.
Method: openapi-python-client, over the document that a running daemon serves, into a directory that
is thrown away; what it made asks that daemon.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.partition_world import split_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.daemon import Daemon

PACKAGE = "client_made_of_the_description"
GENERATOR = Path(sys.executable).with_name("openapi-python-client")
# Nothing is formatted (it is thrown away), and the one media type of ours is bytes.
CONFIG = """\
post_hooks: []
content_type_overrides:
  application/vnd.kafkalog.record-batches: application/octet-stream
"""


@pytest.fixture(scope="module")
def made(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The generated package, importable; the generator had nothing to leave out."""
    root = tmp_path_factory.mktemp("made")
    (root / "openapi.json").write_bytes(daemon.request("GET", "/openapi.json").body)
    (root / "config.yaml").write_text(CONFIG)
    arguments = ["--path", "openapi.json", "--meta", "none", "--config", "config.yaml"]
    run = subprocess.run(
        [GENERATOR, "generate", *arguments, "--output-path", PACKAGE],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "WARNING" not in run.stdout, run.stdout
    sys.path.insert(0, str(root))
    yield root
    sys.path.remove(str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture
def client(daemon: Daemon, made: Path) -> Iterator[Any]:
    module = importlib.import_module(f"{PACKAGE}.client")
    with module.Client(base_url=f"http://127.0.0.1:{daemon.port}") as one:
        yield one


def operation(tag: str, name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.api.{tag}.{name}").sync


def test_every_operation_has_a_function(daemon: Daemon, made: Path) -> None:
    modules = [path for path in (made / PACKAGE / "api").rglob("*.py") if path.stem != "__init__"]
    document = daemon.request("GET", "/openapi.json").json
    operations = [each for item in document["paths"].values() for each in item.values()]
    assert len(modules) == len(operations)
    for path in modules:
        importlib.import_module(".".join(path.relative_to(made).with_suffix("").parts))


def test_the_life_of_a_topic(client: Any) -> None:
    """Answers are typed; an error is the one shape, not an exception of the parser."""
    models = importlib.import_module(f"{PACKAGE}.models")
    (cluster,) = operation("clusters", "list_clusters")(client=client).data
    where = (cluster.cluster_id, "generated")
    wanted = models.V3Topic(topic_name="generated", partitions_count=2)
    topic = operation("topics", "create_topic")(where[0], client=client, body=wanted)
    assert (topic.kind, topic.partitions_count) == ("KafkaTopic", 2)
    records = [models.ProducedRecord(value={"n": n}, partition=0) for n in range(3)]
    body = models.ProduceRequest(records=records)
    receipts = operation("produce", "produce")("generated", client=client, body=body)
    assert [(each.partition, each.offset) for each in receipts.offsets] == [(0, 0), (0, 1), (0, 2)]
    page = operation("fetch", "fetch_records")(
        "generated", 0, client=client, offset=1, format_=models.FetchRecordsFormat.JSON
    )
    assert [(each.offset, each.value) for each in page] == [(1, {"n": 1}), (2, {"n": 2})]
    batches = operation("fetch", "fetch_batches")("generated", 0, client=client, offset=0)
    assert len(split_batches(batches.payload.read())) == 1
    deleted = operation("partitions", "delete_partition_records")(
        *where, 0, client=client, body=models.DeleteUntil(offset=2)
    )
    assert deleted.low_watermark == 2
    deletion = importlib.import_module(f"{PACKAGE}.api.topics.delete_topic")
    assert deletion.sync_detailed(*where, client=client).status_code == 204
    error = operation("topics", "get_topic")(*where, client=client)
    assert (error.error_code, error.retriable) == (40403, False)
