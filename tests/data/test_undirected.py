"""Edges without a direction: no self-loops, both ends asked, scores that do not know the order."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.data.identity import digest
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.spec import Data
from fedvine.data.split import split
from fedvine.data.stream import EventStream
from fedvine.datasets import snapshots
from fedvine.engines.local import LocalClients
from fedvine.engines.remote import first_seen_elsewhere
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import run
from fedvine.federation.site import Site
from fedvine.federation.site_saves import BLOCKS, SiteForecasts
from fedvine.methods._fedlink.rows import SIDES, make_batch
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.popularity import Popularity, Recency
from fedvine.nn.sage import BipartiteSage
from fedvine.results.view import tables
from fedvine.tasks import metrics
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.testing import PROTOCOL, tiny_stream

PLAN = Plan((0.0, 1000.0, 2000.0, 3000.0, 4000.0), val=2, test=3)


def contacts(edges=400, turned=False, seed=0):
    """Contacts of people, low number first; some with themselves. ``turned``: every other one is
    stored the other way round."""
    draw = np.random.default_rng(seed)
    t = np.sort(draw.integers(0, 4000, edges))
    a, b = (draw.integers(0, 12 + t // 200) for _ in range(2))
    src, dst = np.minimum(a, b).astype(np.int32), np.maximum(a, b).astype(np.int32)
    if turned:
        src[::2], dst[::2] = dst[::2].copy(), src[::2].copy()
    return EventStream(src, dst, t, Ids.of(np.arange(100, 140)), directed=False,
                       codes={"client": ((a + b) % 3).astype(np.int32)},
                       categories={"client": ["ada", "bob", "cyd"]}, name="contacts")


def test_a_stream_says_whether_its_edges_have_a_direction(tmp_path):
    stream = contacts()
    assert not EventStream.open(stream.write(tmp_path / "s") and tmp_path / "s").directed
    for some in (stream[3:9], stream.between(5, 900), stream.take(np.arange(5)),
                 stream.with_guests(["x"])):
        assert not some.directed
    assert stream.with_direction(True).directed and tiny_stream().directed
    assert digest(stream) != digest(stream.with_direction(True))
    with pytest.raises(FedvineError, match="only among nodes of one kind"):
        tiny_stream().with_direction(False)


def test_a_part_holds_each_edge_both_ways_round_and_no_self_loop():
    stream = contacts()
    found = split(stream, "client")
    loops = int((stream.src == stream.dst).sum())
    assert loops == stream.self_loops > 0
    pairs = []
    for part in found.parts.values():
        assert part.mirrored and not part.directed and part.both_ways() is part
        u, v = ([int(part.src_ids[n]) for n in ends] for ends in (part.src, part.dst))
        assert u[::2] == v[1::2] and u[1::2] == v[::2] and (part.t[::2] == part.t[1::2]).all()
        pairs += [tuple(sorted(p)) for p in zip(u[::2], v[::2], strict=True)]
    kept = stream.src != stream.dst
    assert sorted(pairs) == sorted((100 + int(a), 100 + int(b)) for a, b in zip(
        stream.src[kept], stream.dst[kept], strict=True))
    report = found.report()
    assert report["dropped"] == loops
    assert sum(c["edges"] for c in report["clients"].values()) == len(stream) - loops


@pytest.mark.slow
@pytest.mark.parametrize("by", ["hash", "louvain", "multilevel", "colearn", "metis"])
def test_whose_an_edge_is_does_not_depend_on_how_it_is_stored(by):
    if by == "metis":
        pytest.importorskip("pymetis")

    def owners(stream):
        return {(name, *sorted((part.src_ids[u], part.src_ids[v])), int(t))
                for name, part in split(stream, by, k=3).parts.items()
                for u, v, t in zip(part.src, part.dst, part.t, strict=True)}
    assert owners(contacts()) == owners(contacts(turned=True))


@pytest.mark.parametrize("many", [7, "all"])
def test_both_ends_are_asked_and_nobody_is_a_negative_of_itself(many):
    stream = contacts()
    part = split(stream, "client").parts["bob"]
    scorer = LinkPrediction(negatives=many, positives=9999).scorer(part, PLAN, "bob", 0)
    asked = scorer.queries(3)
    half = len(asked) // 2                          # all pairs, and all of them turned round
    assert (asked.src[:half] == asked.dst[half:]).all()
    assert (asked.dst[:half] == asked.src[half:]).all()
    stage, known = PLAN.stage(part, 3), set(PLAN.past(part, 2).src.tolist())
    ends = list(zip(stage.src.tolist(), stage.dst.tolist(), strict=True))
    assert sorted(ends) == sorted((v, u) for u, v in ends)
    wanted = [(u, v) for u, v in ends if v in known]    # from either end, about who was known
    Q, now = len(wanted), set(ends)
    positive = list(zip(asked.src[:Q].tolist(), asked.dst[:Q].tolist(), strict=True))
    assert sorted(positive) == sorted(wanted) and {u for u, _ in positive} - known
    others = list(zip(asked.src[Q:half].tolist(), asked.dst[Q:half].tolist(), strict=True))
    own = set(range(2 * Q, 4 * Q))                  # historical ones may be of other users
    assert all(u != v for n, (u, v) in enumerate(others))
    if many != "all":
        assert not now & {p for n, p in enumerate(others) if n + Q not in own}
    result = scorer.measure(3, np.zeros(len(asked)))
    assert result["n"]["n"] == Q and result["scores"]["auc"] == 0.5
    assert result["n"]["n_unknown"] == len(ends) - Q > 0


def test_scores_of_all_negatives_equal_a_slow_reference():
    part = split(contacts(), "client").parts["ada"]
    scorer = LinkPrediction(negatives="all", positives=9999).scorer(part, PLAN, "ada", 0)
    asked, draw = scorer.queries(3), np.random.default_rng(1)
    value = draw.normal(size=(part.num_src, part.num_src))
    score = (value + value.T) / 2
    stage, past = PLAN.stage(part, 3), PLAN.past(part, 2)
    known, pairs = set(past.src.tolist()), list(zip(stage.src.tolist(), stage.dst.tolist(),
                                                    strict=True))
    ranks = [1 + sum(score[u, w] > score[u, v] for w in known - {u} if (u, w) not in pairs)
             for u, v in pairs if v in known]
    found = scorer.measure(3, value[asked.src, asked.dst])["scores"]
    assert found["mrr"] == pytest.approx(metrics.mrr(ranks))


METHODS = [m for name in registry.names("methods") if (m := registry.method(name)).name
           and m.tiny().task == "link"]


@pytest.mark.parametrize("kind", METHODS, ids=lambda m: m.name)
def test_scores_do_not_depend_on_the_order_of_the_ends(kind):
    """Over every method of links: score(u, v) is score(v, u), and a run learns from such data."""
    stream = contacts()
    done = run(kind.tiny(), split(stream, "client"), PLAN, seed=3, protocol=PROTOCOL,
               engine=LocalClients).finish()
    name = "all" if kind.server_holds_graph else "bob"
    count = done.parts[name].num_src
    u, v = (x.reshape(-1) for x in np.meshgrid(np.arange(count), np.arange(count)))
    time = np.full(len(u), PLAN.bounds[-1])
    there, back = (np.asarray(found["scores"] if isinstance(found, dict) else found, float)
                   for found in (done.ask(name, {"src": a, "dst": b, "t": time})
                                 for a, b in ((u, v), (v, u))))
    np.testing.assert_allclose(there, back, rtol=1e-5, atol=1e-6)
    assert len(there) == len(u) and np.isfinite(there).all() and len(np.unique(there)) > 1
    assert done.summary["self_loops_left_out"] == stream.self_loops


def test_simple_rivals_know_both_directions():
    stream = contacts()
    parts = split(stream, "client")
    part = parts.parts["bob"]
    degree = np.zeros(part.num_src)
    met = {}
    for u, v, t in zip(part.src[::2], part.dst[::2], part.t[::2], strict=True):   # each edge once
        degree[u] += 1
        degree[v] += 1
        met[u, v] = met[v, u] = t
    u, v = (x.reshape(-1) for x in np.meshgrid(np.arange(part.num_src), np.arange(part.num_src)))
    pairs = {"src": u, "dst": v, "t": np.full(len(u), 4000.0)}

    def said(method):
        return run(method, parts, PLAN, protocol=PROTOCOL).finish().ask("bob", pairs)
    assert said(EdgeBank()).tolist() == [float(p in met) for p in zip(u, v, strict=True)]
    np.testing.assert_allclose(said(Popularity(decay=1.0)), (degree[u] + degree[v]) / 2)
    order = said(Recency())
    known = np.array([p in met for p in zip(u, v, strict=True)])
    assert order[known].min() >= 1 > order[~known].max()
    when = np.array([met[p] for p in zip(u[known], v[known], strict=True)])
    assert (np.diff(order[known][np.argsort(when, kind="stable")]) >= 0).all()


def test_what_is_known_of_travelled_people_counts_both_ends():
    parts = split(contacts(), "client").parts
    for name, part in parts.items():
        for n in range(part.num_src):
            person = part.src_ids[n]
            first = [int(t) for other, their in parts.items() if other != name
                     for u, v, t in zip(their.src, their.dst, their.t, strict=True)
                     if person in (their.src_ids[u], their.src_ids[v])]
            assert part.first_seen_elsewhere[n] == min(first, default=np.inf)


def test_a_persons_own_table(tmp_path):
    file = tmp_path / "met.csv"
    lines = ["src,dst,time", "ann,bob,1", "bob,ann,2", "cyd,cyd,3", "bob,cyd,4", "ann,cyd,5",
             "dan,ann,6", "bob,dan,7", "ann,bob,8"]
    file.write_text("\n".join(lines))
    stream = Data(source=str(file), undirected=True).open()
    assert not stream.directed and not stream.bipartite and stream.self_loops == 1
    made = Experiment.model_validate({
        "data": {"source": str(file), "undirected": True}, "method": "edgebank", "stages": 2,
        "split": {"by": "hash", "k": 1}})
    done = made.run(tmp_path / "run").finish()
    assert done.summary["self_loops_left_out"] == 1
    text = " ".join(str(t) for t in tables(done.summary, done.protocol))
    assert "n counts both. 1 edge from a node to itself is left out of the stream." in text
    for count, said in ((0, "n counts both."), (1234, "n counts both. 1,234 edges from a node to "
                                                      "itself are left out of the stream.")):
        text = tables(done.summary | {"self_loops_left_out": count}, done.protocol)[-1]
        assert text.endswith(said)
    assert done.predict("client-1", "cyd", 5)[0].item in ("ann", "bob")
    assert not Data(source=str(file), undirected=False).open().self_loops
    assert Data(source="uci").model_dump()["undirected"] is None


def test_data_sets_know_whether_their_edges_have_a_direction():
    day = np.array([[0, 1], [2, 1], [2, 2]])
    assert not snapshots.events("x", [(0, day)]).directed


def test_forecasts_know_both_directions_and_name_nobody_to_themselves():
    stream = contacts()
    done = run(Popularity(), split(stream, "client"), PLAN, protocol=PROTOCOL).finish()
    parts = {"bob": done.parts["bob"], "whole": stream.before(4000.0)}
    for part in parts.values():
        pairs = {(u, v) for u, v in zip(part.src.tolist(), part.dst.tolist(), strict=True)
                 if u != v}
        users, items = (x.ravel() for x in np.indices((part.num_src, part.num_dst)))
        met = PROTOCOL.met(part, PLAN)(users, items)
        assert set(zip(users[met].tolist(), items[met].tolist(), strict=True)) == pairs | {
            (v, u) for u, v in pairs}
    part = parts["bob"]
    for count in (3, 99):
        for n in range(part.num_src):
            found = Forecasts(done).top("bob", part.src_ids[n], count)
            assert part.src_ids[n] not in {f.item for f in found}
            assert len(found) == min(count, part.num_src - 1)
            assert all(np.isfinite(f.score) for f in found)
    home = SiteForecasts("bob", PROTOCOL, part, PLAN, 99)
    home.keep(0, np.zeros((part.num_src, part.num_src)))
    assert all(n not in row for n, row in enumerate(home.found[0].item.tolist()))


@pytest.mark.parametrize(("users", "items", "grain"), [
    (10**6, 210_000, 1), (200_000, 2_000_000, 10), (37, 2_200_000, 10), (50, 100, 10)])
def test_blocks_of_users_are_not_too_many_and_tell_no_number_of_users(users, items, grain):
    nothing = SimpleNamespace(met=lambda *a: None, barred=lambda *a: None)
    part = SimpleNamespace(num_src=users, num_dst=items)
    home = SiteForecasts("bob", nothing, part, PLAN, 5, grain)
    assert home.blocks <= BLOCKS and home.step % grain == 0
    assert (home.blocks - 1) * home.step < users <= home.blocks * home.step


@pytest.mark.parametrize("directed", [True, False])
def test_sites_tell_when_they_met_whom_also_of_one_kind_of_nodes(tmp_path, directed):
    """Some nodes are no source of any edge; with themselves alone they are in no edge at all."""
    stream = contacts().with_direction(directed)
    sites = {}
    for n, name in enumerate(("ada", "bob")):
        one = split(stream.take(np.flatnonzero(stream.codes["client"] == n)).with_direction(True),
                    "client").parts[name].with_direction(directed)
        sites[name] = Site(name, lambda one=one: one, tmp_path / name, b"")
    method = {"name": "edgebank", **EdgeBank().model_dump(mode="json")}
    for site in sites.values():
        site.agree("r", method, PROTOCOL.model_dump(mode="json"), True)
    first = first_seen_elsewhere({name: site.arrivals() for name, site in sites.items()})
    for name, site in sites.items():
        site.open(run="r", number="1", method=method, plan=PLAN.facts(),
                  protocol=PROTOCOL.model_dump(mode="json"), clients=["ada", "bob"], seed=0,
                  stages=4, elsewhere=first[name])
        part, other = site.stream, sites["bob" if name == "ada" else "ada"].stream
        for n in range(part.num_src):
            person = part.src_ids[n]
            times = [int(t) for u, t in zip(other.src, other.t, strict=True)
                     if other.src_ids[u] == person]
            if n in part.src:
                assert part.first_seen_elsewhere[n] == min(times, default=np.inf)
            else:
                assert part.first_seen_elsewhere[n] == np.inf


def test_an_edge_that_is_asked_is_not_told_by_the_same_edge_the_other_way_round():
    """Of FedLink's two layers: (v, u) carries no message that reaches the score of (u, v)."""
    part = split(contacts(60), "client").parts["bob"]
    batch = make_batch(part.src, part.dst, "cpu")
    graph, draw = batch.graph, torch.Generator().manual_seed(0)
    rows = [torch.randn(len(getattr(batch, side)), 4, generator=draw) for side in SIDES]
    net = BipartiteSage(4, seed=1)
    src, dst = graph.src.numpy(), graph.dst.numpy()
    for n in range(len(graph)):
        back = np.flatnonzero((src == dst[n]) & (dst == src[n]))
        held = graph.weight.clone()
        held[n] = 0
        both = held.clone()
        both[back] = 0
        with torch.no_grad():
            scores = [net.logits(*net(*rows, graph, weight), graph.src[[n]], graph.dst[[n]], False)
                      for weight in (held, both)]
        assert len(back) == 1 and torch.equal(*scores)


def test_a_data_set_may_be_taken_without_directions():
    with pytest.raises(FedvineError, match="only among nodes of one kind"):
        Data(source="synthetic", undirected=True).open()
