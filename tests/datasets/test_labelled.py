"""Labelled graphs: as published, read without a trace, had or refused with a sentence."""

from __future__ import annotations

import functools
import gzip
import http.server
import io
import json
import pickle
import shutil
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from fedvine import shelf
from fedvine.datasets import _pyg, digits, ogbn_arxiv
from fedvine.errors import FedvineError
from fedvine.graph import Graph

# Nodes, edges, features, classes, nodes without an edge; where it lies below FEDVINE_DATA.
REAL = {
    "cora": (2_708, 5_278, 1_433, 7, 0, "Planetoid/Cora/raw"),
    "citeseer": (3_327, 4_552, 3_703, 6, 48, "Planetoid/CiteSeer/raw"),
    "computers": (13_752, 245_861, 767, 10, 281, "Amazon/Computers/raw"),
    "physics": (34_493, 247_962, 8_415, 5, 0, "Coauthor/Physics/raw"),
    "squirrel": (5_201, 198_353, 2_089, 5, 0, "WikipediaNetwork/squirrel/geom_gcn/raw"),
    "squirrel_filtered": (2_223, 46_998, 2_089, 5, 0, "HeterophilousGraphs-filtered/raw"),
    "wordnet": (117_659, 183_789, 500, 45, 1_009, "WordNet/raw"),
    "ud_ewt": (22_072, 33_502, 300, 18, 0, "UD-EWT-words/raw"),
}
NAMES = [*REAL, "digits", "roman_empire", "flickr", "ogbn_arxiv"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


@pytest.fixture(scope="module")
def loaded() -> dict[str, Graph]:
    return {}


@pytest.fixture
def graph(request: pytest.FixtureRequest, data: Path, copies: Path,
          loaded: dict[str, Graph]) -> Graph:
    """The real one of ``request.param``, made once from a copy that is compared afterwards."""
    name = request.param
    if name not in loaded:
        copy = raw(name, data, copies)
        before = listing(copies)
        loaded[name] = dataset(name).load(copy)
        assert listing(copies) == before
    return loaded[name]


def real(*names: str):
    return pytest.mark.parametrize("graph", names or list(REAL), indirect=True)


def raw(name: str, data: Path, copies: Path) -> Path:
    """A copy of the files of the data set."""
    place = REAL[name][-1]
    if not (data / place).is_dir():
        pytest.skip(f"FEDVINE_DATA has no {place}")
    if not (copies / place).is_dir():
        shutil.copytree(data / place, copies / place)
    return copies / place


def dataset(name: str) -> ModuleType:
    return shelf.find("datasets", name)


def listing(folder: Path) -> list[tuple]:
    return sorted((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in folder.rglob("*"))


def rows(graph: Graph) -> csr_matrix:
    assert isinstance(graph.x, csr_matrix)
    return graph.x


def adjacency(graph: Graph) -> csr_matrix:
    return csr_matrix((np.ones(graph.edges.shape[1]), graph.edges), (len(graph), len(graph)))


def same(one: Graph, other: Graph) -> bool:
    x, y = (csr_matrix(g.x) for g in (one, other))
    return bool((x != y).nnz == 0 and x.shape == y.shape and type(one.x) is type(other.x)
                and np.array_equal(one.edges, other.edges) and np.array_equal(one.y, other.y)
                and np.array_equal(one.nodes, other.nodes) and one.edges.dtype == other.edges.dtype
                and (one.classes, one.name) == (other.classes, other.name))


# --- what is on the shelf --------------------------------------------------------------------

@pytest.mark.parametrize("name", NAMES)
def test_on_the_shelf(name):
    module = dataset(name)
    assert name in shelf.names("datasets")
    assert module.SPLIT["by"] == "louvain" and 3 <= module.SPLIT["k"] <= 10
    assert isinstance(module.STAGES, int) and sum(module.SHARES) == pytest.approx(1)
    first = module.__doc__.split("\n")[0]
    assert first.endswith(".") and "licence" in module.__doc__ or "MIT" in module.__doc__ or \
        "BY" in module.__doc__


def test_helpers_are_not():
    assert not [name for name in shelf.names("datasets") if name.startswith("_")]


# --- the real ones ---------------------------------------------------------------------------

@real()
def test_counts_as_published(graph):
    isolated = len(graph) - len(np.unique(graph.edges))
    assert REAL[graph.name][:-1] == (len(graph), graph.edges.shape[1], graph.features,
                                     len(graph.classes), isolated)
    assert np.array_equal(np.unique(graph.y), np.arange(len(graph.classes)))
    if graph.name == "ud_ewt":
        assert isinstance(graph.x, np.ndarray) and graph.x.dtype == np.float32
    else:
        assert rows(graph).dtype == np.float32 and np.all(rows(graph).data == 1)


@real()
def test_a_second_load_only_opens(graph, data, copies, monkeypatch):
    """From another cache: read once more, then from what was kept."""
    if graph.name in ("physics", "squirrel"):
        pytest.skip("slow to read, and no other code than for computers and cora")
    module, folder = dataset(graph.name), raw(graph.name, data, copies)
    assert same(module.load(folder), graph)
    monkeypatch.setattr(_pyg.Pyg, "read", lambda *_: pytest.fail("read again"))
    again = module.load(folder)
    assert same(again, graph) and again.x.dtype == graph.x.dtype


@real("cora", "citeseer")
def test_entries_of_the_citations(graph, data, copies):
    """The published 5,429 and 4,732 count entries, and the words are those of the file."""
    folder = raw(graph.name, data, copies)

    def part(what: str):
        return pickle.loads((folder / f"ind.{graph.name}.{what}").read_bytes(), encoding="latin1")

    entries = Counter(tuple(sorted((a, b))) for a, near in part("graph").items() for b in near)
    loops = sum(n for (a, b), n in entries.items() if a == b)
    assert (sum(entries.values()), loops) == {
        "cora": (2 * 5_429, 0), "citeseer": (2 * 4_732, 2 * 124)}[graph.name]
    assert sorted(e for e in entries if e[0] != e[1]) == list(map(tuple, graph.edges.T.tolist()))
    with pytest.warns() if graph.name == "none" else _quiet():
        known = part("allx"), part("ally")
    assert (rows(graph)[:known[0].shape[0]] != known[0]).nnz == 0
    assert np.array_equal(graph.y[:len(known[1])], known[1].argmax(1))


@real("citeseer")
def test_papers_without_anything(graph):
    empty = np.flatnonzero(np.diff(rows(graph).indptr) == 0)
    assert len(empty) == 15 and not graph.y[empty].any()
    assert not np.isin(graph.edges, empty).any()


@real("computers")
def test_the_largest_component(graph):
    _, of = connected_components(adjacency(graph), directed=False)
    largest = np.flatnonzero(of == np.bincount(of).argmax())
    assert (len(largest), graph.induced(largest).edges.shape[1]) == (13_381, 245_778)


@real("physics")
def test_physics_hangs_together(graph):
    assert connected_components(adjacency(graph), directed=False)[0] == 1


@real("squirrel")
def test_lines_of_squirrel(graph, data, copies):
    folder = raw("squirrel", data, copies)
    links = np.loadtxt(folder / "out1_graph_edges.txt", np.int64, skiprows=1)
    assert len(links) == 217_073 and int((links[:, 0] != links[:, 1]).sum()) == 216_933
    pairs = {(min(p), max(p)) for p in links.tolist() if p[0] != p[1]}
    assert sorted(pairs) == list(map(tuple, graph.edges.T.tolist()))
    with open(folder / "out1_node_feature_label.txt") as lines:
        next(lines)
        for line in lines:
            node, words, label = line.split("\t")
            if int(node) % 100 == 0:
                assert graph.y[int(node)] == int(label)
                assert rows(graph)[int(node)].toarray()[0].tolist() == [*map(float,
                                                                             words.split(","))]
    assert int((np.diff(rows(graph).indptr) == 0).sum()) == 165


@real("squirrel_filtered", "ud_ewt", "wordnet")
def test_substitutes(graph, data, copies):
    """Arrays of the file, entry for entry, and the size of the classes that the docstring gives."""
    folder = raw(graph.name, data, copies)
    sizes = np.bincount(graph.y)
    if graph.name == "wordnet":
        z = np.load(folder / "wordnet30_synsets.npz")
        assert np.array_equal(rows(graph).indices, z["attr_indices"])
        both = adjacency(graph)
        assert np.array_equal((both + both.T).indptr, z["adj_indptr"])
        assert np.array_equal(graph.y, z["labels"]) and graph.classes[14] == z["class_names"][14]
        assert (sizes.min(), sizes.max()) == (42, 14_435)
        assert int((np.diff(rows(graph).indptr) == 0).sum()) == 15_931
        return
    z = np.load(next(folder.glob(f"{graph.name}*s.npz" if graph.name == "ud_ewt" else
                                 "squirrel_filtered.npz")))
    x = graph.x.toarray() if isinstance(graph.x, csr_matrix) else graph.x
    assert np.array_equal(x, z["node_features"]) and np.array_equal(graph.y, z["node_labels"])
    assert sorted(sorted(e) for e in z["edges"].tolist()) == graph.edges.T.tolist()
    if graph.name == "ud_ewt":
        assert "nsubj" in graph.classes and sizes.min() == 381


@real("citeseer")
def test_normalise(graph, data, copies):
    shares = dataset("citeseer").load(raw("citeseer", data, copies), normalise=True)
    words = np.diff(rows(graph).indptr)
    expected = rows(graph).toarray() / np.maximum(words, 1)[:, None]
    assert np.allclose(rows(shares).toarray(), expected) and shares.x.dtype == np.float32
    assert sorted({round(float(s), 5) for s in rows(shares).sum(1)}) == [0, 1]


@pytest.mark.parametrize("level", ["", "Planetoid", "Planetoid/Cora", "Planetoid/Cora/raw"])
def test_any_folder_on_the_way(level, data, copies, monkeypatch):
    raw("cora", data, copies)
    expected = dataset("cora").load(copies / "Planetoid/Cora/raw")
    assert same(dataset("cora").load(copies / level), expected)
    monkeypatch.setenv("FEDVINE_DATA", str(copies))
    assert same(dataset("cora").load(), expected)


# --- what is missing or broken ---------------------------------------------------------------

@pytest.mark.parametrize(("name", "file"), [
    ("cora", "ind.cora.x, ind.cora.y"), ("computers", "amazon_electronics_computers.npz"),
    ("squirrel", "out1_graph_edges.txt"), ("flickr", "adj_full.npz, feats.npy"),
    ("ogbn_arxiv", "edge.csv.gz, node-feat.csv.gz"), ("wordnet", "wordnet30_synsets.npz"),
    ("ud_ewt", "ud_ewt_dev_words.npz"), ("roman_empire", "roman_empire.npz")])
def test_a_folder_without_them(name, file, tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FedvineError, match="holds no") as error:
            dataset(name).load(folder)
        assert all(word in str(error.value) for word in file.split(", "))
        assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_one_file_of_several(tmp_path):
    (tmp_path / "raw").mkdir()
    for file in ("adj_full.npz", "feats.npy", "role.json"):
        (tmp_path / "raw" / file).touch()
    with pytest.raises(FedvineError, match=r"holds no class_map\.json; flickr needs it, from"):
        dataset("flickr").load(tmp_path)


@pytest.mark.parametrize("name", ["wordnet", "ud_ewt"])
def test_not_to_be_had(name, monkeypatch):
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    with pytest.raises(FedvineError, match=r"cannot be downloaded; put .*\.npz \(from .*or name"):
        dataset(name).load()


@pytest.mark.parametrize("name", [n for n in REAL if n not in ("physics", "squirrel")])
def test_a_file_cut_short(name, data, tmp_path):
    folder = raw(name, data, tmp_path)
    file = max(folder.iterdir(), key=lambda f: f.stat().st_size if "filtered_d" not in f.name
               else 0)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(FedvineError, match="delete the files in .* and get them again") as error:
        dataset(name).load(folder)
    assert "\n" not in str(error.value)


def test_lines_cut_short(tmp_path):
    """Squirrel's text, of which the last line lost its class, and then a link its end."""
    write_squirrel(tmp_path, "0\t1,0\t3\n1\t0,1\t2\n2\t0", "0\t1\n")
    with pytest.raises(FedvineError, match="squirrel could not be read"):
        dataset("squirrel").load(tmp_path)
    write_squirrel(tmp_path, "0\t1,0\t3\n1\t0,1\t2\n", "0\t1\n1\n")
    with pytest.raises(FedvineError, match="squirrel could not be read"):
        dataset("squirrel").load(tmp_path)
    write_squirrel(tmp_path, "0\t1,0\t3\n1\t0,1\t2\n", "0\t1\n1\t7\n")
    with pytest.raises(FedvineError, match="squirrel"):
        dataset("squirrel").load(tmp_path)
    write_squirrel(tmp_path, "0\t1,0\t3\n1\t0,1\t2\n", "0\t1\n1\t0\n")
    assert dataset("squirrel").load(tmp_path).edges.tolist() == [[0], [1]]


def write_squirrel(folder: Path, nodes: str, links: str) -> None:
    (folder / "out1_node_feature_label.txt").write_text(f"node\tfeature\tlabel\n{nodes}")
    (folder / "out1_graph_edges.txt").write_text(f"a\tb\n{links}")
    for i in range(10):
        np.savez(folder / f"squirrel_split_0.6_0.2_{i}.npz",
                 **{f"{of}_mask": np.ones(2, bool) for of in ("train", "val", "test")})


def test_no_foreign_pickle_is_opened(tmp_path):
    """Planetoid's files are pickles: another one than the published is refused unopened."""
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "opened",)

    for what in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (tmp_path / f"ind.cora.{what}").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FedvineError, match="is not the published file"):
        dataset("cora").load(tmp_path)
    np.savez(tmp_path / "ud_ewt_dev_words.npz", node_features=np.array([Bomb()], object),
             node_labels=np.zeros(1), edges=np.zeros((0, 2)))
    with pytest.raises(FedvineError, match="ud_ewt could not be read"):
        dataset("ud_ewt").load(tmp_path)
    assert not (tmp_path / "opened").exists()


