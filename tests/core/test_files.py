"""Files are whole or as they were, also on a disk that is nearly full."""

import os

import numpy as np
import pytest

from fedvine.core import files
from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.ledger import Ledger


def nearly_full(monkeypatch, taken):
    """Let the next write to a descriptor take ``taken`` bytes, and the one after it none."""
    write, calls = os.write, []

    def part(handle, content):
        calls.append(len(content))
        if len(calls) == 1:
            return write(handle, bytes(content)[:taken])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "write", part)


def test_a_line_that_does_not_fit_leaves_no_part_of_it(tmp_path, monkeypatch):
    file = tmp_path / "lines"
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    files.write_whole(handle, b"first\n")
    nearly_full(monkeypatch, 3)
    with pytest.raises(OSError, match="No space"):
        files.write_whole(handle, b"second\n")
    monkeypatch.undo()
    files.write_whole(handle, b"third\n")
    os.close(handle)
    assert file.read_bytes() == b"first\nthird\n"


def test_a_release_that_is_not_whole_on_disk_is_not_made(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "noise.jsonl", "ada", limit=8.0)
    ledger.key((0, 1, 1), "noise", b"a" * 16, 0.1)
    nearly_full(monkeypatch, 40)
    with pytest.raises(NotWritten, match="nothing with noise leaves"):
        ledger.key((0, 2, 1), "noise", b"b" * 16, 0.1)
    monkeypatch.undo()
    ledger.key((0, 3, 1), "noise", b"c" * 16, 0.1)
    again = Ledger(tmp_path / "noise.jsonl", "ada", limit=8.0)
    assert ledger.spent() == again.spent() == pytest.approx(0.2)


@pytest.mark.parametrize("write", [files.atomic, files.atomic_folder])
def test_what_is_no_file_or_folder_of_its_own_is_not_replaced(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/null") if write is files.atomic else (".", "a/.."):
        with pytest.raises(FedvineError, match="name a"), write(path):
            pass
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_a_file_name_stays_where_it_is():
    assert [files.file_name(name) for name in (".", "..", "a.b", "a/b")] == [
        "%2E", "%2E%2E", "a.b", "a%2Fb"]


def fill(path, text, fails=False):
    with files.atomic_folder(path) as folder:
        (folder / "a").write_text(text)
        if fails:
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_whole_or_stays(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    path = tmp_path / "kept"
    fill(path, "old")
    (path / "b").write_text("of the old one")
    with pytest.raises(NotWritten):
        fill(path, "broken", fails=True)
    assert (path / "a").read_text() == "old"
    fill(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert {p.name: p.read_text() for p in path.iterdir()} == {"a": "new"}


def test_a_folder_that_cannot_be_replaced_is_put_back(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    path, replace = tmp_path / "kept", os.replace
    fill(path, "old")

    def refuse(one, other):
        if str(one).endswith(".tmp"):
            raise OSError(5, "Input/output error")
        replace(one, other)

    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(NotWritten):
        fill(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert (path / "a").read_text() == "old"


@pytest.mark.parametrize("killed", [1, 2, 3])
@pytest.mark.parametrize("rows", [100, 30_000])
def test_a_killed_append_of_fewer_rows_leaves_a_file_that_opens(
        rows, killed, tmp_path, monkeypatch):
    """Rows of an append that nobody counts are longer than those that replace them."""
    file = tmp_path / "x.npy"
    np.save(file, np.arange(rows))
    files.append_rows(file, rows, np.arange(20))
    synced, fsync = [], os.fsync

    def dying(handle):
        fsync(handle)
        synced.append(handle)
        if len(synced) == killed:
            raise KeyboardInterrupt
    monkeypatch.setattr(os, "fsync", dying)
    with pytest.raises(KeyboardInterrupt):
        files.append_rows(file, rows, np.arange(5))
    monkeypatch.setattr(os, "fsync", fsync)
    assert (files.mapped(file)[:rows] == np.arange(rows)).all()
    files.append_rows(file, rows, np.arange(7))
    assert files.mapped(file)[rows:].tolist() == list(range(7))
