"""The data sets of DG-CoLearn: real files against their known counts, snapshots against replay."""

import gzip
import io
import shutil
import tarfile
import zipfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.stream import EventStream
from fedvine.datasets import patent, retail, snapshots, sociopatterns
from fedvine.datasets.foursquare import FourCities
from fedvine.datasets.snap import As733, BitcoinOtc, Uci
from fedvine.datasets.snapshots import Dblp3, Dblp5, Reddit
from fedvine.datasets.tgb import TgblCoin, TgbnReddit

MESSAGES = "7 3 100\n3 9 100\n7 3 250\n"
FILES = {Uci: ("CollegeMsg.txt.gz", gzip.compress(MESSAGES.encode())),
         BitcoinOtc: ("soc-sign-bitcoinotc.csv.gz", gzip.compress(b"7,3,-10,99.9\n3,9,4,100.2\n"))}


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch):
    """No test reaches a public address."""
    for module in (Uci, BitcoinOtc, As733):
        name = module.URL.rsplit("/", 1)[-1]
        monkeypatch.setattr(module, "URL", f"http://127.0.0.1:9/{name}")


@pytest.fixture
def served(site, monkeypatch):
    """A folder that is served in place of the public addresses."""
    folder, address = site
    for module in (Uci, BitcoinOtc, As733):
        monkeypatch.setattr(module, "URL", f"{address}/{module.URL.rsplit('/', 1)[-1]}")
    return folder


def copied(data: Path, place: str, to: Path) -> Path:
    """A copy of a real file; skips where it is not there."""
    if not (data / place).is_file():
        pytest.skip(f"FEDVINE_DATA has no {place}")
    return Path(shutil.copy(data / place, to))


def unpacked(file: Path) -> list[str]:
    with gzip.open(file, "rt") as lines:
        return lines.read().splitlines()


def replayed(stream: EventStream) -> dict[int, set[tuple[str, str]]]:
    """The edges after all events of each time, by name; every event must change something."""
    flags = np.zeros(len(stream), bool) if stream.deleted is None else stream.deleted
    now, found = set(), {}
    for s, d, t, gone in zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(),
                             flags.tolist(), strict=True):
        edge = stream.src_ids[s], stream.dst_ids[d]
        if gone:
            now.remove(edge)
        else:
            assert edge not in now
            now.add(edge)
        found[t] = set(now)
    return found


def pairs(rows) -> set[tuple[str, str]]:
    """Each pair once, from the lower number to the higher one."""
    return {(str(min(a, b)), str(max(a, b))) for a, b in rows}


def snapshots_of(file: Path) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for line in unpacked(file)[1:]:
        i, a, b = map(int, line.split(","))
        found.setdefault(i, []).append((a, b))
    return found


# -- messages and ratings ---------------------------------------------------------------------
def test_uci(data, tmp_path, monkeypatch):
    file = copied(data, "temporal/collegemsg/CollegeMsg.txt.gz", tmp_path)
    stream = Uci.load(tmp_path)
    assert (len(stream), stream.num_src, stream.bipartite) == (59_835, 1_899, False)
    rows = [tuple(map(int, line.split())) for line in unpacked(file)]
    assert [int(stream.src_ids[i]) for i in stream.src.tolist()] == [row[0] for row in rows]
    assert [int(stream.src_ids[i]) for i in stream.dst.tolist()] == [row[1] for row in rows]
    assert stream.t.tolist() == [row[2] for row in rows] and stream.t.dtype == np.int64
    assert len(set(zip(stream.src.tolist(), stream.dst.tolist(), strict=True))) == 20_296
    assert stream.deleted is None and stream.weight is None
    plan = stream.by_time(Uci.STAGES)
    assert len(plan) == 39 and min(len(plan.stage(stream, i)) for i in range(39)) > 0
    monkeypatch.setenv("FEDVINE_DATA", str(data))
    assert Uci.load().t.tolist() == stream.t.tolist()


@pytest.mark.parametrize("module", FILES, ids=lambda module: module.__name__.split(".")[-1])
def test_plain_files_are_read_as_packed_ones(module, tmp_path):
    name, content = FILES[module]
    (tmp_path / name).write_bytes(content)
    packed = module.load(tmp_path)
    assert packed.src_ids[packed.src[0]] == "7" and packed.src_ids[packed.dst[1]] == "9"
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / name.removesuffix(".gz")).write_bytes(gzip.decompress(content))
    plain = module.load(tmp_path / "plain")
    for column in ("src", "dst", "t"):
        assert getattr(plain, column).tolist() == getattr(packed, column).tolist()