def test_what_was_kept_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    write_empire(tmp_path, [0, 1, 1])
    first = dataset("roman_empire").load(tmp_path)
    kept = next((tmp_path / "cache").glob("roman_empire-*.npz"))
    for damage in (kept.read_bytes()[:-200], b"", b"no zip"):
        kept.write_bytes(damage)
        assert same(dataset("roman_empire").load(tmp_path), first)
    write_empire(tmp_path, [1, 1, 0, 1])
    assert dataset("roman_empire").load(tmp_path).y.tolist() == [1, 1, 0, 1]


# --- layouts of what is not here -------------------------------------------------------------

def write_empire(folder: Path, y: list[int]) -> dict[str, np.ndarray]:
    n = len(y)
    arrays = {"node_features": np.arange(n * 2, dtype=np.float32).reshape(n, 2) / 7,
              "node_labels": np.array(y), "edges": np.array([[0, 1], [2, 1]]),
              **{f"{of}_masks": np.ones((10, n), bool) for of in ("train", "val", "test")}}
    np.savez(folder / "roman_empire.npz", **arrays)
    return arrays


def test_roman_empire(tmp_path):
    arrays = write_empire(tmp_path, [0, 2, 1])
    before = listing(tmp_path)
    graph = dataset("roman_empire").load(tmp_path)
    assert np.array_equal(np.asarray(graph.x), arrays["node_features"])
    assert (graph.y.tolist(), graph.edges.tolist()) == ([0, 2, 1], [[0, 1], [1, 2]])
    assert listing(tmp_path) == before


