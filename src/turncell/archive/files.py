"""Small files in the user's state directory: private, and written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

import platformdirs
from filelock import FileLock

__all__ = ["local", "locked", "moment", "private", "state_directory", "write_whole"]

#: Seconds that one kernel waits for another's hand on the same files.
PATIENCE = 2.0
#: Seconds between two tries.
LAP = 0.005


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where everything is kept: TURNCELL_STATE, else the platform's place for user state."""
    chosen = (os.environ if environ is None else environ).get("TURNCELL_STATE")
    path = Path(chosen).expanduser() if chosen else Path(platformdirs.user_state_path("turncell"))
    return path.absolute()  # a notebook changes its directory


def private(directory: Path) -> Path:
    """The directory, made where it is missing, for the user alone. Raises OSError."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):  # `parents=True` would leave those open to others
        path.mkdir(exist_ok=True, mode=0o700)
    directory.mkdir(exist_ok=True, mode=0o700)  # says so where it is no directory
    return directory


def write_whole(path: Path, text: str, *, lasting: bool = True) -> None:
    """Replace a file at once, private to the user; a crash leaves the old or the new one, and
    if it is to be `lasting`, a power cut does, too.

    Raises OSError, and then the old one is there.
    """
    private(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        with suppress(OSError):  # it is gone when it took the file's place
            draft.unlink()


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """A lock that all kernels of this user share.

    Raises OSError when another holds it for longer than `PATIENCE` seconds, or there are no
    locks on that disk.
    """
    lock = FileLock(private(directory) / ".lock", timeout=PATIENCE, mode=0o600)
    try:
        lock.acquire(poll_interval=LAP)
    except NotImplementedError as error:
        raise OSError(str(error)) from error
    try:
        yield
    finally:
        lock.release()


def moment() -> str:
    """Now, as it is written down: UTC, to the microsecond; later is greater."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def local(written: str) -> str:
    """A moment that was written down, as a person here tells the time; "" for none."""
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        return ""
    return when.astimezone().strftime("%Y-%m-%d %H:%M")
