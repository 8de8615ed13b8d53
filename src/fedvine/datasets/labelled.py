"""Labelled graphs: a table of them, each a class, and how their files are found, read and stored.

The given files are only read. The graph made of them is stored in the cache folder, one ``.npz`` a
graph, and used for as long as the files do not change.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, atomic_folder, cache_folder
from fedvine.data.graph import Graph
from fedvine.data.io.cache import fingerprint
from fedvine.datasets import downloads, folders

Arrays = tuple[Any, Any, Any, Any]      # x, edges, y, the classes' names or None

_VERSION = 1    # of the stored graphs; with a new number every graph is made again


# -- sources of files ------------------------------------------------------------------------------
class Source:
    """Raw files; both functions raise the errors of the libraries that they use."""

    public = True       # whether they can be downloaded

    def read(self, raw: Path) -> Arrays:
        """Return features, edges, classes and their names from the files in ``raw``."""
        raise NotImplementedError

    def fetch(self, raw: Path) -> None:
        """Download the files into ``raw``."""
        raise NotImplementedError


class Pyg(Source):
    """A data set of PyTorch Geometric with one graph: class ``kind``, made with ``arguments``.

    Its classes write ``processed`` beside ``raw``, with pickles in it. Here only their two steps
    are called, ``download`` into a given folder and ``process`` from one, and nothing is written.
    """

    def __init__(self, kind: str, **arguments: Any) -> None:
        self.kind, self.arguments = kind, arguments

    def fetch(self, raw: Path) -> None:
        """Download the files into ``raw``."""
        self._dataset(raw, []).download()

    def read(self, raw: Path) -> Arrays:
        """Return features, edges, classes and no names."""
        found: list[Any] = []
        self._dataset(raw, found).process()
        data = found[0]
        return data.x.numpy(), data.edge_index.numpy(), data.y.numpy(), None

    def _dataset(self, raw: Path, found: list[Any]) -> Any:
        """Make the data set without its constructor's work; saving appends graphs to ``found``."""
        import torch_geometric.datasets as datasets
        kind = getattr(datasets, self.kind)
        return type(self.kind, (kind,), {
            "raw_dir": str(raw), "has_download": False, "has_process": False,
            "save": lambda _, graphs, path: found.extend(graphs), "load": lambda _, path: None,
        })(root=str(raw), **self.arguments)


class Npz(Source):
    """A file in the format of Platonov et al. (2023), public if it has a ``url``."""

    def __init__(self, file: str, url: str = "", sha256: str = "") -> None:
        self.file, self.url, self.sha256, self.public = file, url, sha256, bool(url)

    def fetch(self, raw: Path) -> None:
        """Download the file into ``raw``."""
        import pooch
        pooch.retrieve(self.url, self.sha256, self.file, raw)

    def read(self, raw: Path) -> Arrays:
        """Return the arrays of the file."""
        with np.load(raw / self.file, allow_pickle=False) as z:
            names = z["class_names"].tolist() if "class_names" in z else None
            return z["node_features"], z["edges"].T, z["node_labels"], names


class CsrParts(Source):
    """A file with features and neighbours as the parts of two CSR matrices."""

    public = False

    def __init__(self, file: str) -> None:
        self.file = file

    def read(self, raw: Path) -> Arrays:
        """Return the arrays of the file."""
        with np.load(raw / self.file, allow_pickle=False) as z:
            x, pointers = (csr_matrix((z[f"{of}_data"], z[f"{of}_indices"], z[f"{of}_indptr"]),
                                      z[f"{of}_shape"]) for of in ("attr", "adj"))
            return x, np.stack(pointers.nonzero()), z["labels"], z["class_names"].tolist()


class Ogb(Source):
    """OGB's archive of three tables without a header: a row an edge, or a row a node."""

    def __init__(self, url: str, files: tuple[str, str, str]) -> None:
        self.url, self.files = url, files

    def fetch(self, raw: Path) -> None:
        """Download the archive and unpack its tables into ``raw``."""
        import pooch
        members = [f"arxiv/raw/{file}" for file in self.files]
        with tempfile.TemporaryDirectory() as folder:
            pooch.retrieve(self.url, None, "arxiv.zip", folder,
                           processor=pooch.Unzip(members, "unzipped"))
            for member in members:
                shutil.move(Path(folder, "unzipped", member), raw)

    def read(self, raw: Path) -> Arrays:
        """Return the tables as arrays, without names of classes."""
        edges, x, y = (np.loadtxt(raw / file, kind, delimiter=",", ndmin=2) for file, kind
                       in zip(self.files, (np.int64, np.float32, np.int64), strict=True))
        return x, edges.T, y[:, 0], None


