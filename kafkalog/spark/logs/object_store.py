"""Log directories on an object store, read-only: backups and volumes that were copied there.

A path with a scheme (``s3://bucket/logs``, ``gs://``, ``abfs://``, ``hdfs://name-node/logs``) is
read through fsspec and the library of that store, which must be installed where tasks run. Host,
account and user come from the path; credentials and everything else from the configuration of
that library (environment, ``~/.config/fsspec``).

Differences from a disk: no daemon serves a directory there, so that a log ends with its last valid
batch. Objects are read in ranges, and after each read the store is asked which object has the name
now: an object that was replaced or removed during a read is an error.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import structlog

from kafkalog.env.backoff import Backoff
from kafkalog.env.clock import SystemClock
from kafkalog.env.filesystem import FileStat
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import ReadableFile, ReadFilesystem

T = TypeVar("T")

_log = structlog.get_logger(__name__)

_IDENTITIES = (
    *("generation", "VersionId", "version_id", "ETag", "etag"),
    *("mtime", "LastModified", "last_modified", "modificationTime", "created"),
)
"""Attributes that differ for another object of the same name and size; the best first."""


Identity = int | None
"""Of an object as a listing shows it, for comparisons in one process; None: not known."""

_NUMBERS: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    NotADirectoryError: errno.ENOTDIR,
    IsADirectoryError: errno.EISDIR,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
}


class StoreMissing(KafkalogError):
    """The library for a store is not installed, or the store cannot be reached."""


def scheme_of(path: str) -> str | None:
    """The scheme of a path on a store, in lower case; None: the path is on a disk."""
    scheme, found, _ = path.partition("://")
    return scheme.lower() if found and scheme.lower() != "file" else None


def shown(path: str) -> str:
    """A path for messages, logs and rows: without a password in its address."""
    scheme, found, rest = path.partition("://")
    host, slash, name = rest.partition("/")
    user, at, host = host.rpartition("@")
    if not (found and at):
        return path
    user, colon, _ = user.partition(":")
    return f"{scheme}://{user}{colon}{'***' * bool(colon)}@{host}{slash}{name}"


def _password_in(path: str) -> str:
    """The password as written in the address; empty: there is none."""
    _, _, rest = path.partition("://")
    return rest.partition("/")[0].rpartition("@")[0].partition(":")[2]


def _without(password: str, text: str) -> str:
    """A text of a library without the password, as it is in the address and decoded."""
    for each in {password, unquote(password)} - {""}:
        text = text.replace(each, "***")
    return text


_LASTING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors that another try does not mend."""


_REQUESTS = Backoff(tries=6, first_seconds=0.2, seconds_max=5.0)


class StoreFailed(OSError):
    """A request failed in each of its tries: nobody needs to repeat it soon."""


@dataclass(frozen=True, slots=True)
class RequestRetries:
    """How often a failed request is sent again."""

    backoff: Backoff = _REQUESTS
    clock: Clock = field(default_factory=SystemClock)

    def run(self, request: Callable[[], T], shown_path: str) -> T:
        """Raises StoreFailed, and at once an OSError that another try does not mend."""
        tries, random = 0, SystemRandom()
        while True:
            tries += 1
            try:
                return request()
            except OSError as error:
                if isinstance(error, _LASTING) or self.backoff.tries == 1:
                    raise
                what = error.strerror or str(error)
                if tries == self.backoff.tries:
                    raise StoreFailed(error.errno, what, error.filename) from error.__cause__
                seconds = self.backoff.pause_seconds(tries, random)
            _log.warning(
                "store_request_retried", path=shown_path, tries=tries, pause=seconds, error=what
            )
            self.clock.sleep(seconds)


ONE_TRY = RequestRetries(Backoff(tries=1))


def filesystem_for(paths: Iterable[str], retries: RequestRetries = ONE_TRY) -> ReadFilesystem:
    """The file system of these directories, a disk or a store. Raises StoreMissing."""
    addresses = list(paths)
    schemes = {scheme_of(each) for each in addresses}
    if schemes <= {None}:
        return SystemFilesystem()
    if len(schemes) > 1:
        names = ", ".join(sorted("a disk" if each is None else f"{each}://" for each in schemes))
        raise StoreMissing(f"All paths must be on one kind of place, not on {names}: run once each")
    return ObjectStore(addresses, retries)