@pytest.mark.parametrize("module", FILES, ids=lambda module: module.__name__.split(".")[-1])
def test_downloaded_once_and_checked_ever_after(module, served, cache):
    name, content = FILES[module]
    (served / name).write_bytes(content)
    edges = len(module.load())
    (served / name).unlink()
    assert len(module.load()) == edges              # not downloaded again
    here = cache / "downloads" / name
    here.write_bytes(content[:-9])                  # damaged: downloaded again, and checked
    (served / name).write_bytes(content + b"more")
    with pytest.raises(FedvineError, match="is not the file that was downloaded first"):
        module.load()
    (served / name).write_bytes(content)
    assert len(module.load()) == edges and here.read_bytes() == content


@pytest.mark.parametrize("module", [Uci, BitcoinOtc, As733])
def test_offline(module, monkeypatch):
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    with pytest.raises(FedvineError, match=r"could not be downloaded .* below FEDVINE_DATA in"):
        module.load()


# -- snapshots become events -------------------------------------------------------------------
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)


@given(st.lists(PAIRS, min_size=1, max_size=6).filter(any))
def test_replaying_gives_every_snapshot(rows):
    stream = snapshots.events("toy", [(10 * i, np.array(r, int).reshape(-1, 2))
                                      for i, r in enumerate(rows)])
    found, last = replayed(stream), set()
    for i, row in enumerate(rows):
        assert found.get(10 * i, last) == pairs(row)        # no event where nothing changes
        last = pairs(row)
    assert bool((np.diff(stream.t) >= 0).all()) and not stream.bipartite
    assert stream.num_src == len({n for row in rows for pair in row for n in pair})
    assert (stream.deleted is None) == all(a <= b for a, b in zip(
        map(pairs, rows), map(pairs, rows[1:]), strict=False))


def test_snapshots_without_an_edge_are_refused():
    with pytest.raises(FedvineError, match="toy has no edges in any snapshot"):
        snapshots.events("toy", [(0, np.empty((0, 2), int))])


def daily(rows, header: bool = True) -> bytes:
    head = "# Undirected graph (each pair of nodes is saved twice)\n# FromNodeId\tToNodeId\n"
    return ((head if header else "") + "".join(f"{a}\t{b}\n" for a, b in rows)).encode()


def archived(file: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


DAYS = {"as19971108.txt": [(1, 9), (9, 1), (2, 9), (9, 2), (4, 4)],
        "as19971110.txt": [(1, 9), (9, 1), (7, 2), (2, 7)],
        "as19971111.txt": [(9, 2), (2, 9), (7, 2), (2, 7), (1, 9), (9, 1)]}


@pytest.mark.parametrize("folder", ["", "as-733/", "./"])
def test_as733_whole(folder, tmp_path):
    members = {"README": b"hello", f"{folder}._as19971108.txt": b"\0", **{
        folder + name: daily(DAYS[name], header=name != "as19971111.txt")
        for name in reversed(DAYS)}}
    archived(tmp_path / "as-733.tar.gz", members)
    (tmp_path / "as733_last22.csv.gz").write_bytes(gzip.compress(b"snapshot,src,dst\n0,1,2\n"))
    stream = As733.load(tmp_path)       # the whole comes before the part
    assert stream.name == "as733" and not stream.bipartite
    assert replayed(stream) == {
        int(datetime(1997, 11, int(name[8:10]), tzinfo=UTC).timestamp()): pairs(rows)
        for name, rows in DAYS.items()}
    assert stream.deleted is not None and int(stream.deleted.sum()) == 2
    assert bool((np.diff(stream.t) >= 0).all())     # whatever the order in the archive
    assert sorted(int(stream.src_ids[i]) for i in range(stream.num_src)) == [1, 2, 4, 7, 9]


def test_as733_downloaded(served):
    archived(served / "as-733.tar.gz", {name: daily(rows) for name, rows in DAYS.items()})
    assert len(As733.load()) == len(As733.load()) == 7


@pytest.mark.parametrize(("members", "said"), [
    ({"readme.txt": b"1 2\n"}, "holds no file such as as19971108.txt"),
    ({"as19971108.txt": daily([])}, "as19971108.txt has no edges"),
    ({"as19971108.txt": b"1\t2\t3\n"}, "as19971108.txt is not rows of two whole numbers"),
    ({"as19971108.txt": b"1\t-2\n"}, "as19971108.txt is not rows of two whole numbers"),
    ({"as19971108.txt": b"1\tx\n"}, "is not SNAP's archive"),
    ({"as19971308.txt": b"1\t2\n"}, "is not SNAP's archive"),
    ({"as19971108.txt": b"1\t2\n", "a/as19971108.txt": b"1\t2\n"}, "is in it twice"),
])
def test_as733_another_archive(members, said, tmp_path):
    archived(tmp_path / "as-733.tar.gz", members)
    with pytest.raises(FedvineError, match=said):
        As733.load(tmp_path)


def test_as733_damaged(tmp_path):
    file = archived(tmp_path / "as-733.tar.gz", {
        "as19971108.txt": daily(np.random.default_rng(0).integers(0, 9999, (5000, 2)))})
    for content in (file.read_bytes()[:5000], b"not an archive", b""):
        file.write_bytes(content)
        with pytest.raises(FedvineError, match="is not SNAP's archive"):
            As733.load(tmp_path)


# -- DBLP and Reddit ---------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "counts"), [
    (Dblp3, "DBLP3", (23_540, 1_405, 17_196, 8_027, 2)),
    (Dblp5, "DBLP5", (42_815, 2_390, 31_896, 14_940, 3))])