# -- loading ---------------------------------------------------------------------------------------
class LabelledGraph:
    """A labelled graph made of files; those of the table below are derived from it.

    Attributes:
        name: the data set's name.
        SPLIT: arguments of ``graph.split``.
        STAGES: number of classes a task.
        SHARES: of a class's nodes for training, validation and test.
        PLACE: the raw folder below FEDVINE_DATA.
        FILES: names of the files; a mapping has the SHA-256 of each, and no other bytes are read.
        ORIGIN: where the files come from, for error messages.
        SOURCE: what reads and downloads them.
    """

    name: ClassVar[str]
    SPLIT: ClassVar[dict[str, Any]]
    STAGES: ClassVar[int]
    SHARES: ClassVar[tuple[float, float, float]]
    PLACE: ClassVar[str]
    FILES: ClassVar[Iterable[str]]
    ORIGIN: ClassVar[str]
    SOURCE: ClassVar[Source]

    @classmethod
    def load(cls, folder: Path | None = None) -> Graph:
        """Return the graph; its node numbers are those of the files.

        ``folder`` is the raw folder or any folder above it; by default ``PLACE`` below
        ``$FEDVINE_DATA`` and the cache are searched, and files that are not found are downloaded
        into the cache. Raises :class:`FedvineError` if files are missing, cannot be downloaded or
        read, or are not the published ones.
        """
        raw = cls._raw(folder)
        files = [raw / file for file in cls.FILES]
        store = cache_folder() / f"{cls.name}-{fingerprint(files, _VERSION)}.npz"
        graph = _opened(store, cls.name)
        if graph is None:
            graph = cls._made(raw)
            _write(graph, store)
        return graph

    @classmethod
    def arrays(cls, raw: Path) -> Arrays:
        """Return the arrays of the graph from its raw folder."""
        return cls.SOURCE.read(raw)

    @classmethod
    def _missing(cls, folder: Path) -> list[str]:
        return [file for file in cls.FILES if not (folder / file).is_file()]

    @classmethod
    def _raw(cls, folder: Path | None) -> Path:
        """Return a folder with all files: one that is there, or one that is downloaded now."""
        downloaded = cache_folder() / "downloads" / cls.PLACE
        parts = Path(cls.PLACE).parts
        places = [base.joinpath(*parts[i:]) for base in folders(folder, "")
                  for i in range(len(parts) + 1)] + ([downloaded] if folder is None else [])
        for place in places:
            if not cls._missing(place):
                return place
        if folder is not None:
            lacking = min(map(cls._missing, places), key=len)
            raise FedvineError(f"{folder} holds no {', '.join(lacking)}; {cls.name} needs "
                               f"{'it' if len(lacking) == 1 else 'them'}, from {cls.ORIGIN}.")
        cls._download(downloaded)
        return downloaded

    @classmethod
    def _download(cls, target: Path) -> None:
        """Download the files: all of them or none."""
        put = (f"put {', '.join(cls.FILES)} (from {cls.ORIGIN}) below FEDVINE_DATA in {cls.PLACE}, "
               "or name the folder.")
        if not cls.SOURCE.public:
            raise FedvineError(f"{cls.name} was not found and cannot be downloaded; {put}")
        downloads(cls.name)
        with atomic_folder(target) as folder:
            try:
                cls.SOURCE.fetch(folder)
            except Exception as error:  # any error of a library for downloads
                raise FedvineError(f"{cls.name} could not be downloaded ({type(error).__name__}); "
                                   f"{put}") from error
            if lacking := cls._missing(folder):
                raise FedvineError(f"The download of {cls.name} came without "
                                   f"{', '.join(lacking)}; {put}")

    @classmethod
    def _made(cls, raw: Path) -> Graph:
        again = f"delete the files in {raw} and get them again from {cls.ORIGIN}."
        for file, known in cls.FILES.items() if isinstance(cls.FILES, Mapping) else ():
            if hashlib.sha256((raw / file).read_bytes()).hexdigest() != known:
                raise FedvineError(f"{raw / file} is not the published file (its SHA-256 is "
                                   f"another); {again}")
        with warnings.catch_warnings():     # of libraries: old formats, files they leave open
            warnings.simplefilter("ignore")
            try:
                x, edges, y, classes = cls.arrays(raw)
            except MemoryError:
                raise
            except Exception as error:      # any error of a library at a damaged file
                traceback.clear_frames(error.__traceback__)     # this closes the files
                raise FedvineError(f"{cls.name} could not be read ({type(error).__name__}: "
                                   f"{' '.join(str(error).split())}); {again}") from error
        return Graph.make(x, edges, y, classes=classes, name=cls.name)


