"""Goal: what travels to Spark's workers says where a secret is, never what it is.
Method: the work of a job as it is pickled; files and variables that are there, change and are gone.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kafkalog.client.messages import Basic, Bearer
from kafkalog.spark.logs.daemon import client_of
from kafkalog.spark.logs.secrets import CredentialsAt, SecretByValue, SecretMissing, without_secrets
from kafkalog.spark.logs.values import Access

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "a-word-that-nobody-may-see"
URLS = ("http://127.0.0.1:1",)


def read_it(number: int, access: Access) -> str:
    assert isinstance(access.credentials, CredentialsAt)
    return f"{number} {access.credentials.read().authorization()}"


def test_work_travels_without_secrets_and_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setenv("KAFKALOG_TOKEN", SECRET)
    for at in (CredentialsAt(file=str(file)), CredentialsAt(variable="KAFKALOG_TOKEN")):
        work = partial(read_it, access=Access(urls=URLS, credentials=at))
        pickled = pickle.dumps(without_secrets(work))
        assert SECRET.encode() not in pickled
        assert pickle.loads(pickled)(7) == f"7 Bearer {SECRET}"
        client_of(work.keywords["access"], URLS[0]).close()


@pytest.mark.parametrize(
    "access",
    [
        Access(urls=URLS, credentials=Bearer(SECRET)),
        Access(urls=URLS, credentials=Basic("u", SECRET)),
        Access(paths=(f"sftp://u:{SECRET}@host/logs",)),
    ],
    ids=["token", "password", "address"],
)
def test_a_secret_by_value_is_refused(access: Access) -> None:
    with pytest.raises(SecretByValue, match="would stand in Spark's plan: give") as refused:
        without_secrets(partial(read_it, access=access))
    assert SECRET not in refused.value.message


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    missing = [
        (CredentialsAt(variable="NO_SUCH"), r"NO_SUCH is not set .*spark\.executorEnv\.NO_SUCH"),
        (CredentialsAt(file="/no/such"), "/no/such is not a readable text file on this machine"),
        (CredentialsAt(file=str(empty)), "has no secret in its first line"),
    ]
    for at, words in missing:
        with pytest.raises(SecretMissing, match=words):
            client_of(Access(urls=URLS, credentials=at), URLS[0])