def write_flickr(folder: Path) -> None:
    both = csr_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    np.savez(folder / "adj_full.npz", data=both.data, indices=both.indices, indptr=both.indptr,
             shape=both.shape)
    np.save(folder / "feats.npy", np.array([[0.5, -1], [2, 0], [0, 0]]))
    (folder / "class_map.json").write_text(json.dumps({"0": 6, "2": 1}))
    (folder / "role.json").write_text(json.dumps({"tr": [0], "va": [1], "te": [2]}))


def test_flickr(tmp_path):
    write_flickr(tmp_path)
    graph = dataset("flickr").load(tmp_path)
    assert (graph.y.tolist(), graph.edges.tolist()) == ([6, -1, 1], [[0, 1], [1, 2]])
    assert np.asarray(graph.x).tolist() == [[0.5, -1], [2, 0], [0, 0]]
    (tmp_path / "class_map.json").write_text('{"0": 6, "2"')
    with pytest.raises(FedvineError, match="flickr could not be read"):
        dataset("flickr").load(tmp_path)


TABLES = {"edge": "0,2\n2,0\n1,2\n", "node-feat": "0.5,-1e-3\n2,0\n0,0.25\n", "node-label": "4\n0\n39\n"}


def write_arxiv(folder: Path, **other: str) -> None:
    for name, text in {**TABLES, **other}.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