class Words(LabelledGraph):
    """A labelled graph with features 0 or 1, as a SciPy CSR matrix."""

    @classmethod
    def load(cls, folder: Path | None = None, normalise: bool = False) -> Graph:
        """Return the graph, each row divided by its sum (unless it is 0) with ``normalise``."""
        graph = super().load(folder)
        if not normalise:
            return graph
        x = csr_matrix(graph.x)
        total = np.asarray(x.sum(1)).reshape(-1)
        data = x.data / np.repeat(total, np.diff(x.indptr))
        return replace(graph, x=csr_matrix((data, x.indices, x.indptr), x.shape))

    @classmethod
    def arrays(cls, raw: Path) -> Arrays:
        """Return the arrays with sparse features."""
        x, edges, y, names = super().arrays(raw)
        return csr_matrix(x), edges, y, names


def _write(graph: Graph, store: Path) -> None:
    x = graph.x
    arrays: dict[str, Any] = ({"data": x.data, "indices": x.indices, "indptr": x.indptr,
                               "shape": x.shape} if isinstance(x, csr_matrix) else {"x": x})
    with atomic(store) as file:
        np.savez(file, edges=graph.edges, y=graph.y, classes=np.array(graph.classes), **arrays)


def _opened(store: Path, name: str) -> Graph | None:
    """Open the stored graph; None, so that it is made again, if it is missing or damaged."""
    try:
        with open(store, "rb") as file, np.load(file, allow_pickle=False) as z:
            x = z["x"] if "x" in z else csr_matrix((z["data"], z["indices"], z["indptr"]),
                                                   z["shape"])
            y = z["y"]
            return Graph(x, z["edges"], y, tuple(z["classes"].tolist()), np.arange(len(y)), name)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


# -- the table -------------------------------------------------------------------------------------
class Cora(Words):
    """Cora: 2,708 papers on machine learning and their citations; 7 classes are their topics.

    Source: P. Sen et al., "Collective Classification in Network Data", AI Magazine 29(3), 2008, in
    the form of Z. Yang, W. Cohen, R. Salakhutdinov, ICML 2016,
    https://github.com/kimiyoung/planetoid (MIT), as ``Planetoid`` of PyTorch Geometric reads it.

    The 1,433 features are words that occur or not. The graph has 5,278 edges: the published 5,429
    count the entries of the file, of which 151 are repeats. Split and shares are those of POWER's
    Table 1, two classes (``STAGES``) a task; one class is left over.
    """

    name: ClassVar[str] = "cora"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 3}, 2, (0.2, 0.4, 0.4)
    PLACE, ORIGIN = "Planetoid/Cora/raw", "github.com/kimiyoung/planetoid, folder data"
    SOURCE = Pyg("Planetoid", name="Cora")
    # Pickles: only files with exactly these bytes are opened.
    FILES: ClassVar = {f"ind.cora.{part}": digest for part, digest in {
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    }.items()}


