"""Sources that cannot be opened: one sentence, and nothing left."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.io.read import from_frame, read

NAMED: dict[str, Any] = {"src": "user", "dst": "item", "time": "at"}


def refused(source: str | Path, cache: Path) -> str:
    with pytest.raises(FedvineError) as caught:
        read(source, **NAMED)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    assert list(cache.iterdir()) == []
    return message


def test_no_such_file(tmp_path, cache):
    assert refused(tmp_path / "t.csv", cache) == f"{tmp_path / 't.csv'} does not exist."
    assert refused(tmp_path, cache) == f"{tmp_path} is a folder without a CSV or Parquet file."


@pytest.mark.parametrize(("name", "content", "words"), [
    ("t.csv", b"", "is empty."),
    ("t.parquet", b"", "is empty."),
    ("t.csv", b"\n\n", "is empty."),
    ("t.csv.gz", gzip.compress(b""), "is empty."),
    ("t.csv", bytes(range(256)) * 20, "is not a readable CSV file."),
    ("t.csv.gz", b"\x1f\x8bnot gzip at all", "is not a readable CSV file."),
    ("t.csv.gz", gzip.compress(os.urandom(5000).hex().encode())[:900], "not a readable CSV file."),
    ("t.parquet", b"user,item,at\na,b,1\n", "is not a readable Parquet file."),
    ("t.parquet", b"PAR1 and then nonsense PAR1", "could not be read: "),
    ("t.csv", b"user,item,at\na,b,1\nc,d\n", "line 3 has 2 cells, and should have 3"),
    ("t.csv", b"user,item,at\na,b,1,9\n", "line 2 has 4 cells, and should have 3"),
    ("t.csv", b'user,item,at\na,"b,1\n', "Line: 2; Value with unterminated quote found."),
    ("t.csv", "user,item,at\né,b,1\n".encode("latin-1"), "is not in UTF-8; convert it first, for "
     "example with iconv -f latin1 -t utf8 old.csv > new.csv."),
], ids=["no bytes", "no bytes of Parquet", "blank lines", "gzip of nothing", "binary", "no gzip",
        "cut gzip", "CSV as Parquet", "garbage Parquet", "too few", "too many", "open quote",
        "latin"])
def test_not_a_table(tmp_path, cache, name, content, words):
    (tmp_path / name).write_bytes(content)
    message = refused(tmp_path / name, cache)
    assert words in message and message.startswith(str(tmp_path / name))


def test_no_permission(tmp_path, cache):
    path = tmp_path / "t.csv"
    path.write_text("user,item,at\na,b,1\n")
    path.chmod(0)
    root = os.geteuid() == 0            # root may read everything, so it is somebody else here
    if root:
        try:
            os.seteuid(65534)
        except OSError:
            pytest.skip("root of a namespace that knows nobody else")
    try:
        with pytest.raises(FedvineError, match=r"^.*t\.csv may not be read by you[.]$"):
            read(path, **NAMED)
    finally:
        if root:
            os.seteuid(0)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("query", "words"), [
    ("SELECT * FROM nope", "Table with name nope does not exist."),
    ("SELECT * FROM 'nothing.parquet'", "No files found"),
    ("SELECT FROM WHERE", "syntax error"),
    ("SELECT 'a' AS user; SELEC", "syntax error"),
    *((text, "one SELECT over files that it names") for text in (
        "COPY (SELECT 1) TO 'x.csv'", "ATTACH 'x.db' AS x; SELECT * FROM x.t",
        "ATTACH 'x.db'", "INSTALL httpfs", "LOAD httpfs", "PRAGMA version",
        "SELECT 1 AS user; SELECT 2 AS user", "WITH x AS (SELECT 1) INSERT INTO y FROM x",
        "SELECT 1; COPY (SELECT 1) TO 'x.csv'",
        "SELECT 1; SET enable_external_access = true")),
    *((f"SELECT * FROM {text}", "files that it names") for text in (
        "read_text('/etc/passwd')", "read_blob('/etc/passwd')", "glob('/etc/*')",
        "sniff_csv('/etc/passwd')", "'https://example.org/a.csv'",
        "read_csv('https://example.org/a.csv')", "'s3://bucket/a.parquet'",
        "query('FROM read_text(''/etc/passwd'')')", "duckdb_secrets()",
        "read_csv('/etc/' || 'passwd')", "READ_TEXT(['/etc/passwd'])",
        "(SELECT * FROM range(1) WHERE EXISTS (FROM read_text('/etc/passwd')))")),
    ("SELECT error('stop') AS user, 1 AS item, 1 AS at", "stop"),
    ("SELECT 1 AS user, 2 AS t", 'no column "item", no "at" (did you mean "t"?); it has user, t'),
    ("SELECT 1 AS user, NULL AS item, 3 AS at", 'in its row 1 (user "1", item "", at "3")'),
    ("SELECT 1 AS user, 2 AS item, 3 AS at WHERE false", "has no rows"),
])
def test_a_query_that_fails(cache, query, words):
    message = refused(query, cache)
    assert words in message and message.startswith("the query"), message


def test_not_a_frame(cache):
    with pytest.raises(FedvineError, match="A list is no table"):
        from_frame([{"user": 1}], **NAMED)
    assert list(cache.iterdir()) == []
