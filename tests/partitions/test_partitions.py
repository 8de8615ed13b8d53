"""Nodes dealt to clients: each to one, nobody without, balanced, repeatable."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core import registry
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.spec import load
from fedvine.data.split import split
from fedvine.data.stream import EventStream
from fedvine.testing import tiny_stream

NAMES = ("louvain", "metis", "label_skew", "hash")
KERNELS = ("multilevel", "colearn")


def graph(count=60, edges=150, classes=4, seed=0, isolated=0, known=True):
    """Random edges among the first ``count`` nodes, then nodes without any."""
    draw = rng(seed, "graph")
    y = draw.integers(-1, classes if known else 0, count + isolated)
    return Graph.make(draw.normal(size=(count + isolated, 3)), draw.integers(0, count, (2, edges)),
                      y, classes=range(classes))


def blocks(k, size, seed=0):
    """``k`` dense groups of ``size`` nodes in mixed order, a ring of single edges between them."""
    mixed = rng(seed, "blocks").permutation(k * size).reshape(k, size)
    inside = [(g[i], g[j]) for g in mixed for i in range(size) for j in range(i)]
    between = [(mixed[i, 0], mixed[(i + 1) % k, 1]) for i in range(k)]
    group = np.empty(k * size, int)
    group[mixed] = np.arange(k)[:, None]
    return Graph.make(np.zeros((k * size, 1)), np.array(inside + between).T, group), group


def owners(name, made, k, seed=0):
    return registry.find("partitions", name).partition_nodes(made, k, seed)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(count=st.integers(1, 80), density=st.integers(0, 4), k=st.integers(1, 99),
       classes=st.integers(1, 4), known=st.booleans(), isolated=st.integers(0, 30),
       seed=st.integers(-2, 5))
def test_every_node_has_one_owner(name, count, density, k, classes, known, isolated, seed):
    """Also where there are no edges, no labels, one class, one client, or one node each."""
    made = graph(count, density * count, classes, seed, isolated, known)
    k = min(k, len(made))
    owner = owners(name, made, k, seed)
    assert owner.shape == (len(made),) and owner.dtype == np.int32
    load = np.bincount(owner, minlength=k)
    assert len(load) == k and load.min() >= 1                   # nobody has nothing
    assert (owner == owners(name, made, k, seed)).all()
    if name == "louvain" or not (known or name in ("hash", "metis")):
        assert load.max() - load.min() <= 1
    if name == "metis":
        assert load.max() <= len(made) / k * 1.1 + 2


@pytest.mark.parametrize("name", ["louvain", "metis"])
def test_communities_of_the_right_size_stay_whole(name):
    for seed in range(5):
        made, group = blocks(4, 12, seed)
        owner = owners(name, made, 4, seed)
        assert len(np.unique(owner * 4 + group)) == 4           # one client a group


@pytest.mark.parametrize("name", [*NAMES, "multilevel"])
def test_seeds_are_partitions_of_their_own(name):
    """A study over several partitions has several, also where clients are named alike."""
    def alike(owner):
        _, first, place = np.unique(owner, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[place].tobytes()
    made, stream = graph(300, 900), tiny_stream(2000)
    find = registry.find("partitions", name)
    for k in (3, 4):
        assert len({alike(owners(name, made, k, seed)) for seed in range(6)}) == 6
        if hasattr(find, "partition"):
            assert len({alike(find.partition(stream, k, seed)) for seed in range(4)}) == 4, name


@pytest.mark.slow
def test_the_same_in_another_process():
    code = ("import sys; sys.path.insert(0, sys.argv[1])\n"
            "from test_partitions import KERNELS, NAMES, graph, owners\n"
            "print(*(owners(n, graph(200, 500), 4, 3).tobytes().hex() for n in NAMES + KERNELS))")
    here = __file__.rsplit("/", 1)[0]
    told = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True,
                          check=True).stdout.split()
    assert told == [owners(n, graph(200, 500), 4, 3).tobytes().hex() for n in NAMES + KERNELS]


def test_isolated_nodes_go_where_room_is():
    """METIS alone would put them all in one part (DG-CoLearn, Appendix E.4)."""
    made, _ = blocks(3, 10)
    many = Graph.make(np.zeros((120, 1)), made.edges, np.zeros(120, int))
    for name in ("louvain", "metis"):
        assert np.bincount(owners(name, many, 3)[30:]).tolist() == [30, 30, 30]


def test_hash_keeps_the_owner_of_a_node_in_a_part_of_the_graph():
    made = graph(200, 400)
    some = np.arange(0, 200, 3)
    assert (owners("hash", made.induced(some), 4) == owners("hash", made, 4)[some]).all()


def test_alpha_says_how_uneven_labels_are():
    from fedvine.partitions.label_skew import partition_nodes
    made = graph(3000, 0)

    def largest_share(alpha):
        owner = partition_nodes(made, 3, 0, alpha)
        return np.mean([np.bincount(owner[made.y == c], minlength=3).max() / (made.y == c).sum()
                        for c in range(4)])
    assert largest_share(1e6) < 0.35 < largest_share(0.5) < largest_share(0.001)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="needs an alpha above 0"):
            partition_nodes(made, 3, 0, wrong)


@pytest.mark.parametrize("bipartite", [True, False])
@pytest.mark.parametrize("name", ["colearn", "multilevel", "louvain", "metis"])
def test_items_that_come_late_are_dealt_by_their_name(name, bipartite):
    """One more edge, of items that nobody knew: nobody else changes hands, and the hash has them.

    Both streams have the same first 70 %, which is what these partitions see.
    """
    draw = rng("late", bipartite)
    src, dst = draw.integers(0, 30, 1000), 30 + draw.integers(0, 40, 1000)
    dst[750:] = np.arange(100, 350)
    both = Ids.of(np.array([f"n{i}" for i in range(400)]))
    ids = (both, Ids.of(np.array([f"m{i}" for i in range(400)]))) if bipartite else (both,)
    stream = EventStream(src, dst, np.arange(1000), *ids)
    more = EventStream(np.append(src, 31), np.append(dst, 399), np.arange(1001), *ids)
    find = registry.find("partitions", name).partition
    owner = find(stream, 3, 0)
    assert (find(more, 3, 0) == owner).all()
    late = np.arange(100, 350)
    assert (owner[late] == registry.find("partitions", "hash").partition(stream, 3, 0)[late]).all()
    assert np.bincount(owner[late], minlength=3).min() > 50
    dealt = registry.find("partitions", "hash").partition(stream, 3, 0)
    assert (owner[30:70] != dealt[30:70]).any()


@pytest.mark.parametrize("name", ["louvain", "metis"])
def test_partitions_of_a_stream_see_the_first_edges_alone_and_drop_none(name):
    stream = tiny_stream(2000)
    find = registry.find("partitions", name).partition
    changed = EventStream(stream.src, np.concatenate(
        [stream.dst[:1400], stream.dst[1400:][::-1]]), stream.t, stream.src_ids, stream.dst_ids)
    assert (find(changed, 3, 0) == find(stream, 3, 0)).all()
    made = split(stream, name, k=3)
    assert sum(len(p) for p in made.parts.values()) == len(stream)
    assert made.report()["cov"] < 0.3


def test_without_pymetis_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ValueError, match=r'needs pymetis: pip install "fedvine\[metis\]"'):
        graph().split("metis")


@pytest.mark.parametrize("name", NAMES + KERNELS)
def test_parts_are_graphs_of_their_own(name):
    made = graph()
    split = made.split(name, 3)
    assert sorted(np.concatenate([p.nodes for p in split.parts.values()])) == list(range(60))
    for part in split.parts.values():
        old = part.nodes[part.edges]
        wanted = {tuple(e) for e in made.edges.T if np.isin(e, part.nodes).all()}
        assert {tuple(e) for e in old.T} == wanted
        assert (part.y == made.y[part.nodes]).all() and (part.x == made.x[part.nodes]).all()
    report = split.report()
    inside = sum(c["edges"] for c in report["clients"].values())
    assert report["cut"] == pytest.approx(1 - inside / made.edges.shape[1])


def test_an_unknown_partition_and_too_many_clients():
    with pytest.raises(ValueError, match=r'no column "luvain".*did you mean "louvain"'):
        graph().split("luvain")
    with pytest.raises(ValueError, match="60 nodes; it cannot be split among 99"):
        graph().split("louvain", 99)


def test_cora(data):
    """Communities cut few edges; hashes cut most; label skew makes labels uneven."""
    cora = load("cora", data / "Planetoid")
    found = {name: cora.split(name, 3).report() for name in NAMES}
    assert found["louvain"]["cut"] < 0.15 and found["metis"]["cut"] < 0.1
    assert found["hash"]["cut"] > 0.6
    assert found["louvain"]["cov"] < 0.001 and found["metis"]["cov"] < 0.01
    assert found["label_skew"]["entropy"] < found["hash"]["entropy"] - 0.2