def test_dblp_structure(kind, name, counts, data, tmp_path):
    file = copied(data, f"temporal/dblp/{name}_adjs.csv.gz", tmp_path)
    entries, active, events, deletions, diagonal = counts
    stream = kind.load(tmp_path)
    assert (len(stream), stream.num_src) == (events, active) and stream.nodes is None
    assert stream.name == f"{name.lower()}-structure" and not stream.bipartite
    assert stream.deleted is not None and int(stream.deleted.sum()) == deletions
    found, expected = replayed(stream), snapshots_of(file)
    assert found == {t: pairs(rows) for t, rows in expected.items()} and list(found) == [*range(10)]
    loops = sum(a == b for edges in found.values() for a, b in edges)
    assert loops == diagonal and 2 * sum(map(len, found.values())) - loops == entries
    plan = stream.by_time(kind.STAGES)        # a snapshot is a stage
    assert [set(plan.stage(stream, i).t.tolist()) for i in range(len(plan))] == [
        {t} for t in range(10)]


def small(seed: int = 0) -> dict[str, Any]:
    """Six snapshots of nine nodes: symmetric, weighted; attributes that stay put now and then."""
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.integers(0, 9, (6, 9, 9)) * (generator.random((6, 9, 9)) < 0.2))
    x = np.repeat(generator.normal(size=(9, 3, 4)), 2, axis=1)
    x[2, 3] += 1
    labels = np.eye(3)[generator.integers(0, 3, 9)]
    labels[5] = 0
    return {"adjs": (upper + upper.transpose(0, 2, 1)).astype(float), "attmats": x,
            "labels": labels}


FORMS = {
    "as published": lambda adjs: adjs,
    "one way round": lambda adjs: np.triu(adjs),
    "whole numbers": lambda adjs: adjs.astype(np.uint8),
    "true and false": lambda adjs: adjs != 0,
    "in Fortran's order": np.asfortranarray,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "file"), [
    (Dblp3, "DBLP3.npz"), (Dblp5, "DBLP5.npz"), (Reddit, "Reddit.npz"), (Reddit, "reddit.npz")])
def test_npz(kind, file, form, tmp_path):
    arrays = small()
    saved = np.savez if kind is Dblp5 else np.savez_compressed
    saved(tmp_path / file, **{**arrays, "adjs": FORMS[form](arrays["adjs"])})
    (tmp_path / "DBLP3_adjs.csv.gz").write_bytes(gzip.compress(b"t,src,dst\n0,1,2\n"))
    for stream in (kind.load(tmp_path), kind.load(tmp_path)):      # made, and opened
        assert stream.name == kind.name and stream.num_src == 9
        assert [stream.src_ids[i] for i in range(9)] == [str(i) for i in range(9)]
        assert replayed(stream) == {t: pairs(np.argwhere(adj)) for t, adj
                                    in enumerate(arrays["adjs"])}
        nodes = stream.nodes
        assert nodes is not None and nodes.classes == ("0", "1", "2") and stream.weight is None
        for t in range(6):
            x, y = nodes.at(t + 1, 9)
            assert x is not None and x.tolist() == arrays["attmats"][:, t].astype("f4").tolist()
            assert y.tolist() == [-1 if not row.any() else int(row.argmax())
                                  for row in arrays["labels"]]
        # Nine at the start, nine at each of two changes, and node 2 alone for one snapshot.
        assert Counter(nodes.t.tolist()) == {0: 9, 2: 9, 3: 1, 4: 9}


def test_npz_below_fedvine_data(tmp_path, monkeypatch):
    (tmp_path / "temporal/dblp").mkdir(parents=True)
    (tmp_path / "temporal/reddit").mkdir()
    np.savez(tmp_path / "temporal/dblp/DBLP5.npz", **small(1))
    np.savez(tmp_path / "temporal/reddit/Reddit.npz", **small(2))
    monkeypatch.setenv("FEDVINE_DATA", str(tmp_path))
    for kind, seed in ((Dblp5, 1), (Reddit, 2)):
        assert list(replayed(kind.load()).values()) == [
            pairs(np.argwhere(adj)) for adj in small(seed)["adjs"]]
    with pytest.raises(FedvineError, match=r"DBLP3\.npz was not found in .*temporal/dblp"):
        Dblp3.load()