class CiteSeer(Words):
    """CiteSeer: 3,327 papers on computer science and their citations; 6 classes are their fields.

    Source: P. Sen et al., "Collective Classification in Network Data", AI Magazine 29(3), 2008, in
    the form of Z. Yang, W. Cohen, R. Salakhutdinov, ICML 2016,
    https://github.com/kimiyoung/planetoid (MIT), as ``Planetoid`` of PyTorch Geometric reads it.

    The 3,703 features are words that occur or not. The graph has 4,552 edges: the published 4,732
    count the entries of the file, of which 124 join a paper to itself and 56 are repeats. 48 papers
    have no edge. 15 others have neither features nor a class in the files; PyTorch Geometric, and
    so every score that was published with it, takes them for class 0, and so does this. Split and
    shares are those of POWER's Table 1, two classes (``STAGES``) a task.
    """

    name: ClassVar[str] = "citeseer"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 3}, 2, (0.2, 0.4, 0.4)
    PLACE, ORIGIN = "Planetoid/CiteSeer/raw", "github.com/kimiyoung/planetoid, folder data"
    SOURCE = Pyg("Planetoid", name="CiteSeer")
    # Pickles: only files with exactly these bytes are opened.
    FILES: ClassVar = {f"ind.citeseer.{part}": digest for part, digest in {
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    }.items()}


class Computers(Words):
    """Computers: 13,752 goods of Amazon, and which are bought together; 10 classes are categories.

    Source: O. Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018,
    https://github.com/shchur/gnn-benchmark (MIT), from J. McAuley et al., SIGIR 2015, as ``Amazon``
    of PyTorch Geometric reads it.

    The 767 features are words of the reviews that occur or not; there are 245,861 edges, and 281
    goods have none. POWER's Table 1, whose split and shares these are (two classes a task), gives
    13,381 nodes and 245,778 edges: those of the largest connected component.
    """

    name: ClassVar[str] = "computers"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 3}, 2, (0.2, 0.4, 0.4)
    PLACE, ORIGIN = "Amazon/Computers/raw", "github.com/shchur/gnn-benchmark, folder data/npz"
    SOURCE = Pyg("Amazon", name="Computers")
    FILES = ("amazon_electronics_computers.npz",)


class Physics(Words):
    """Physics: 34,493 physicists joined by common papers; 5 classes are their fields.

    Source: O. Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018,
    https://github.com/shchur/gnn-benchmark (MIT), from the Microsoft Academic Graph, as
    ``Coauthor`` of PyTorch Geometric reads it.

    The 8,415 features are keywords of the papers that occur or not; there are 247,962 edges, as
    published, and the graph is connected. It is made dense for a moment when it is first read: that
    takes two gigabytes of memory. Split and shares are those of POWER's Table 1, two classes a
    task.
    """

    name: ClassVar[str] = "physics"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 10}, 2, (0.2, 0.4, 0.4)
    PLACE, ORIGIN = "Coauthor/Physics/raw", "github.com/shchur/gnn-benchmark, folder data/npz"
    SOURCE = Pyg("Coauthor", name="Physics")
    FILES = ("ms_academic_phy.npz",)


class Squirrel(Words):
    """Squirrel: 5,201 Wikipedia pages about squirrels and their links; 5 classes are their traffic.

    Source: B. Rozemberczki, C. Allen, R. Sarkar, "Multi-Scale Attributed Node Embedding", 2021, in
    the form of H. Pei et al., "Geom-GCN", ICLR 2020, https://github.com/graphdml-uiuc-jlu/geom-gcn
    (no licence stated), as ``WikipediaNetwork(geom_gcn_preprocess=True)`` of PyTorch Geometric
    reads it.

    The 2,089 features are nouns that occur or not; 165 pages have none. The file has 217,073 links,
    216,933 without the 140 of pages to themselves (POWER's Table 1), which makes 198,353 edges
    without direction. Many pages are copies of others, some in training and some in test: see
    ``squirrel_filtered``. Split and shares are those of POWER's Table 1, two classes a task.
    """

    name: ClassVar[str] = "squirrel"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 10}, 2, (0.48, 0.32, 0.2)
    PLACE = "WikipediaNetwork/squirrel/geom_gcn/raw"
    ORIGIN = "github.com/graphdml-uiuc-jlu/geom-gcn, folders new_data/squirrel and splits"
    SOURCE = Pyg("WikipediaNetwork", name="squirrel", geom_gcn_preprocess=True)
    FILES = ("out1_node_feature_label.txt", "out1_graph_edges.txt",     # PyG wants the splits, too
             *(f"squirrel_split_0.6_0.2_{i}.npz" for i in range(10)))


