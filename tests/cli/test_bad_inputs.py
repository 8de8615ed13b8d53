"""Wrong tables, commands and experiments: one sentence that names the culprit, nothing changed."""

import contextlib
import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from wrong import COLUMNS, GOOD, TABLE, TINY, fedvine, is_sentence, refused

import fedvine as fedvine_package


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a good table in it, as working directory."""
    (tmp_path / "good.csv").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLES = {
    "empty file": ("", "bad.csv", "empty"), "header only": ("who,what,at,where\n", "no rows"),
    "source column missing": (GOOD.replace("who", "whom"), '"who"', 'did you mean "whom"?'),
    "time column missing": (GOOD.replace(",at,", ",att,"), '"at"', 'did you mean "att"?'),
    "client column missing": (GOOD.replace("where", "were"), '"where"', 'did you mean "were"?'),
    "column named twice": (GOOD.replace("what", "who", 1), '2 columns named "who"'),
    "impossible time": (GOOD + "u1,i1,yesterday,a\n", '"yesterday"', "row 61", '"at"'),
    "impossible date": (GOOD.replace("1000", "2013-02-30"), '"2013-02-30"', "row 1"),
    "no time": (GOOD + "u1,i1,,a\n", '"at"', "row 61"),
    "time is NaN": (GOOD + "u1,i1,nan,a\n", '"nan"', "row 61"),
    "time is infinite": (GOOD + "u1,i1,inf,a\n", '"inf"', "row 61"),
    "time is too large": (GOOD + "u1,i1,99999999999999999999,a\n", "row 61", "no time"),
    "no user": (GOOD + ",i1,1000,a\n", '"who"', "row 61"),
    "no item": (GOOD + "u1,,1000,a\n", '"what"', "row 61"),
    "no client": (GOOD + "u1,i1,1000,\n", '"where"', "row 61"),
    "too many fields": (GOOD + "u1,i1,1000,a,b\n", "line 62 has 5 cells", "should have 4"),
    "too few fields": (GOOD + "u1,i1\n", "line 62 has 2 cells", "should have 4"),
    "open quote": (GOOD + '"u1,i1,1000,a\n', "Line: 62", "quote")}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table(here, name):
    text, *words = TABLES[name]
    (here / "bad.csv").write_text(text)
    refused(["run", "fedlink", "--data", "bad.csv", *COLUMNS, *TINY], "bad.csv", *words)


@pytest.mark.parametrize("value", ["nan", "inf", "", "heavy"])
def test_a_weight_that_is_no_number(here, value):
    rows = [f"{row},1.5" for row in GOOD.splitlines()[1:]]
    rows[7] = rows[7].removesuffix("1.5") + value
    (here / "bad.csv").write_text("\n".join(["who,what,at,where,w", *rows, ""]))
    refused(["run", "edgebank", "--data", "bad.csv", *COLUMNS, "--set", "data.weight=w"],
            "bad.csv", '"w"', "row 8")


FILES = {
    "binary.csv": bytes(range(256)) * 40, "latin.csv": GOOD.replace("u1", "é").encode("latin-1"),
    "garbage.parquet": b"PAR1 nothing of the kind PAR1", "text.parquet": GOOD.encode(),
    "cut.parquet": b"PAR1", "empty.parquet": b"", "binary.parquet": bytes(range(256)) * 40,
    "cut.csv.gz": gzip.compress(GOOD.encode(), mtime=0)[:60], "fake.csv.gz": b"\x1f\x8bnot gzip"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_table(here, name):
    (here / name).write_bytes(FILES[name])
    refused(["run", "edgebank", "--data", name, *COLUMNS], name)


def test_a_parquet_file_that_is_cut_short(here):
    import duckdb
    duckdb.sql(f"COPY (SELECT * FROM '{here / 'good.csv'}') TO '{here / 'p.parquet'}'")
    whole = (here / "p.parquet").read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 5):
        (here / "p.parquet").write_bytes(whole[:size])
        refused(["run", "edgebank", "--data", "p.parquet", *COLUMNS], "p.parquet")


COMMANDS = {
    "no such file": (["--data", "nothing.csv", *COLUMNS], "nothing.csv does not exist"),
    "a folder": (["--data", "..", *COLUMNS], "is a folder without a CSV or Parquet"),
    "a pattern": (["--data", "*.parquet", *COLUMNS], "*.parquet", "fits it as a pattern"),
    "a store": ([*TABLE, "--set", "data.options.store=x"], "data.options.store"),
    "SQL that writes": (["--data", "COPY (SELECT 1) TO 'x.csv'", *COLUMNS], "one SELECT"),
    "below a file": (["--data", "good.csv/x.csv", *COLUMNS], "good.csv/x.csv", "Not a directory"),
    "nobody's home": (["--data", "~nobody-at-all/x.csv", *COLUMNS], "~nobody-at-all/x.csv"),
    "name too long": (["--data", "x" * 260], "xxx"), "no name": (["--data", ""], '""'),
    "data set misspelt": (["--data", "flihgts"], '"flihgts"', 'did you mean "flights"?'),
    "no data": ([], "--data"), "bad SQL": (["--data", "SELECT FROM WHERE", *COLUMNS], "syntax"),
    "SQL on two lines": (["--data", "SELECT *\nFROM nope", *COLUMNS], "the query", "nope"),
    "SQL in a comment": (["--data", "-- all\nSELECT 1", *COLUMNS], "-- all SELECT 1"),
    "SQL without its file": (["--data", "SELECT * FROM 'none.csv'", *COLUMNS], "none.csv"),
    "columns of a data set": (["--data", "flights", "--src", "tailnum"], "flights", "src"),
    "columns not said": (["--data", "good.csv"], '"src"', "--src"),
    "one column twice": (["--data", "good.csv", "--src", "who", "--dst", "who"], "src and dst"),
    "folder of a table": ([*TABLE, "--set", "data.folder=x"], "good.csv", "folder"),
    "unknown option of read": ([*TABLE, "--set", "data.options.sorted=true"], '"sorted"'),
    "option given already": ([*TABLE, "--set", "data.options.source=x"], '"source"'),
    "features by number": ([*TABLE, "--set", "data.options.features=3"], "features is 3"),
    "bipartite by word": ([*TABLE, "--set", "data.options.bipartite='no'"], "bipartite is 'no'"),
    "memory by word": ([*TABLE, "--set", "data.options.memory_limit=lots"], '"lots"'),
    "method key": ([*TABLE, "--set", "method.capcity=3"], "method.capcity", '"method.capacity"?'),
    "data key": ([*TABLE, "--set", "data.wieght=w"], "data.wieght", '"data.weight"?'),
    "split key": ([*TABLE, "--set", "split.seeed=1"], "split.seeed", '"split.seed"?'),
    "protocol key": ([*TABLE, "--set", "protocol.negatves=1"], '"protocol.negatives"?'),
    "key without its table": ([*TABLE, "--set", "rounds=3"], '"rounds"', '"method.rounds"?'),
    "a method's key": ([*TABLE, "--set", "capacity=3"], '"method.capacity"?'),
    "a split's key": ([*TABLE, "--set", "by=hash"], '"split.by"?'),
    "protocol's key": ([*TABLE, "--set", "historical=true"], '"protocol.historical"?'),
    "time format of none": ([*TABLE, "--time-format", "%Q"], '"%Q"', "%d.%m.%Y"),
    "another time format": ([*TABLE, "--time-format", "%d.%m.%Y"], '"1000"', "row 1", "%d.%m.%Y"),
    "bipartite perhaps": ([*TABLE, "--bipartite", "perhaps"], "data.bipartite is 'perhaps'"),
    "bipartite data set": (["--data", "flights", "--bipartite", "no"], "leave out bipartite"),
    "both": ([*TABLE, "--bipartite", "yes", "--undirected"], "leave out bipartite or undirected"),
    "top key": ([*TABLE, "--set", "metod.rounds=3"], '"metod"', 'did you mean "method"?'),
    "text for a number": ([*TABLE, "--set", "method.rounds=many"], "method.rounds is 'many'"),
    "number for a table": ([*TABLE, "--set", "split=3"], "split is 3"),
    "table for a number": ([*TABLE, "--set", "seed.x=1"], "seed is {'x': 1}"),
    "negative": ([*TABLE, "--set", "method.capacity=-1"], "method.capacity is -1"),
    "zero": ([*TABLE, "--set", "method.steps=0"], "method.steps is 0"),
    "half a round": ([*TABLE, "--set", "method.rounds=1.5"], "method.rounds is 1.5"),
    "rate without end": ([*TABLE, "--set", "method.learning_rate=inf"],
                         "method.learning_rate is inf"),
    "rate is NaN": ([*TABLE, "--set", "method.learning_rate=nan"], "method.learning_rate is nan"),
    "share too large": ([*TABLE, "--set", "method.masked=1.0"], "method.masked is 1.0"),
    "quorum too large": ([*TABLE, "--set", "quorum=1.5"], "quorum is 1.5"),
    "no such choice": ([*TABLE, "--set", "method.optimizer=adm"], "method.optimizer is 'adm'"),
    "no such device": ([*TABLE, "--set", "device=gpuu"], "gpuu"),
    "width beyond memory": ([*TABLE, "--set", f"method.width={10 ** 30}"], "width=1000"),
    "no negatives": ([*TABLE, "--set", "protocol.negatives=0"], "protocol.negatives is 0"),
    "fewer negatives": ([*TABLE, "--set", "protocol.negatives=-1"], "protocol.negatives is -1"),
    "hits at none": ([*TABLE, "--set", "protocol.k=0"], "protocol.k is 0"),
    "no equals sign": ([*TABLE, "--set", "method.rounds"], '"method.rounds"', "KEY=VALUE"),
    "no key": ([*TABLE, "--set", "=3"], '"=3"'), "hole": ([*TABLE, "--set", "a..b=3"], '"a..b=3"'),
    "no duration": ([*TABLE, "--stages", "ten days"], "'ten days'"),
    "empty duration": ([*TABLE, "--stages", ""], "''"), "squared": ([*TABLE, "--stages", "²"], "²"),
    "negative duration": ([*TABLE, "--stages", "-5"], "'-5'"),
    "stages of nothing": ([*TABLE, "--stages", "0d"], "'0d'"),
    "stages of no edges": ([*TABLE, "--stages", "0"], "stages is 0"),
    "too many stages": ([*TABLE, "--stages", "0.0001s"], "0.0001s", "million"),
    "stages longer than all": ([*TABLE, "--stages", "61"], "61", "60"),
    "unknown split": ([*TABLE, "--split", "wheer"], '"wheer"', 'did you mean "where"?'),
    "more clients than items": ([*TABLE, "--split", "hash", "--k", "99"], "99", "3 items"),
    "no clients": ([*TABLE, "--split", "hash", "--k", "0"], "split.k is 0"),
    "clients of a column": ([*TABLE, "--k", "4"], "good", 'its column "where"', "leave them out"),
    "a seed of a column": ([*TABLE, "--set", "split.seed=4"], 'its column "where"', "split.seed"),
    "tasks of links": ([*TABLE, "--set", "tasks.labels=0.5"], "labelled graphs", "leave it out"),
    "a stage that is true": ([*TABLE, "--set", "stages=true"], "stages is True"),
    "open quote": ([*TABLE, "--clients", '"a,b'], "no list of names", "in double quotes"),
    "a stage by word": ([*TABLE, "--stages", "foo"], "'foo'", "500 without a point", "of edges"),
    "no whole stage": ([*TABLE, "--stages", "7000", "--open"], "a whole stage of 7,000 edges yet"),
    "unknown client": ([*TABLE, "--clients", "a,c"], '"c"'),
    "clients of no name": ([*TABLE, "--clients", ""], 'no client ""'),
    "negative seed": ([*TABLE, "--seed", "-1"], "seed is -1"),
    "no threads": ([*TABLE, "--threads", "0"], "threads is 0"),
    "threads without end": ([*TABLE, "--threads", str(2 ** 40)], "threads is 1099511627776"),
    "text for k": ([*TABLE, "--k", "five"], "--k"),
    "no such option": ([*TABLE, "--sed=1"], "--sed"),
    "out is a file": ([*TABLE, "--out", "good.csv"], "good.csv"),
    "out below a file": ([*TABLE, "--out", "good.csv/x"], "good.csv cannot be used"),
    "out too long": ([*TABLE, "--out", "x" * 260], "xxx", "too long"),
    "json is a folder": ([*TABLE, "--json", "."], "--json")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_command(name):
    arguments, *words = COMMANDS[name]
    refused(["run", "fedlink", *arguments], *words)


@pytest.mark.parametrize(("arguments", "words"), [
    (["run", "fedlnk", *TABLE], ('"fedlnk"', 'did you mean "fedlink"?')),
    (["show", "fedlnk"], ('"fedlnk"', 'did you mean "fedlink"?')), (["rnu"], ("rnu", "'run'")),
    (["run"], ("METHOD",)), (["show", "."], (". is not a run folder",)),
    (["predict", "nowhere", "--all", "--out", "x.csv"], ("nowhere is not a run folder",)),
    (["predict", "good.csv", "--all", "--out", "x.csv"], ("good.csv is not a run folder",)),
], ids=["method", "shown", "command", "nothing", "no run", "run nowhere", "run is a file"])
def test_a_name_that_nothing_has(arguments, words):
    refused(arguments, *words)


@pytest.mark.parametrize(("option", "file", "other"), [("--plot", "x.gif", "x.png"),
                                                       ("--table", "x.xlsx", "x.tex")])
def test_a_file_of_another_kind_is_refused_before_anything_is_run(option, file, other):
    refused(["reproduce", "fedlink-figure2", option, file], file, f"{other} with {option}")


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_a_folder_in_place_of_a_file_is_refused_before_anything_is_run(option, here):
    (here / "place").mkdir()
    refused(["compare", "popularity", *TABLE, option, "place"], "place is a folder; name a file")


def test_an_experiment_with_a_method_that_is_not_here_says_how_it_gets_here(here):
    (here / "e.toml").write_text("data='good.csv'\n[method]\nname='mine'\nfile_digest='ab12'\n")
    refused(["run", "e.toml"], '"mine"', "once to fedvine show FILE.py")


BASE = "method='fedlink'\ndata='good.csv'\n"
EXPERIMENTS = {
    "not TOML": ("method = ", "is not TOML"), "nothing": ("", '"data"'), "a key twice": (
        "seed=1\nseed=2\n" + BASE, "line 2"), "not UTF-8": (b"method='\xe9'", "utf-8"),
    "no method": ("data='good.csv'", '"method"'), "no data": ("method='fedlink'", '"data"'),
    "method without a name": ("data='good.csv'\n[method]\nrounds=1", '"method.name"'),
    "unknown key": ("sead=1\n" + BASE, '"sead"', 'did you mean "seed"?'),
    "data key": ("method='fedlink'\n[data]\nsource='good.csv'\nsrcs='who'", '"data.src"?'),
    "split key": (BASE + "[split]\nbye='x'", '"split.bye"', '"split.by"?'),
    "protocol key": (BASE + "[protocol]\nnegative=1", '"protocol.negatives"?'),
    "method key": ("data='good.csv'\n[method]\nname='fedlink'\nround=1", '"method.rounds"?'),
    "wrong type": ("seed='x'\n" + BASE, "seed is 'x'"), "long": (f"seed='{'x' * 999}'\n" + BASE,
                                                                 "seed is 'xxx"),
    "no clients": (BASE + "[split]\nclients=[]", "split.clients is []"),
    "zero byte": ('method="fedlink"\ndata="a\\u0000.csv"', "zero byte")}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_bad_experiment_file(here, name):
    text, *words = EXPERIMENTS[name]
    (here / "e.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(["run", "e.toml"], *words)


@pytest.mark.parametrize("name", ["none.toml", "folder.toml"])
def test_an_experiment_file_that_cannot_be_read(here, name):
    (here / "folder.toml").mkdir()
    refused(["run", name], name)


@pytest.mark.parametrize("arguments", [
    pytest.param(["run", "edgebank", "--data", "nothing.csv", *COLUMNS], marks=pytest.mark.slow),
    ["run", "edgebank", *TABLE, "--k", "x"],
    pytest.param(["predict", "."], marks=pytest.mark.slow)], ids=["file", "number", "predict"])
def test_the_same_as_a_process_of_its_own(arguments):
    ended = subprocess.run([sys.executable, "-m", "fedvine", *arguments], text=True,
                           capture_output=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    is_sentence(ended.stderr)


@contextlib.contextmanager
def nobody():
    """Root may do everything, so it is somebody else here."""
    root = os.geteuid() == 0
    if root:
        try:
            os.seteuid(65534)
        except OSError:
            pytest.skip("root of a namespace that knows nobody else")
    try:
        for module in (fedvine_package, contextlib):
            if not os.access(str(module.__file__), os.R_OK, effective_ids=True):
                pytest.skip(f"{module.__name__} lies in a folder that nobody else may enter")
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("what", ["read", "out", "cache"])
def test_what_one_may_not_read_or_write(what, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:   # all may enter it, unlike pytest's own
        Path(folder).chmod(0o777)
        monkeypatch.chdir(folder)
        for name in ("cache", "out"):
            Path(name).mkdir()
            Path(name).chmod(0o555 if name == what else 0o777)
        Path("good.csv").write_text(GOOD)
        Path("good.csv").chmod(0 if what == "read" else 0o644)
        monkeypatch.setenv("FEDVINE_CACHE", str(Path(folder, "cache")))
        with nobody():
            code, _, said = fedvine("run", "popularity", *TABLE, "--out", "out/run")
        assert code == 2, said
        is_sentence(said, {"read": "good.csv", "out": "out/run", "cache": "cache"}[what])
        assert not list(Path("out").iterdir())
        os.chdir("/")