@pytest.mark.parametrize(("kind", "said"), [
    (patent, "patent.txt and node2label.txt"), (sociopatterns, "Primary_School.csv"),
    (FourCities, "LBSN2Vec"), (retail, "archive.ics.uci.edu/dataset/352"),
    (TgblCoin, "tgbl-coin_edgelist_v2.csv"),
    (TgbnReddit, "tgbn-reddit_edgelist.csv"),
    (Dblp3, "trytodoit227/RTGCN-new, data/DBLP3/DBLP3.npz"),
    (Dblp5, "trytodoit227/RTGCN-new, data/DBLP5/DBLP5.npz"),
    (Reddit, "data/raw/reddit.npz of github.com/CharliedoD/DyGC_E")])
def test_where_to_get_it(kind, said, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    for folder, where in ((None, "FEDVINE_DATA, which is unset"),
                          (tmp_path, f"not found in {tmp_path}")):
        with pytest.raises(FedvineError) as error:
            kind.load(folder)
        assert where in str(error.value) and said in str(error.value)


@pytest.mark.parametrize(("change", "said"), [
    ({"adjs": np.ones((6, 9, 8))}, r"adjs is \[6, 9, 8\] for 6 snapshots of 9 nodes"),
    ({"adjs": np.ones((5, 9, 9))}, r"adjs is \[5, 9, 9\] for 6 snapshots of 9 nodes"),
    ({"adjs": np.full((6, 9, 9), None)}, "adjs holds object, not numbers"),
    ({"adjs": np.full((6, 9, 9), "1")}, "adjs holds <U1, not numbers"),
    ({"attmats": np.ones((6, 9, 4))}, r"attmats is \[6, 9, 4\] for 9 labels"),
    ({"attmats": np.full((9, 6, 4), np.nan)}, "A feature of node 0 is not a finite number"),
    ({"attmats": np.full((9, 6, 4), None)}, "Object arrays cannot be loaded"),
    ({"labels": np.ones((9, 3))}, "node 0 has 3 classes"),
    ({"labels": np.arange(9)}, r"labels, \[9\], are not rows of 0 and 1"),
    ({"labels": None}, "no item named 'labels.npy'"),
    ({"adjs": np.zeros((6, 9, 9))}, "dblp3 has no edges"),
])
def test_npz_of_another_layout(change, said, tmp_path):
    arrays: dict[str, Any] = {**small(), **change}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    np.savez(tmp_path / "DBLP3.npz", **arrays)
    with pytest.raises(FedvineError, match=said):
        Dblp3.load(tmp_path)


def test_npz_damaged(tmp_path):
    np.savez(tmp_path / "DBLP3.npz", **small())
    whole = (tmp_path / "DBLP3.npz").read_bytes()
    short = io.BytesIO()        # a whole archive, but adjs ends too early
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(short, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[:-8] if name == "adjs.npy" else old.read(name))
    for content, said in ((whole[:-50], "zip"), (b"", "zip"), (b"no archive", "zip"),
                          (short.getvalue(), "adjs is cut short")):
        (tmp_path / "DBLP3.npz").write_bytes(content)
        with pytest.raises(FedvineError, match=rf"DBLP3\.npz has no snapshots.*{said}"):
            Dblp3.load(tmp_path)


@pytest.mark.parametrize("row", [b"0,1", b"0,1,x", b"0,1,-2", b"0,1,4294967296"])
def test_tables_of_another_layout(row, tmp_path):
    file, table = tmp_path / "DBLP3_adjs.csv.gz", b"t,src,dst\n" + row + b"\n"
    for content in (gzip.compress(table), gzip.compress(table)[:20], table):
        file.write_bytes(content)
        with pytest.raises(FedvineError, match=r"DBLP3_adjs\.csv\.gz is not a table of snapshot"):
            Dblp3.load(tmp_path)


def test_returns_and_rows_without_a_customer_are_no_purchases(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({
        "invoice": ["2", "1", "1", "C3", "4"], "customer": [7, 7, None, 7, 8],
        "item": ["pot", "cup", "cup", "pot", "cup"],
        "at": [datetime(2010, 12, d, tzinfo=UTC) for d in (2, 1, 1, 3, 4)],
        "country": ["France", "France", "France", "France", "EIRE"],
        "quantity": [6, 2, 1, -6, 3], "price": [1.0] * 5}), tmp_path / "online_retail.parquet")
    stream = retail.load(tmp_path)
    assert [(stream.src_ids[u], stream.dst_ids[z], w) for u, z, w in zip(
        stream.src, stream.dst, stream.weight, strict=True)] == [
            ("7", "cup", 2), ("7", "pot", 6), ("8", "cup", 3)]
    assert sorted(stream.split(**retail.SPLIT).parts) == ["EIRE", "France"]