class SquirrelFiltered(Words):
    """Squirrel without copied pages: 2,223 Wikipedia pages and their links; 5 classes of traffic.

    Source: O. Platonov et al., "A Critical Look at the Evaluation of GNNs under Heterophily", ICLR
    2023, https://github.com/yandex-research/heterophilous-graphs (MIT). They found that many pages
    of ``squirrel`` are copies of others, so that the copy of a test page is often in training.

    The 2,089 features are nouns that occur or not; there are 46,998 edges, as published. Split and
    shares are as for ``squirrel``, but its scores are not those of Squirrel: report which one it
    was.
    """

    name: ClassVar[str] = "squirrel_filtered"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 10}, 2, (0.48, 0.32, 0.2)
    PLACE = "HeterophilousGraphs-filtered/raw"
    ORIGIN = "https://github.com/yandex-research/heterophilous-graphs, folder data"
    SOURCE = Npz("squirrel_filtered.npz", "https://github.com/yandex-research/"
                 "heterophilous-graphs/raw/main/data/squirrel_filtered.npz",
                 "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7")
    FILES = ("squirrel_filtered.npz",)


class Flickr(LabelledGraph):
    """Flickr: 89,250 pictures, joined where they have something in common; 7 classes are subjects.

    Source: H. Zeng et al., "GraphSAINT", ICLR 2020, https://github.com/GraphSAINT/GraphSAINT (its
    code is MIT; no licence is stated for the data), from J. McAuley, J. Leskovec, ECCV 2012, as
    ``Flickr`` of PyTorch Geometric reads it.

    The 500 features are a bag of words, made dense by its authors; two pictures are joined if they
    share a place, a gallery or a person who commented on both. The counts are published ones, not
    counted here: 899,756 edges, or half of that if each counts once, as it does in a graph here.
    Split and shares are those of POWER's Table 1, two classes a task.
    """

    name: ClassVar[str] = "flickr"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 10}, 2, (0.6, 0.2, 0.2)
    PLACE, ORIGIN = "Flickr/raw", "the folder that github.com/GraphSAINT/GraphSAINT links to"
    SOURCE = Pyg("Flickr")
    FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")


class RomanEmpire(LabelledGraph):
    """Roman-empire: 22,662 words of an article and how they are related; 18 classes are roles.

    Source: O. Platonov et al., "A Critical Look at the Evaluation of GNNs under Heterophily", ICLR
    2023, https://github.com/yandex-research/heterophilous-graphs (MIT), as PyTorch Geometric's
    ``HeterophilousGraphDataset`` reads it. The text is Wikipedia's article on the Roman Empire.

    A node is a word, an edge joins it to the next word or to the one it depends on in the sentence
    (32,927 edges); the 300 features are its fastText vector and the class is its syntactic role.
    The counts are published ones, not counted here. Split and shares are those of POWER's Table 1,
    six classes a task.
    """

    name: ClassVar[str] = "roman_empire"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 5}, 6, (0.5, 0.25, 0.25)
    PLACE = "HeterophilousGraphDataset/roman_empire/raw"
    ORIGIN = "github.com/yandex-research/heterophilous-graphs, folder data"
    SOURCE = Pyg("HeterophilousGraphDataset", name="Roman-empire")
    FILES = ("roman_empire.npz",)


class OgbnArxiv(LabelledGraph):
    """ogbn-arxiv: 169,343 papers on computer science and their citations; 40 classes are areas.

    Source: W. Hu et al., "Open Graph Benchmark", NeurIPS 2020, https://ogb.stanford.edu (ODC-BY),
    from the Microsoft Academic Graph. OGB's own tables are read: its package is not needed.

    The 128 features are the mean of the vectors of the words in title and abstract. OGB counts
    1,166,243 citations, which have a direction; edges here have none, and where two papers cite
    each other there is one. POWER's Table 1, whose split and shares these are (ten classes a task),
    gives 231,559 edges, which is neither. The counts are published ones, not counted here.
    """

    name: ClassVar[str] = "ogbn_arxiv"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 5}, 10, (0.6, 0.2, 0.2)
    PLACE = "ogbn_arxiv/raw"     # where OGB's package puts the tables below its root
    FILES = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")
    ORIGIN = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
    SOURCE = Ogb(ORIGIN, FILES)


