"""The first cut of a small graph: against slow obvious ones, the best there is, and METIS."""

import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.spec import load
from fedvine.partitions import multilevel
from fedvine.partitions._graph import adjacency, quality
from fedvine.partitions.multilevel import between, first_cut, grown, swap


def some(count, density, seed, heavy=False):
    """``(links, volume)``: random edges with weights 1 to 5; hubs, and nodes without edges."""
    draw = rng("first cut", seed, count, density)
    ends = (draw.random((2, density * count)) ** 2 * count).astype(int)
    indptr, indices = adjacency(ends, count)
    row = np.repeat(np.arange(count), np.diff(indptr))
    volume = draw.integers(0, 9, count) ** 2 if heavy else np.ones(count, np.int64)
    return (indptr, indices, (row * indices % 5 + 1).astype(np.int64)), volume


def edges(links):
    """Each edge once, as ``(low, high, weight)``."""
    indptr, indices, weights = links
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return [(int(a), int(b), int(w)) for a, b, w in zip(row, indices, weights, strict=True)
            if a < b]


def weight_between(links, owner):
    return sum(w for a, b, w in edges(links) if owner[a] != owner[b])


def capacity_of(volume, k, balance=1.03):
    return max(int(volume.sum() * balance / k), -(-int(volume.sum()) // k))


graphs = {"count": st.integers(1, 40), "density": st.integers(0, 5), "seed": st.integers(0, 50),
          "heavy": st.booleans()}


@settings(max_examples=60)
@given(**graphs, share=st.sampled_from([0.3, 0.5]), tight=st.booleans(),
       patience=st.sampled_from([1, 5, 50]))
def test_moves_between_sides_cut_no_more_and_say_what_they_cut(count, density, seed, heavy, share,
                                                               tight, patience):
    """With or without room to begin with; and they make room where there is none."""
    links, volume = some(count, density, seed, heavy)
    side = rng("side", seed).integers(0, 2, count).astype(np.int32)
    total = int(volume.sum())
    room = (np.array([share, 1 - share]) * total * (1.0 if tight else 1.3)).astype(np.int64) + 1
    was = np.maximum(np.bincount(side, volume, minlength=2) - room, 0).sum()
    before = was, weight_between(links, side)
    excess, cut = swap(*links, volume, side, room, 10, patience)
    load = np.bincount(side, volume, minlength=2)
    assert excess == np.maximum(load - room, 0).sum()
    assert cut == weight_between(links, side) == between(*links, side)
    assert (excess, cut) <= before
    assert set(side) <= {0, 1}


def test_moves_make_room():
    """All nodes on one side, each of volume 1: as many leave as have to."""
    links, volume = some(30, 2, 0)
    side = np.zeros(30, np.int32)
    assert swap(*links, volume, side, np.array([16, 16]), 3, 50)[0] == 0
    assert 14 <= side.sum() <= 16


def obvious_grown(links, volume, goal, room, order, free):
    """`grown` as its docstring says it, with sets."""
    weight = {}
    for a, b, w in edges(links):
        weight[a, b] = weight[b, a] = weight.get((a, b), 0) + w
    near = {u: {b: w for (a, b), w in weight.items() if a == u} for u in range(len(volume))}
    inside, refused = set(), set()

    def load():
        return sum(volume[u] for u in inside)

    for u in order:
        if not near[u] and load() + volume[u] <= free:
            inside.add(int(u))
    while load() < goal:
        left = [int(u) for u in order if u not in inside | refused]
        front = [u for u in left if near[u].keys() & inside]
        if not left:
            break
        u = min(front, default=left[0], key=lambda u: (
            sum(-w if v in inside else w for v, w in near[u].items()), u))
        (inside if load() + volume[u] <= room else refused).add(u)
    return np.array([0 if u in inside else 1 for u in range(len(volume))])


@settings(max_examples=60)
@given(**graphs, share=st.sampled_from([0.3, 0.5]), free=st.sampled_from([0, 0.1]),
       slack=st.sampled_from([0, 3]))
def test_a_side_grows_as_the_obvious_one(count, density, seed, heavy, share, free, slack):
    links, volume = some(count, density, seed, heavy)
    total = int(volume.sum())
    order = rng("order", seed).permutation(count).astype(np.int32)
    given = int(total * share), int(total * share) + slack, order, int(total * free)
    assert grown(*links, volume, *given).tolist() == obvious_grown(links, volume, *given).tolist()


@pytest.mark.parametrize("k", [2, 3])
def test_nearly_the_best_there_is(k):
    """All partitions of 9 nodes tried: mostly nothing cuts less within the same balance."""
    ratios = []
    for seed in range(25):
        links, volume = some(9, 3, seed)
        capacity = -(-9 // k)
        owner = first_cut(*links, volume, k, capacity, rng(seed))
        assert np.bincount(owner, minlength=k).max() <= capacity
        weight = np.zeros((9, 9))
        for a, b, w in edges(links):
            weight[a, b] += w
        every = np.array(list(product(range(k), repeat=9)))
        fits = (np.stack([(every == p).sum(1) for p in range(k)]) <= capacity).all(0)
        every = every[fits]
        cuts = ((every[:, :, None] != every[:, None, :]) * weight).sum((1, 2))
        ratios.append(weight_between(links, owner) / cuts.min())
    assert min(ratios) == 1 and np.mean(ratios) <= 1.02 and max(ratios) <= 1.2


def star(count):
    return np.stack([np.zeros(count - 1, int), np.arange(1, count)])


def cliques(sizes):
    first = np.cumsum([0, *sizes])
    return np.concatenate([np.stack(np.triu_indices(n, 1)) + f
                           for n, f in zip(sizes, first[:-1], strict=True)], axis=1)


UNEVEN = [3, 50, 7, 4, 30, 2, 2, 9, 20, 40, 11]
SHAPES = {      # edges, nodes, volume (None: edges)
    "fewer nodes than parts": (np.array([[0], [1]]), 3, None),
    "as many nodes as parts": (cliques([5]), 5, None),
    "no edge": (np.empty((2, 0), int), 40, None),
    "loops alone": (np.array([[0, 1], [0, 1]]), 40, None),
    "star": (star(300), 300, None),
    "cliques that nothing joins": (cliques(UNEVEN), sum(UNEVEN), None),
    "pairs": (np.arange(600).reshape(2, -1), 600, None),
    "path": (np.stack([np.arange(499), np.arange(1, 500)]), 500, None),
    "a hub that has half of the volume": (cliques([60]), 60, np.append(59, np.ones(59, int))),
    "volumes of all sizes": (cliques([80, 80]), 160, 2 ** (np.arange(160) % 9)),
    "nothing weighs": (cliques([70]), 70, np.zeros(70, int)),
    "few weigh": (cliques([50, 50]), 100, (np.arange(100) % 10 == 0).astype(int)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("k", [2, 5, 7])
def test_every_shape_is_balanced(name, k):
    """No part is above its capacity but by a node that is larger than that (here: the hub's)."""
    ends, count, volume = SHAPES[name]
    links = adjacency(ends, count)
    own = np.diff(links[0]) if volume is None else volume
    capacity = capacity_of(own, k, 1 + min(0.03, 0.05 / (k - 1) ** 0.5))
    for seed in range(3):
        owner = multilevel.parts(*links, k, seed, volume=volume)
        load = np.bincount(owner, own, minlength=k)
        assert len(load) == k and owner.min(initial=0) >= 0
        assert len(np.unique(owner)) == min(k, count)
        if count >= 10 * k:
            alone = own[[np.flatnonzero(owner == p)[own[owner == p].argmax()] for p in range(k)]]
            assert (load <= np.maximum(capacity, alone)).all()
        if own.sum() == 0:
            sizes = np.bincount(owner, minlength=k)
            assert sizes.min() >= 1
    if name == "no edge":
        assert np.ptp(np.bincount(multilevel.parts(*links, k, 0), minlength=k)) <= 1


def test_components_of_the_right_size_stay_whole():
    """Ten cliques of ten nodes among five parts, in mixed order."""
    mixed = rng("mixed").permutation(100)
    ends = mixed[cliques([10] * 10)]
    for seed in range(5):
        owner = multilevel.parts(*adjacency(ends, 100), 5, seed)
        assert (owner[ends[0]] == owner[ends[1]]).all()
        assert np.bincount(owner).tolist() == [20] * 5


def test_nothing_but_the_core_is_needed(monkeypatch):
    """The default partition of `dgcolearn` is for people who installed no extra."""
    monkeypatch.setitem(sys.modules, "pymetis", None)
    links, _ = some(400, 5, 1)
    assert len(np.unique(multilevel.parts(*links[:2], 4, 0))) == 4


@pytest.mark.slow
def test_cuts_no_more_than_metis(data):
    """Cora and CiteSeer, five seeds: METIS k-way with its defaults, balanced in edges as ours."""
    pymetis = pytest.importorskip("pymetis")
    for name in ("cora", "citeseer"):
        graph = load(name, data / "Planetoid")
        links = adjacency(graph.edges, len(graph))
        whole = pymetis.zero_copy_dtype()
        theirs = pymetis.CSRAdjacency(*(a.astype(whole) for a in links))
        for k in (2, 4, 16):
            cuts = {"ours": [], "metis": []}
            for seed in range(5):
                _, found = pymetis.part_graph(
                    k, theirs, vweights=np.diff(links[0]).astype(whole), recursive=False,
                    options=pymetis.Options(seed=seed))
                for who, owner in (("metis", np.array(found, np.int32)),
                                   ("ours", multilevel.parts(*links, k, seed))):
                    cuts[who].append(quality(*links, owner, k)["cut"])
            assert np.mean(cuts["ours"]) <= 1.01 * np.mean(cuts["metis"]), (name, k, cuts)
