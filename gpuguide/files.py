"""Files that are whole or not there: written beside the old one and put in its place when complete."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuguide.errors import DataError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """
    A new path beside the given one; it takes its place when the block ends well, else the old file stays as it was.

    Raises
    ------
    DataError
        If the folder cannot be written, or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise _unwritable(path, error) from None
    partial = Path(name)
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        partial.unlink(missing_ok=True)


def read_text(path: Path, *, most_bytes: int = 10_000_000) -> str:
    """
    A text file, of which never more than so many bytes are read: a device has no end.

    Raises
    ------
    DataError
        If it has more.
    OSError, UnicodeDecodeError
        If it cannot be read, or is no UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise DataError(path.name, None, None, f"is larger than the {most_bytes / 1e6:g} MB that are read")
    return content.decode("utf-8-sig")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def digest_of(folder: Path, *, without: tuple[str, ...] = ("measurements",)) -> str:
    """
    Of the names and contents of all tables of a folder: equal on every machine that has the same data.

    Parameters
    ----------
    folder : Path
    without : tuple of str
        Folders inside it that no answer depends on.
    """
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.suffix in (".csv", ".json") and inner.parts[0] not in without:
            found.update(inner.as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def check_writable(path: Path) -> None:
    """
    Refuse before any work starts what could not be written after it.

    Raises
    ------
    DataError
        If the path is a folder, or its folder cannot be written.
    """
    if path.is_dir():
        raise DataError(str(path), None, None, "is a folder; give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        os.close(handle)
        Path(name).unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or error
    return DataError(str(path), None, None, f"cannot be written ({reason}); what was there is unchanged")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