class Digits(LabelledGraph):
    """1,797 handwritten digits, each joined to the five most similar; 10 classes. No download.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998,
    https://doi.org/10.24432/C50P49 (CC BY 4.0): the test part, as it comes with scikit-learn.

    A picture has 64 features, 8 x 8 shades from 0 to 1 (in steps of 1/16). Two are joined if one is
    among the five nearest of the other, by Euclidean distance; of equal ones the earlier is taken.
    A graph for trials that is there on every machine: 6,309 edges. Three clients, two classes a
    task.
    """

    name: ClassVar[str] = "digits"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 3}, 2, (0.2, 0.4, 0.4)

    @classmethod
    def load(cls, folder: Path | None = None) -> Graph:
        """Return the graph, with dense features; raise if a ``folder`` is given."""
        if folder is not None:
            raise FedvineError("The digits come with scikit-learn; leave out the folder.")
        from sklearn.datasets import load_digits
        found: Any = load_digits()
        shades = found.data     # whole numbers from 0 to 16, so the distances are exact
        length = (shades ** 2).sum(1)
        distance = length[:, None] + length - 2 * shades @ shades.T
        np.fill_diagonal(distance, np.inf)
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :5]
        ends = np.repeat(np.arange(len(shades)), 5), nearest.reshape(-1)
        return Graph.make(shades / 16, np.stack(ends), found.target, name="digits")


class WordNet(Words):
    """WordNet 3.0's 117,659 synsets and their pointers; 45 classes. A substitute, not a benchmark.

    It replaces Flickr and ogbn-arxiv, large and with many classes. It is not a published benchmark:
    never report its scores under the name of one.

    Source: Princeton WordNet 3.0, https://wordnet.princeton.edu (WordNet 3.0 licence: free use with
    its notice), files ``data.noun``, ``data.verb``, ``data.adj`` and ``data.adv``, in this order. A
    node is a synset, an edge any pointer between two of them (183,789; 1,009 synsets have none),
    the class is its lexicographer file (``lex_filenum``). The 500 features are the most frequent
    words of the glosses, without stop words, that occur or not; 15,931 synsets have none. Split and
    shares are ogbn-arxiv's in POWER's Table 1; ten classes a task leave five over.
    """

    name: ClassVar[str] = "wordnet"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 5}, 10, (0.6, 0.2, 0.2)
    PLACE, ORIGIN = "WordNet/raw", "Princeton WordNet 3.0 (fedvine show wordnet tells how)"
    SOURCE = CsrParts("wordnet30_synsets.npz")
    FILES = ("wordnet30_synsets.npz",)


class UdEwt(LabelledGraph):
    """22,072 words of web texts and how they are related; 18 classes. A substitute, no benchmark.

    It replaces Roman-empire, by its recipe from another text. It is not a published benchmark:
    never report its scores under that name.

    Source: Universal Dependencies, English Web Treebank, ``en_ewt-ud-dev.conllu``,
    https://github.com/UniversalDependencies/UD_English-EWT (CC BY-SA 4.0, which holds for this
    graph too), by N. Silveira et al., LREC 2014. A node is a word, punctuation left out; an edge
    joins it to the next word or to its head (33,502 edges); the class is its relation to the head,
    one of the 17 most frequent or another. The 300 features are a word vector from co-occurrence in
    all of the treebank and WordNet's glosses (PPMI and SVD). Split and shares are Roman-empire's in
    POWER's Table 1.
    """

    name: ClassVar[str] = "ud_ewt"
    SPLIT, STAGES, SHARES = {"by": "louvain", "k": 5}, 6, (0.5, 0.25, 0.25)
    PLACE, ORIGIN = "UD-EWT-words/raw", "UD_English-EWT (fedvine show ud_ewt tells how)"
    SOURCE = Npz("ud_ewt_dev_words.npz")
    FILES = ("ud_ewt_dev_words.npz",)
