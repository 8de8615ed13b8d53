"""Data that a file from somebody else names: opened only by a person's word.

An experiment file or a run folder may be handed over, and its ``[data]`` may name a database, to
which a password would be sent, or any file. What lies in the folder of the file, and data sets by
name, are opened. All else needs a word: the command line names it, or a person agrees. A word once
given is remembered in the user's own cache, as is the data of each run that is made: so a run's own
folder is asked without a question, and a copy of a folder from elsewhere is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedvine.core.errors import FedvineError, HandedOver
from fedvine.core.files import atomic, cache_folder
from fedvine.data.io.source import files, files_of_query, is_query
from fedvine.data.io.target import is_table

if TYPE_CHECKING:
    from fedvine.data.spec import Data

_TABLES = ("source", "edges", "users", "items")


def check(data: Data, file: Path, said: Collection[str] = ()) -> None:
    """Raise :class:`HandedOver` if ``file`` names data outside of its folder, without a word.

    ``said`` are the keys of ``data`` that the command line gave.
    """
    folder = file if file.is_dir() else file.absolute().parent
    found = list(dict.fromkeys(_outside(data, folder, said)))
    if found and not _place(data).exists():
        raise HandedOver(f"{file} names data outside of its folder: {', '.join(found)}; whoever "
                         "wrote it chose that file or host, which would get your password. If you "
                         "want it opened, give the command with --open-data, or name the data "
                         "on the command line.", partial(remember, data))


def remember(data: Data) -> None:
    """Remember that this user has opened these data; raise :class:`FedvineError` if it cannot."""
    if not data.dataset or data.folder or data.database or data.options:
        with atomic(_place(data), "w") as file:
            Path(file.name).chmod(0o600)
            file.write("\n".join(map(str, _named(data))))


def remember_run(data: Data) -> None:
    """Remember the data of a run that is made; where that cannot be written, it is asked for."""
    with contextlib.suppress(FedvineError):
        if not _place(data).exists():
            remember(data)


def remember_file(folder: Path, file: str) -> None:
    """Remember, where that can be written, that the run in ``folder`` wrote to ``file``."""
    with contextlib.suppress(FedvineError), atomic(_own(folder, file), "w") as made:
        made.write(file)


def is_own(folder: Path, file: str) -> bool:
    """Return whether a file lies in a run's folder, or this user's run there wrote to it."""
    inside = Path(file).resolve().is_relative_to(folder.resolve())
    return (inside and not is_table(file)) or _own(folder, file).exists()


def _own(folder: Path, file: str) -> Path:
    text = json.dumps([str(folder.resolve()), file])
    return cache_folder(shared=True) / "opened" / hashlib.sha256(text.encode()).hexdigest()


def _named(data: Data) -> list[object]:
    """Return all by which it is decided what is opened: places, links followed, and queries."""
    def real(value: str | None) -> str | None:
        return value if value is None or is_query(value) else str(Path(value).resolve())
    tables = [data.source if data.dataset else real(data.source),
              *(real(getattr(data, key)) for key in _TABLES[1:])]
    return [data.database, *tables, real(data.folder), data.options]


def _place(data: Data) -> Path:
    text = json.dumps(_named(data), sort_keys=True, default=str)
    return cache_folder(shared=True) / "opened" / hashlib.sha256(text.encode()).hexdigest()


def _outside(data: Data, folder: Path, said: Collection[str]) -> Iterator[str]:
    """Yield what of the data that are not ``said`` does not lie in the folder, links followed."""
    home = folder.resolve()
    if data.database and "database" not in said:
        file = data.database.removeprefix("sqlite:")
        if file == data.database or not Path(file).resolve().is_relative_to(home):
            yield data.database
    paths: list[str | Path] = []
    for key in _TABLES:
        value = getattr(data, key)
        if value is None or key in said or (key == "source" and data.dataset):
            continue
        with contextlib.suppress(FedvineError):     # opened, it says the same
            if not is_query(value):
                paths += [value, *files(value)]
            elif data.database is None:
                paths += files_of_query(value)
    paths += [] if data.folder is None or "folder" in said else [data.folder]
    if "options" not in said:
        paths += [text for text in _texts(data.options) if "/" in text or text.startswith("~")]
    for path in paths:
        if not Path(path).expanduser().resolve().is_relative_to(home):
            yield str(path)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
