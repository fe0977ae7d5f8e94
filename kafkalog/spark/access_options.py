"""Where the logs are and who asks: the options that the source and the sink have in common.

Owns their names, and how files with secrets become the credentials of an `Access`. Files are read
where the query is planned, not where its tasks run: they travel with the tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.client.messages import Address, Basic, Bearer, Tls
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.spark.logs import Access
from kafkalog.spark.object_store import StoreMissing, scheme_of, trimmed
from kafkalog.spark.option_values import InvalidOption, wrong

if TYPE_CHECKING:
    from kafkalog.spark.option_values import OptionValues

ACCESS_OPTIONS = (
    "url",
    "path",
    "token",
    "tokenFile",
    "user",
    "passwordFile",
    "caFile",
    "clientCert",
    "clientKey",
)
_OF_DAEMONS = ACCESS_OPTIONS[2:]


def access_of(values: OptionValues, *, read_committed: bool = False) -> Access:
    """Raises InvalidOption, also for a file that cannot be read."""
    urls, paths = values.texts("url"), values.texts("path")
    if bool(urls) == bool(paths):
        raise InvalidOption(
            "Say where the logs are: either option url (http://host:port of a daemon) or option "
            "path (a log directory), several between commas"
        )
    if paths:
        for name in values.given(_OF_DAEMONS):
            raise InvalidOption(f"Option {name} is for daemons: it needs option url, not path")
        once = dict.fromkeys(_absolute(path).rstrip("/") or "/" for path in paths)
        return Access(paths=tuple(once), read_committed=read_committed)
    addresses: dict[Address, str] = {}
    for url in urls:
        addresses.setdefault(_address(url), url)
    tls = Tls(values.text("caFile"), values.text("clientCert"), values.text("clientKey"))
    return Access(
        urls=tuple(addresses.values()),
        credentials=_credentials(values),
        tls=None if tls == Tls() else tls,
        read_committed=read_committed,
    )


def _absolute(path: str) -> str:
    if scheme_of(path) is not None:
        try:
            return trimmed(path)
        except StoreMissing as error:
            raise wrong("path", path, "one with a bucket or host behind the scheme") from error
    plain = path.removeprefix("file://")
    if not plain.startswith("/"):
        raise wrong(
            "path",
            path,
            "an absolute path, the same on every machine of the cluster, or one with the scheme of "
            "an object store",
        )
    return plain


def _address(url: str) -> Address:
    try:
        return Address.of(url)
    except ValueError as error:
        raise wrong("url", url, "http://host:port or https://host:port") from error


def _credentials(values: OptionValues) -> Basic | Bearer | None:
    given = values.given(("token", "tokenFile", "user"))
    if len(given) > 1:
        raise InvalidOption(f"Options {' and '.join(given)} contradict each other: give one")
    user, password_file = values.text("user"), values.text("passwordFile")
    if (user is None) != (password_file is None):
        raise InvalidOption("Options user and passwordFile need each other")
    try:
        if user is not None and password_file is not None:
            return Basic(user, _secret("passwordFile", password_file))
        token = values.text("token")
        token_file = values.text("tokenFile")
        if token_file is not None:
            token = _secret("tokenFile", token_file)
        return None if token is None else Bearer(token)
    except ValueError as error:  # says nothing of the secret
        raise InvalidOption(f"Option {given[0]}: {error}") from error


def _secret(name: str, file: str) -> str:
    """The first line of a file."""
    try:
        lines = SystemFilesystem().read_file(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(name, file, "a file of text that can be read") from error
    if not lines or not lines[0]:
        raise wrong(name, file, "a file whose first line is the secret")
    return lines[0]