def trimmed(path: str) -> str:
    """A path with a scheme, without final slashes. Raises StoreMissing for a scheme alone."""
    address = path.rstrip("/")
    if scheme_of(address) is None:  # the slashes were those of the scheme
        what = f"{shown(path)} names no directory: write it as {address}//bucket/logs"
        raise StoreMissing(what)
    return address


class StoredObject:
    """See ReadableFile: the object that had the name when it was opened."""

    def __init__(self, place: _Place) -> None:
        """OSError."""
        self._place = place
        self._info = place.info()

    @property
    def path(self) -> str:
        """See ReadableFile; for messages."""
        return self._place.shown

    def is_in(self, info: dict[str, Any]) -> bool:
        """Whether these attributes are of this object, by the best attribute that both have.

        A library may answer from a listing, which has fewer attributes.
        """
        if info.get("size") != self._info.get("size"):
            return False
        known = [name for name in _IDENTITIES if self._info.get(name) is not None]
        both = next((name for name in known if info.get(name) is not None), None)
        return not known if both is None else info[both] == self._info[both]

    def size(self) -> int:
        """The size when it was opened."""
        return int(self._info["size"] or 0)

    def pread(self, size: int, position: int) -> bytes:
        """See ReadableFile. FileNotFoundError when it was removed, OSError when it was replaced."""
        end = min(position + size, self.size())
        if end <= position:
            return b""
        data = self._place.read(position, end)
        # After the read: the bytes are of this object if it still has the name.
        if not self.is_in(self._place.info()):
            raise OSError(errno.ESTALE, "The object was replaced while it was read", self.path)
        if len(data) != end - position:
            what = (
                f"The store's library returned {len(data)} bytes for a range of {end - position}: "
                "it does not read ranges (for hdfs:// take fsspec 2026.7.0 or newer)"
            )
            raise OSError(errno.EIO, what, self.path)
        return data

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A path on a store: its address without and its password, the store, its name there.

    ``store`` is a file system of fsspec, whose names have no scheme, and often no host.
    All methods raise OSError.
    """

    shown: str
    password: str
    store: Any
    name: str
    retries: RequestRetries = ONE_TRY

    @classmethod
    def of(cls, address: str, retries: RequestRetries = ONE_TRY) -> _Place:
        """Raises StoreMissing. The library has one connection for all addresses of a store."""
        scheme = scheme_of(address)
        try:
            from fsspec.core import url_to_fs
            from fsspec.registry import get_filesystem_class

            get_filesystem_class(scheme)
        except ImportError as error:
            raise StoreMissing(
                f"Paths with {scheme}:// need fsspec and its library for that store (for example "
                f"pip install 'kafkalog[spark]' s3fs), on every machine that runs tasks: {error}"
            ) from error
        except ValueError as error:  # an unknown scheme
            raise StoreMissing(f"There is no store {scheme}://: {error}") from error
        try:
            store, name = url_to_fs(address)
        except Exception as error:  # each library has its own errors, without a common base
            password = _password_in(address)
            what = f"cannot be reached: {type(error).__name__}: {_without(password, str(error))}"
            failure = StoreMissing(f"The store of {shown(address)} {what}")
            if password:
                raise failure from None  # a traceback would show the text of the cause
            raise failure from error
        return cls(shown(address), _password_in(address), store, name, retries)

    def info(self) -> dict[str, Any]:
        """The attributes of the object that has the name now."""

        def found() -> dict[str, Any]:
            self.store.invalidate_cache()  # a cached listing would hide changes
            return dict(self.store.info(self.name))

        return self._requested(found)

    def list(self) -> list[dict[str, Any]]:
        """The attributes of everything in the directory."""

        def found() -> list[dict[str, Any]]:
            self.store.invalidate_cache()
            return list(self.store.ls(self.name, detail=True))

        return self._requested(found)

    def read(self, start: int | None = None, end: int | None = None) -> bytes:
        """A range, or everything."""
        return self._requested(lambda: bytes(self.store.cat_file(self.name, start=start, end=end)))

    def _requested(self, request: Callable[[], T]) -> T:
        def once() -> T:
            with _reaching(self):
                return request()

        return self.retries.run(once, self.shown)


class ObjectStore:
    """See ReadFilesystem: the stores of one scheme."""

    def __init__(self, addresses: Iterable[str], retries: RequestRetries = ONE_TRY) -> None:
        """``addresses``: paths to check. Raises StoreMissing if one cannot be reached."""
        self._retries = retries
        for each in addresses:
            _Place.of(each)

    def open_read(self, path: str) -> ReadableFile:
        """See ReadFilesystem."""
        return StoredObject(self._at(path))

    def exists(self, path: str) -> bool:
        """See ReadFilesystem."""
        try:
            self._at(path).info()
        except FileNotFoundError:
            return False
        return True

    def is_at(self, file: ReadableFile, path: str) -> bool:
        """See ReadFilesystem."""
        try:
            info = self._at(path).info()
        except FileNotFoundError:
            return False
        return isinstance(file, StoredObject) and file.is_in(info)

    def list_dir(self, path: str) -> list[str]:
        """See ReadFilesystem."""
        return [each.name for each in self.list_dir_stats(path)]

    def list_dir_stats(self, path: str) -> list[FileStat]:
        """See ReadFilesystem. NotADirectoryError for an object; FileNotFoundError for no prefix."""
        return [each for each, _ in self.list_dir_identities(path)]

    def list_dir_identities(self, path: str) -> list[tuple[FileStat, Identity]]:
        """The same, and which object each entry is."""
        place = self._at(path)
        entries, own = place.list(), place.name.rstrip("/")
        itself = [each for each in entries if each["name"].rstrip("/") == own]
        if any(each["type"] != "directory" and each["name"] == own for each in itself):
            raise NotADirectoryError(errno.ENOTDIR, "It is an object, no directory", shown(path))
        # Some stores show a directory in itself, as an empty object or as a directory.
        found = [each for each in entries if each not in itself]
        stats = [(_stat_of(each), _identity_of(each)) for each in found]
        return sorted(stats, key=lambda each: each[0].name)

    def stat(self, path: str) -> FileStat:
        """See ReadFilesystem."""
        return _stat_of(self._at(path).info())

    def read_file(self, path: str) -> bytes:
        """See ReadFilesystem."""
        return self._at(path).read()

    def read_part(self, path: str, position: int, size: int) -> bytes:
        """A part of whatever object has the name, with one request; shorter at its end."""
        return self._at(path).read(position, position + size)

    def _at(self, path: str) -> _Place:
        return _Place.of(path, self._retries)

    def is_locked(self, path: str) -> bool:
        """See ReadFilesystem: there are no locks."""
        del path
        return False

    def real_path(self, path: str) -> str:
        """See ReadFilesystem: there are no links."""
        return path.rstrip("/")


@contextmanager
def _reaching(place: _Place) -> Iterator[None]:
    """Errors of a store's library become OSErrors as of a disk, without the password."""
    try:
        yield
    except OSError as error:
        if not place.password:
            raise
        what = _without(place.password, error.strerror or str(error))
        number = error.errno  # some libraries only set the class
        if number is None:
            numbers = (each for kind, each in _NUMBERS.items() if isinstance(error, kind))
            number = next(numbers, errno.EIO)
        # Without the cause, which a traceback would show; OSError finds the subclass by the number.
        raise OSError(number, what, place.shown) from None
    except Exception as error:  # each library has its own errors, without a common base
        text = _without(place.password, str(error))
        what = f"The store failed: {type(error).__name__}: {text}"
        failure = OSError(errno.EIO, what, place.shown)
        if place.password:
            raise failure from None
        raise failure from error


def _identity_of(info: dict[str, Any]) -> Identity:
    """Another number for another object of the same name; None where the store has none."""
    for name in _IDENTITIES:
        value = info.get(name)
        if value is not None:
            return hash((name, str(value), info.get("size")))
    return None


def _stat_of(info: dict[str, Any]) -> FileStat:
    is_dir = info["type"] == "directory"
    name = str(info["name"]).rstrip("/").rpartition("/")[2]
    return FileStat(name, int(info.get("size") or 0), _mtime_ms(info), is_dir, not is_dir)


def _mtime_ms(info: dict[str, Any]) -> int:
    of_webhdfs = info.get("modificationTime")  # the only one in milliseconds
    if isinstance(of_webhdfs, int):
        return of_webhdfs
    for name in ("mtime", "LastModified", "last_modified", "created"):
        timestamp = info.get(name)
        if isinstance(timestamp, int | float):
            return int(timestamp * 1000)
        if timestamp is not None and hasattr(timestamp, "timestamp"):
            return int(timestamp.timestamp() * 1000)
    return 0