def test_ogbn_arxiv(tmp_path):
    write_arxiv(tmp_path)
    graph = ogbn_arxiv.load(tmp_path)
    assert (graph.y.tolist(), graph.edges.tolist()) == ([4, 0, 39], [[0, 1], [2, 2]])
    assert np.allclose(np.asarray(graph.x), [[0.5, -1e-3], [2, 0], [0, 0.25]])
    assert len(graph.classes) == 40
    for name, text in {"edge": "0,2\n2\n", "node-feat": "0.5,x\n", "node-label": ""}.items():
        write_arxiv(tmp_path, **{name: text})
        with pytest.raises(FedvineError, match="ogbn_arxiv could not be read"):
            ogbn_arxiv.load(tmp_path)
    write_arxiv(tmp_path, **{"node-label": "4\n0\n"})
    with pytest.raises(FedvineError, match="3 rows of features and 2 classes"):
        ogbn_arxiv.load(tmp_path)


# --- downloads -------------------------------------------------------------------------------

@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which it is served."""
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None: ...

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_downloaded_once(site, tmp_path, monkeypatch):
    from torch_geometric.datasets import HeterophilousGraphDataset
    folder, address = site
    monkeypatch.setattr(HeterophilousGraphDataset, "url", address)
    with pytest.raises(FedvineError, match=r"could not be downloaded \(HTTPError\); put "
                                           r"roman_empire\.npz .* or name the folder\."):
        dataset("roman_empire").load()
    assert not [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]
    write_empire(folder, [0, 1, 2])
    first = dataset("roman_empire").load()
    (folder / "roman_empire.npz").unlink()
    for kept in (tmp_path / "cache").glob("*.npz"):
        kept.unlink()
    assert same(dataset("roman_empire").load(), first)
    places = [str(f.relative_to(tmp_path / "cache")) for f in (tmp_path / "cache").rglob("*.npz")]
    assert "downloads/HeterophilousGraphDataset/roman_empire/raw/roman_empire.npz" in places


def test_half_a_download_is_none(site, tmp_path, monkeypatch):
    from torch_geometric.datasets import flickr

    def one_file(_: str, folder: str, name: str) -> None:
        if name == "feats.npy":
            raise TimeoutError("nobody answers")
        Path(folder, name).write_bytes(b"")

    monkeypatch.setattr(flickr, "download_google_url", one_file)
    with pytest.raises(FedvineError, match=r"flickr could not be downloaded \(TimeoutError\)"):
        dataset("flickr").load()
    assert not [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]
    monkeypatch.setattr(flickr, "download_google_url", lambda *_: None)
    with pytest.raises(FedvineError, match=r"came without adj_full\.npz, feats\.npy"):
        dataset("flickr").load()


def test_arxiv_is_unpacked(site, tmp_path, monkeypatch):
    folder, address = site
    monkeypatch.setattr(ogbn_arxiv, "URL", f"{address}/arxiv.zip")
    with pytest.raises(FedvineError, match="ogbn_arxiv could not be downloaded"):
        ogbn_arxiv.load()
    (folder / "arxiv.zip").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(FedvineError, match="ogbn_arxiv could not be downloaded"):
        ogbn_arxiv.load()
    with zipfile.ZipFile(folder / "arxiv.zip", "w") as archive:
        for name, text in TABLES.items():
            archive.writestr(f"arxiv/raw/{name}.csv.gz", gzip.compress(text.encode()))
        archive.writestr("arxiv/split/time/train.csv.gz", b"")
    write_arxiv(tmp_path)
    assert same(ogbn_arxiv.load(), ogbn_arxiv.load(tmp_path))


def test_planetoid_over_the_network(site, data, monkeypatch):
    from torch_geometric.datasets import Planetoid
    folder, address = site
    for file in raw("citeseer", data, folder).iterdir():
        shutil.move(file, folder)
    monkeypatch.setattr(Planetoid, "url", address)
    assert len(dataset("citeseer").load()) == 3_327


def test_squirrel_filtered_over_the_network(site, data, monkeypatch):
    folder, address = site
    module = dataset("squirrel_filtered")
    monkeypatch.setattr(module, "_SITE", address)
    (folder / "raw/main/data").mkdir(parents=True)
    served = folder / "raw/main/data/squirrel_filtered.npz"
    served.write_bytes(b"another file")
    with pytest.raises(FedvineError, match="squirrel_filtered could not be downloaded"):
        module.load()
    shutil.copy(raw("squirrel_filtered", data, folder) / "squirrel_filtered.npz", served)
    assert len(module.load()) == 2_223


# --- digits ----------------------------------------------------------------------------------

def test_digits():
    graph = digits.load()
    assert (len(graph), graph.edges.shape[1], graph.features) == (1_797, 6_309, 64)
    assert graph.classes == tuple("0123456789") and np.bincount(graph.y).min() == 174
    x = np.asarray(graph.x)
    assert x.dtype == np.float32 and (x.min(), x.max()) == (0, 1)
    assert np.array_equal(x * 16, np.round(x * 16))
    assert same(graph, digits.load())


def test_neighbours_of_digits():
    """A pair is an edge if fewer than five come before one of the two in the other's order."""
    graph = digits.load()
    shades = (np.asarray(graph.x) * 16).astype(np.int64)
    edges = set(map(tuple, graph.edges.T.tolist()))
    near = {}
    for node in range(0, len(graph), 6):
        far = ((shades - shades[node]) ** 2).sum(1).tolist()
        near[node] = sorted((d, i) for i, d in enumerate(far) if i != node)[:5]
        assert all((min(i, node), max(i, node)) in edges for _, i in near[node])
    for a, b in edges:
        if a in near and b in near:
            assert b in [i for _, i in near[a]] or a in [i for _, i in near[b]]
    degree = np.bincount(graph.edges.reshape(-1))
    assert degree.min() == 5
    agree = graph.y[graph.edges[0]] == graph.y[graph.edges[1]]
    assert agree.mean() > 0.95


def test_digits_have_no_folder(tmp_path):
    with pytest.raises(FedvineError, match="leave out the folder"):
        digits.load(tmp_path)


def _quiet():
    import warnings
    quiet = warnings.catch_warnings()
    return quiet
