"""The compiled partitioners: owners, capacities, shapes, the best cuts there are, and METIS."""

from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.spec import load
from fedvine.partitions import colearn, multilevel
from fedvine.partitions._graph import adjacency, place, quality
from fedvine.partitions.multilevel import first_cut

ORDERS = ("mincut_first", "balance_first", "label_first")


def random_edges(count, edges, seed):
    """Edges [2, E] among ``count`` nodes, without loops and repeats; few nodes have most."""
    draw = rng("edges", seed)
    ends = (draw.random((2, edges)) ** 2 * count).astype(int)
    low, high = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    return np.stack([low, high])


def planted(groups=4, size=60, chords=6, between=10, seed=0):
    """Groups of the same volume in mixed order, and who is in which.

    In a group each node has ``chords`` random steps to others, the same for all; and the first
    ``between`` nodes of a group have an edge to those of the next.
    """
    draw = rng("planted", seed)
    mixed = draw.permutation(groups * size).reshape(groups, size)
    steps = draw.choice(np.arange(1, (size + 1) // 2), chords, replace=False)
    inside = [np.stack([row, np.roll(row, s)]) for row in mixed for s in steps]
    across = [np.stack([mixed[g, :between], mixed[(g + 1) % groups, :between]])
              for g in range(groups)]
    group = np.empty(groups * size, int)
    group[mixed] = np.arange(groups)[:, None]
    return np.concatenate(inside + across, axis=1), group


def fits_nowhere_else(owner, volume, k, capacity):
    """True if nothing that is in a part above ``capacity`` fits into another part."""
    load = np.bincount(owner, volume, minlength=k)
    return all(load[p] <= capacity or not any(
        q != p and load[q] + volume[u] <= capacity
        for u in np.flatnonzero((owner == p) & (volume > 0)) for q in range(k)) for p in range(k))


some_graph = {"count": st.integers(1, 60), "density": st.integers(0, 5), "k": st.integers(1, 9),
              "seed": st.integers(0, 9)}


@settings(max_examples=60)
@given(**some_graph, balance=st.sampled_from([1.0, 1.02, 1.3]), wide=st.booleans(),
       weighted=st.booleans(), heavy=st.booleans())
def test_multilevel_gives_every_node_a_part_with_room(count, density, k, seed, balance, wide,
                                                      weighted, heavy):
    """Also with volumes of their own, which nodes without edges may have too."""
    indptr, indices = adjacency(random_edges(count, density * count, seed), count)
    row = np.repeat(np.arange(count), np.diff(indptr))
    weights = (row * indices % 5 + 1) if weighted else None
    own = rng("volume", seed).integers(0, 9, count) ** 2 if heavy else None
    owner = multilevel.parts(indptr.astype(np.int64 if wide else np.int32), indices, k, seed,
                             weights=weights, volume=own, balance=balance)
    assert owner.shape == (count,) and owner.dtype == np.int32
    assert owner.min() >= 0 and owner.max() < k
    if k <= count:
        assert len(np.unique(owner)) == k
    volume = np.bincount(row, weights, minlength=count).astype(int) if own is None else own
    capacity = max(int(volume.sum() * balance / k), -(-volume.sum() // k))
    assert fits_nowhere_else(owner, volume, k, capacity)
    assert (owner == multilevel.parts(indptr, indices, k, seed, weights=weights, volume=own,
                                      balance=balance)).all()


def test_a_heavy_edge_is_not_cut():
    """A ring of 400 nodes, every fifth edge light: only light ones are cut."""
    ends = np.stack([np.arange(400), np.roll(np.arange(400), -1)])
    heavy = {frozenset((int(a), int(b))): 1 if a % 5 == 4 else 50 for a, b in ends.T}
    indptr, indices = adjacency(ends, 400)
    row = np.repeat(np.arange(400), 2)
    weights = [heavy[frozenset((int(a), int(b)))] for a, b in zip(row, indices, strict=True)]
    owner = multilevel.parts(indptr, indices, 4, 0, weights=np.array(weights))
    cut = ends[0][owner[ends[0]] != owner[ends[1]]]
    assert len(cut) == 4 and (cut % 5 == 4).all()


@pytest.mark.parametrize("seed", range(4))
def test_planted_groups_are_found(seed):
    for size in (40, 700):                              # small from the start, and levels above it
        ends, group = planted(size=size, seed=seed)
        owner = multilevel.parts(*adjacency(ends, len(group)), 4, seed)
        assert len(np.unique(owner * 4 + group)) == 4
        found = quality(*adjacency(ends, len(group)), owner, 4)
        assert found["cut"] == pytest.approx(40 / ends.shape[1]) and found["cov"] == 0


def test_the_cov_is_kept_for_any_number_of_parts():
    links = adjacency(random_edges(4000, 40_000, 1), 4000)
    for k in (2, 4, 7, 20):
        assert quality(*links, multilevel.parts(*links, k, 0), k)["cov"] <= 0.051


@pytest.mark.parametrize("find", [multilevel.parts, colearn.parts])
def test_corners(find):
    none = np.zeros(1, np.int64), np.empty(0, np.int32)
    assert find(*none, 3, 0).tolist() == []
    bare = np.zeros(8, np.int64), np.empty(0, np.int32)
    assert sorted(np.bincount(find(*bare, 3, 0))) == [2, 2, 3]
    indptr, indices = adjacency(random_edges(50, 100, 0), 50)
    assert find(indptr, indices, 1, 0).tolist() == [0] * 50
    assert sorted(find(indptr, indices, 50, 0)) == list(range(50))
    assert find(indptr, indices, 70, 0).max() < 70
    wide = np.concatenate([indptr, np.full(600, indptr[-1])])      # 600 nodes without edges
    sizes = np.bincount(find(wide, indices, 3, 0)[50:], minlength=3)
    assert sizes.min() > 150
    with pytest.raises(ValueError, match="part"):
        find(indptr, indices, 0, 0)


def test_a_balance_below_the_mean_is_refused():
    with pytest.raises(ValueError, match=r"balance of 0\.9"):
        multilevel.parts(*adjacency(random_edges(9, 9, 0), 9), 2, 0, balance=0.9)


def obvious_place(neighbours, owner, k, capacity):
    """`place` as its docstring says it, with dictionaries."""
    owner = dict(enumerate(int(p) for p in owner))
    old = {u for u in owner if owner[u] >= 0}
    load = {p: sum(len(neighbours[u]) for u in old if owner[u] == p) for p in range(k)}
    size = {p: sum(owner[u] == p for u in old) for p in range(k)}
    new = [u for u in owner if u not in old]
    wave = [u for u in new if any(v in old for v in neighbours[u])]
    for i in range(len(new)):
        if i == len(wave):
            wave.append(next(u for u in new if u not in wave))
        u = wave[i]
        room = [p for p in range(k) if load[p] + len(neighbours[u]) <= capacity]
        one = [owner[v] for v in neighbours[u] if owner[v] >= 0]
        two = [owner[w] for v in neighbours[u] for w in neighbours[v] if owner[w] >= 0]
        votes = next((v for v in (one, two) if set(v) & set(room)), [])
        fitting = [p for p in room if p in votes] or range(k)
        owner[u] = min(fitting, key=lambda p: (-votes.count(p), load[p], size[p], p))
        load[owner[u]] += len(neighbours[u])
        size[owner[u]] += 1
        wave += [v for v in neighbours[u] if v not in old and v not in wave]
    return np.array([owner[u] for u in range(len(owner))], np.int32)


@pytest.mark.slow
@settings(max_examples=150)
@given(**some_graph, share=st.sampled_from([0.1, 0.5, 1.0]),
       slack=st.sampled_from([None, 0.3, 1.0, 1.1, 9.0]))
def test_place_is_the_obvious_one_and_moves_nobody(count, density, k, seed, share, slack):
    indptr, indices = adjacency(random_edges(count, density * count, seed), count)
    draw = rng("owner", seed)
    owner = np.where(draw.random(count) < share, -1, draw.integers(0, k, count)).astype(np.int32)
    before = owner.copy()
    capacity = None if slack is None else int(slack * len(indices) / k)
    found = place(indptr, indices, owner, k, capacity=capacity)
    assert (owner == before).all()                              # the argument is left alone
    assert (found[owner >= 0] == owner[owner >= 0]).all()
    assert found.dtype == np.int32 and found.min() >= 0 and found.max() < k
    neighbours = [list(map(int, row)) for row in np.split(indices, indptr[1:-1])]
    if capacity is None:
        capacity = -(-len(indices) * 103 // (100 * k))
    assert (found == obvious_place(neighbours, owner, k, capacity)).all()


def test_place_refuses_what_is_no_partition():
    links = adjacency(random_edges(5, 9, 0), 5)
    with pytest.raises(ValueError, match=r"from 0 to 3"):
        place(*links, np.array([0, 1, 2, 3, 0]), 3)
    with pytest.raises(ValueError, match="5 nodes and the partition 4"):
        place(*links, np.zeros(4, int), 3)


def test_quality_by_hand():
    """Two triangles with an edge between them, and a node alone."""
    ends = np.array([[0, 1, 0, 3, 4, 3, 2], [1, 2, 2, 4, 5, 5, 3]])
    found = quality(*adjacency(ends, 7), np.array([0, 0, 0, 1, 1, 1, 1]), 2,
                    np.array([0, 0, 1, 1, 1, 1, -1]))
    third = log2(3) / 3 + log2(1.5) * 2 / 3
    assert found == pytest.approx({"cut": 1 / 7, "cov": 0, "cov_inside": 0, "entropy": third / 2})
    uneven = quality(*adjacency(ends, 7), np.zeros(7, int), 2)
    assert uneven == {"cut": 0.0, "cov": 1.0, "cov_inside": 1.0}


@settings(max_examples=60)
@given(**some_graph, order=st.sampled_from(ORDERS), tau=st.sampled_from([0.0, 0.4]))
def test_colearn_gives_every_node_a_part(count, density, k, seed, order, tau):
    links = adjacency(random_edges(count, density * count, seed), count)
    y = rng("y", seed).integers(-1, 3, count)
    owner = colearn.parts(*links, k, seed, y=y, order=order, tau=tau)
    assert owner.shape == (count,) and owner.dtype == np.int32 and owner.min() >= 0
    assert len(np.unique(owner)) == min(k, count) or k > count
    assert (owner == colearn.parts(*links, k, seed, y=y, order=order, tau=tau)).all()


def test_colearn_grows_from_both_ends_of_a_path_and_meets_in_the_middle():
    path = np.stack([np.arange(9), np.arange(1, 10)])
    owner = colearn.parts(*adjacency(path, 10), 2, 0)
    assert np.count_nonzero(np.diff(owner)) == 1 and np.bincount(owner).tolist() == [5, 5]


@pytest.mark.parametrize(("order", "wanted"), [
    ("mincut_first", 0), ("balance_first", 1), ("label_first", 1)])
def test_colearn_settles_conflicts_by_the_order(order, wanted):
    """Parts grow from 0 and 4 and reach 2 at once: from 1 and 5, and from 3.

    The part of 0 has more of its neighbours, but also more volume, and only nodes of its class 1.
    """
    ends = np.array([[0, 0, 1, 5, 1, 2, 3], [1, 5, 2, 2, 5, 3, 4]])
    y = np.array([1, 1, 1, 0, 0, 1])
    from fedvine.partitions.colearn import components, grow
    links = adjacency(ends, 6)
    owner, counts = np.full(6, -1, np.int32), np.zeros((2, 3), np.int64)
    grow(*links, *components(*links), np.array([0, 4], np.int32), y, owner, counts,
         ORDERS.index(order))
    assert owner.tolist() == [0, 0, wanted, 1, 1, 0]
    assert counts[:, :2].sum() == 6


def test_colearn_joins_components_and_counts_no_joint():
    """Growth crosses from clique to clique, and cuts cliques alone, each at most once a part."""
    low, high = np.triu_indices(5, 1)
    ends = np.concatenate([np.stack([low, high]) + 5 * c for c in range(40)], axis=1)
    links = adjacency(ends, 203)                        # and three nodes alone
    owner = colearn.parts(*links, 2, 1)
    cliques = owner[:200].reshape(40, 5)
    split = cliques.min(1) != cliques.max(1)
    assert split.sum() <= 2 and len(np.unique(cliques)) == 2
    assert quality(*links, owner, 2)["cut"] <= 2 * 6 / 400
    smaller = np.bincount(owner[:200]).argmin()
    assert (owner[200:] == smaller).all()


def test_colearn_refines_what_tau_lets_it_and_cuts_no_more():
    """Appendix B: refinement spreads classes; a high threshold moves nobody."""
    ends, _ = planted(size=100, between=90)
    links = adjacency(ends, 400)
    y = rng("classes").integers(0, 4, 400)
    strict, loose = (colearn.parts(*links, 4, 0, y=y, tau=t) for t in (1.0, 0.0))
    assert (strict != loose).any()
    assert quality(*links, loose, 4)["cut"] <= quality(*links, strict, 4)["cut"]
    assert quality(*links, loose, 4)["cov"] <= quality(*links, strict, 4)["cov"]


def test_an_unknown_order_is_named():
    with pytest.raises(ValueError, match=r'no order called "mincut".*mincut_first'):
        colearn.parts(*adjacency(random_edges(5, 9, 0), 5), 2, 0, order="mincut")  # type: ignore


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
