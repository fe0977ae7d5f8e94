"""Goal: variables and the files that they name are read as keys; what they cannot be is told.
Method: environments and files.
"""

from __future__ import annotations

import pytest

from kafkalog.errors import InvalidConfig
from kafkalog.settings import Settings, load_settings
from kafkalog.settings.settings import key_of_variable
from tests.unit.test_settings import load, messages


def test_variable_names_follow_kafkas_image() -> None:
    assert key_of_variable("LOG_RETENTION_MS") == "log.retention.ms"
    assert key_of_variable("A__B___C_D") == "a_b-c.d"


def test_prefixes_have_an_order_and_traps_are_ignored() -> None:
    env = {
        "KAFKA_CFG_NUM_PARTITIONS": "2",
        "KAFKA_BACKGROUND_THREADS": "3",
        "KAFKALOG_BACKGROUND_THREADS": "4",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_JMX_PORT": "9",
        "KAFKA_VERSION": "4.1.0",
        "KAFKALOG_KERNEL_CACHE": "/x",
        "KAFKALOG_URL": "http://10.0.0.1:8082",
        "KAFKALOG_USER": "alice",
        "KAFKALOG_PASSWORD_FILE": "/run/secrets/password",
        "KAFKALOG_TOKEN_FILE": "/run/secrets/token",
        "KAFKALOG_CA_FILE": "/etc/ca.pem",
        "KAFKALOG_CLIENT_CERT": "/etc/client.pem",
        "KAFKALOG_CLIENT_KEY": "/etc/client.key",
        "KAFKALOG_PORT": "tcp://10.0.0.1:8082",
        "KAFKALOG_PORT_8082_TCP_ADDR": "10.0.0.1",
        "KAFKALOG_SERVICE_HOST": "10.0.0.1",
        "KAFKALOG_SERVICE_PORT_HTTP": "8082",
        "KAFKALOG_HTTP_PORT": "tcp://10.0.0.1:80",
        "PATH": "/bin",
    }
    settings = load("", env)
    assert settings.broker.num_partitions == 2
    assert settings.broker.background_threads == 4
    assert settings.server.http_port == 8082
    assert settings.values["background.threads"].origin == "KAFKALOG_BACKGROUND_THREADS"
    assert "KAFKA_CFG_NUM_PARTITIONS" in messages(settings)
    assert "unknown" not in messages(settings)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKALOG_HTTPS_HOST_PORT", "https.host.port"),
        ("KAFKALOG_PORT", "port"),
        ("KAFKALOG_HTTP_SERVICE_LIMIT", "http.service.limit"),
    ],
)
def test_a_mistyped_variable_is_no_service(variable: str, key: str) -> None:
    assert f"unknown configuration key {key} (from {variable})" in messages(
        load("", {variable: "9000"})
    )
    service = variable.removesuffix("_PORT")
    beside = {variable: "9000", f"{service}_SERVICE_HOST": "10.0.0.1"}
    is_told = f"unknown configuration key {key} " in messages(load("", beside))
    assert is_told is (service == variable)


FILES = {
    "/run/secrets/hours": "7\n",
    "/run/secrets/issuer": "s3cret-canary\r\n",
    "/run/secrets/pattern": "(canary",
}


def load_with_files(**env: str) -> Settings:
    return load_settings(None, env, {}, FILES.__getitem__)


def test_a_variable_may_name_a_file_that_holds_its_value() -> None:
    """Mounted secrets need no text in the environment, and nobody sees them."""
    settings = load_with_files(
        KAFKA_LOG_RETENTION_HOURS_FILE="/run/secrets/hours",
        KAFKALOG_HTTP_JWT_ISSUER_FILE="/run/secrets/issuer",
    )
    assert settings.broker.topic_defaults.retention_ms == 7 * 3_600_000
    assert settings.server.http_jwt_issuer == "s3cret-canary"
    assert settings.effective == [
        "http.jwt.issuer=*** (environment KAFKALOG_HTTP_JWT_ISSUER_FILE)",
        "log.retention.hours=*** (environment KAFKA_LOG_RETENTION_HOURS_FILE)",
    ]
    described = {entry.name: entry for entry in settings.describe_broker_config()}
    assert described["http.jwt.issuer"].value is None
    assert "canary" not in repr(described)
    for key, variable, file in (
        ("num.partitions", "KAFKALOG_NUM_PARTITIONS_FILE", "issuer"),
        ("metrics.topic.include", "KAFKALOG_METRICS_TOPIC_INCLUDE_FILE", "pattern"),
    ):
        with pytest.raises(InvalidConfig) as refused:
            load_with_files(**{variable: f"/run/secrets/{file}"})
        assert key in refused.value.message
        assert "canary" not in f"{refused.value.message}{refused.value.details}"


def test_a_key_that_names_a_file_is_not_read() -> None:
    settings = load_settings(None, {"KAFKALOG_HTTP_ACL_FILE": "/etc/rules"}, {})
    assert settings.server.http_acl_file == "/etc/rules"
    assert settings.effective == ["http.acl.file=/etc/rules (environment KAFKALOG_HTTP_ACL_FILE)"]
    auth = {"KAFKALOG_HTTP_AUTH": "bearer", "KAFKALOG_HTTP_AUTH_FILE": "/run/secrets/hours"}
    assert load_with_files(**auth).server.http_auth_file == "/run/secrets/hours"
    with pytest.raises(InvalidConfig, match="both set"):
        load_with_files(
            KAFKALOG_LOG_RETENTION_HOURS="1", KAFKALOG_LOG_RETENTION_HOURS_FILE="/run/secrets/hours"
        )
    assert "unknown" in messages(load("", {"KAFKALOG_NO_SUCH_KEY_FILE": "/x"}))
