"""Files of labelled graphs that are missing, broken, of a known layout or downloaded; digits."""

import gzip
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from layouts import (
    REAL,
    TABLES,
    dataset,
    listing,
    raw,
    same,
    write_arxiv,
    write_empire,
    write_flickr,
    write_squirrel,
)

from fedvine.core.errors import FedvineError
from fedvine.datasets.labelled import Digits, OgbnArxiv


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
    with pytest.raises(FedvineError, match=r"delete the files in .* and get them again") as error:
        dataset(name).load(folder)
    assert "\n" not in str(error.value)


def test_lines_cut_short(tmp_path):
    """Squirrel's text, of which a line lost its class, then a link its end, then links a page."""
    whole = "0\t1,0\t3\n1\t0,1\t2\n"
    for nodes, links, said in (("0\t1,0\t3\n1\t0,1\n", "0\t1\n", "could not be read"),
                               (whole, "0\t1\n1\n", "could not be read"),
                               (whole, "0\t1\n1\t7\n", "edge 1 joins 1 and 7")):
        write_squirrel(tmp_path, nodes, links)
        with pytest.raises(FedvineError, match=f"squirrel.* {said}"):
            dataset("squirrel").load(tmp_path)
    write_squirrel(tmp_path, whole, "0\t1\n1\t0\n")
    assert dataset("squirrel").load(tmp_path).edges.tolist() == [[0], [1]]


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


def test_what_was_kept_is_made_again(tmp_path, cache):
    write_empire(tmp_path, [0, 1, 1])
    first = dataset("roman_empire").load(tmp_path)
    kept = next(cache.glob("roman_empire-*.npz"))
    for damage in (kept.read_bytes()[:-200], b"", b"no zip"):
        kept.write_bytes(damage)
        assert same(dataset("roman_empire").load(tmp_path), first)
    write_empire(tmp_path, [1, 1, 0, 1])
    assert dataset("roman_empire").load(tmp_path).y.tolist() == [1, 1, 0, 1]


def test_roman_empire(tmp_path):
    arrays = write_empire(tmp_path, [0, 2, 1])
    before = listing(tmp_path)
    graph = dataset("roman_empire").load(tmp_path)
    assert np.array_equal(np.asarray(graph.x), arrays["node_features"])
    assert (graph.y.tolist(), graph.edges.tolist()) == ([0, 2, 1], [[0, 1], [1, 2]])
    assert listing(tmp_path) == before


def test_flickr(tmp_path):
    write_flickr(tmp_path)
    graph = dataset("flickr").load(tmp_path)
    assert (graph.y.tolist(), graph.edges.tolist()) == ([6, -1, 1], [[0, 1], [1, 2]])
    assert np.asarray(graph.x).tolist() == [[0.5, -1], [2, 0], [0, 0]]
    (tmp_path / "class_map.json").write_text('{"0": 6, "2"')
    with pytest.raises(FedvineError, match="flickr could not be read"):
        dataset("flickr").load(tmp_path)


def test_ogbn_arxiv(tmp_path):
    write_arxiv(tmp_path)
    graph = OgbnArxiv.load(tmp_path)
    assert (graph.y.tolist(), graph.edges.tolist()) == ([4, 0, 39], [[0, 1], [2, 2]])
    assert np.allclose(np.asarray(graph.x), [[0.5, -1e-3], [2, 0], [0, 0.25]])
    assert len(graph.classes) == 40
    for name, text in {"edge": "0,2\n2\n", "node-feat": "0.5,x\n", "node-label": "4,"}.items():
        write_arxiv(tmp_path, **{name: text})
        with pytest.raises(FedvineError, match="ogbn_arxiv could not be read"):
            OgbnArxiv.load(tmp_path)
    write_arxiv(tmp_path, **{"node-label": "4\n0\n"})
    with pytest.raises(FedvineError, match="3 rows of features and 2 classes"):
        OgbnArxiv.load(tmp_path)


def test_downloaded_once(site, cache, monkeypatch):
    from torch_geometric.datasets import HeterophilousGraphDataset
    folder, address = site
    monkeypatch.setattr(HeterophilousGraphDataset, "url", address)
    with pytest.raises(FedvineError, match=r"could not be downloaded \(HTTPError\); put "
                                           r"roman_empire\.npz .* or name the folder\."):
        dataset("roman_empire").load()
    assert not [f for f in cache.rglob("*") if f.is_file()]
    write_empire(folder, [0, 1, 2])
    first = dataset("roman_empire").load()
    (folder / "roman_empire.npz").unlink()
    for kept in cache.glob("*.npz"):
        kept.unlink()
    assert same(dataset("roman_empire").load(), first)
    places = [str(f.relative_to(cache)) for f in cache.rglob("*.npz")]
    assert "downloads/HeterophilousGraphDataset/roman_empire/raw/roman_empire.npz" in places


def test_half_a_download_is_none(site, cache, monkeypatch):
    from torch_geometric.datasets import flickr

    def one_file(_: str, folder: str, name: str) -> None:
        if name == "feats.npy":
            raise TimeoutError("nobody answers")
        Path(folder, name).write_bytes(b"")

    monkeypatch.setattr(flickr, "download_google_url", one_file)
    with pytest.raises(FedvineError, match=r"flickr could not be downloaded \(TimeoutError\)"):
        dataset("flickr").load()
    assert not [f for f in cache.rglob("*") if f.is_file()]
    monkeypatch.setattr(flickr, "download_google_url", lambda *_: None)
    with pytest.raises(FedvineError, match=r"came without adj_full\.npz, feats\.npy"):
        dataset("flickr").load()


def test_arxiv_is_unpacked(site, tmp_path, monkeypatch):
    folder, address = site
    monkeypatch.setattr(OgbnArxiv.SOURCE, "url", f"{address}/arxiv.zip")
    with pytest.raises(FedvineError, match="ogbn_arxiv could not be downloaded"):
        OgbnArxiv.load()
    (folder / "arxiv.zip").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(FedvineError, match="ogbn_arxiv could not be downloaded"):
        OgbnArxiv.load()
    with zipfile.ZipFile(folder / "arxiv.zip", "w") as archive:
        for name, text in TABLES.items():
            archive.writestr(f"arxiv/raw/{name}.csv.gz", gzip.compress(text.encode()))
        archive.writestr("arxiv/split/time/train.csv.gz", b"")
    write_arxiv(tmp_path)
    assert same(OgbnArxiv.load(), OgbnArxiv.load(tmp_path))


def test_squirrel_filtered_over_the_network(data, site, monkeypatch):
    folder, address = site
    kind = dataset("squirrel_filtered")
    monkeypatch.setattr(kind.SOURCE, "url", f"{address}/squirrel_filtered.npz")
    served = folder / "squirrel_filtered.npz"
    served.write_bytes(b"another file")
    with pytest.raises(FedvineError, match="squirrel_filtered could not be downloaded"):
        kind.load()
    shutil.copy(raw("squirrel_filtered", data, folder) / "squirrel_filtered.npz", served)
    assert len(kind.load()) == 2_223


@pytest.mark.slow
def test_digits():
    graph = Digits.load()
    assert (len(graph), graph.edges.shape[1], graph.features) == (1_797, 6_309, 64)
    assert graph.classes == tuple("0123456789") and np.bincount(graph.y).min() == 174
    x = np.asarray(graph.x)
    assert x.dtype == np.float32 and (x.min(), x.max()) == (0, 1)
    assert np.array_equal(x * 16, np.round(x * 16))
    shades = (x * 16).astype(np.int64)
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
        Digits.load(tmp_path)
