"""No two sums differ by a few rows, or by one client alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_grain import client_of
from test_secure_sums import Adding

from fedvine import testing
from fedvine.aggregate.aggregate import Sum
from fedvine.aggregate.answered import Answered
from fedvine.core.errors import FedvineError
from fedvine.core.method import Client, Server, World, on_client
from fedvine.core.state import unsent
from fedvine.data.identity import rows_of
from fedvine.engines.faults import MockClients
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.tiny import FOUR, tiny_case, tiny_stream

EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=8)
RUNS = st.lists(st.tuples(st.lists(EDGES, min_size=1, max_size=4),
                          st.sampled_from(["abc", "abd", "abcd"])), min_size=1, max_size=4)
HERE, ELSEWHERE = [(u, u % 5) for u in range(7)], [(u, (u + 1) % 5) for u in range(7)]


def begun(kept: Answered | None = None) -> Client:
    return Client("a", World(("a", "b", "c", "d"), 0, 9), answered=kept or Answered())


def stage(client: Client, t: int, edges: Any) -> Client:
    client.stage, client.place = client_of(edges).stage, (t, 1, 1)
    return client


def hashes(edges: Any) -> set[int]:
    return set(rows_of(client_of(edges).stage).tolist())


def all_of(names: Any) -> dict[str, str]:
    return {name: f"what {name} gives" for name in names}


@pytest.mark.slow
@settings(max_examples=300)
@given(runs=RUNS, grain=st.integers(1, 4), erase=st.lists(st.integers(0, 20), min_size=4,
                                                          max_size=4))
def test_no_two_sums_differ_by_a_few_rows_nor_by_a_client_alone(runs, grain, erase):
    """Nor where a user is erased after a run, and the next one has the rows without them."""
    kept, sums = Answered(), list[tuple[frozenset[int], tuple[str, ...]]]()
    gone = set[int]()
    for number, (stages, names) in enumerate(runs):
        client = begun(kept)
        for t, edges in enumerate(stages):
            stage(client, t, edges)
            if gone & {u for u, _ in edges}:
                client.stage = client.stage.take(np.flatnonzero(
                    [u not in gone for u, _ in edges]))
            if kept.stage(client, grain) != "in":
                continue
            rows = frozenset(client.summed["rows"].tolist())
            listed = kept.terms(client, grain, False)["listed"]
            if listed and listed.keys() != set(names):
                with pytest.raises(FedvineError, match="in one of others before"):
                    kept.agree(client, all_of(names), grain, False)
                continue
            kept.agree(client, all_of(names), grain, False)
            sums.append((rows, tuple(names)))
        gone.add(erase[number])
        kept.forget(np.array([h for edges in stages for (u, _), h in zip(
            edges, rows_of(client_of(edges).stage).tolist(), strict=True)
            if u == erase[number]], np.uint64))
    for i, (rows, names) in enumerate(sums):
        for others, theirs in sums[:i]:
            alone = [len(rows - others), len(others - rows)]
            if rows & others:
                assert all(n == 0 or n >= grain for n in alone)
            assert rows != others or not rows or names == theirs


@pytest.mark.slow
@settings(max_examples=300)
@given(runs=st.lists(st.lists(st.tuples(EDGES, EDGES, EDGES), min_size=1, max_size=3), min_size=1,
                     max_size=4), again=st.lists(st.booleans(), min_size=36, max_size=36),
       grain=st.integers(1, 4))
def test_no_two_sums_differ_in_what_one_client_gives(runs, again, grain):
    kept, sums = {n: Answered() for n in "abc"}, list[dict[str, frozenset[int]]]()
    for number, stages in enumerate(runs):
        clients = {n: begun(kept[n]) for n in "abc"}
        for t, tables in enumerate(stages):
            for k, (name, edges) in enumerate(zip("abc", tables, strict=True)):
                same = number and t < len(runs[0]) and again[9 * number + 3 * t + k]
                stage(clients[name], t, runs[0][t][k] if same else edges)
            terms = {n: c.answered.terms(c, grain, False) for n, c in clients.items()}
            contents = {n: said["content"] for n, said in terms.items()}
            try:
                for client in clients.values():
                    client.answered.agree(client, contents, grain, False)
            except FedvineError:
                continue        # one refuses, so the sum is not opened
            sums.append({n: frozenset(c.summed["rows"].tolist()) if c.summed["kind"] == "in"
                         else frozenset() for n, c in clients.items()})
    for i, one in enumerate(sums):
        for other in sums[:i]:
            alike = {n for n in "abc" if one[n] == other[n]}
            if len(alike) == 2:
                assert not any(one[n] for n in alike)


@pytest.mark.slow
@settings(max_examples=300)
@given(runs=RUNS, grain=st.integers(1, 4), first=st.booleans())
def test_sums_of_one_kind_are_apart_where_a_stage_is_in_two(runs, grain, first):
    """A stage is in a sum of itself alone, and in one with what came before; or in one of them."""
    kept, sums = Answered(), {False: [], True: []}
    for number, (stages, names) in enumerate(runs):
        client = begun(kept)
        for t, edges in enumerate(stages):
            stage(client, t, edges)
            for whole in (False, True) if number or not first else (True,):
                said = kept.terms(client, grain, whole)
                if not said["content"] or client.summed["kind"] != "in":
                    continue
                if said["listed"] and said["listed"].keys() != set(names):
                    continue
                rows = frozenset(client.summed["rows"].tolist())
                kept.agree(client, all_of(names) | {"a": said["content"]}, grain, whole)
                sums[whole].append((rows, tuple(names)))
    for found in sums.values():
        for i, (rows, names) in enumerate(found):
            for others, theirs in found[:i]:
                alone = [len(rows - others), len(others - rows)]
                if rows & others:
                    assert all(n == 0 or n >= grain for n in alone)
                assert rows != others or not rows or names == theirs


def test_what_waited_goes_with_new_rows_into_sums_of_both_kinds():
    first = stage(begun(kept := Answered()), 0, HERE)
    for whole in (False, True):
        kept.agree(first, all_of("abc"), 3, whole)
    again = stage(begun(kept), 0, HERE)         # with d in place of c: the rows wait
    assert again.answered.stage(again, 3) == "in" and not again.summed["given"]
    stage(again, 1, ELSEWHERE)
    for whole in (False, True):
        said = kept.terms(again, 3, whole)
        assert said["content"] and not said["listed"]
        kept.agree(again, {**all_of("abd"), "a": said["content"]}, 3, whole)


@given(stages=st.lists(EDGES, min_size=1, max_size=6), grain=st.integers(1, 5))
def test_in_one_run_every_row_is_given_once_or_waits(stages, grain):
    client, given_rows, t = begun(), list[int](), 0
    for t, edges in enumerate(stages):
        stage(client, t, [(u, i) for u, i in edges])
        client.stage.t[:] += 100 * t            # no row is repeated
        kind = client.answered.stage(client, grain)
        assert kind == client.answered.stage(client, grain)     # as after a lost answer
        rows = client.summed["rows"]
        assert kind == ("wait" if 0 < len(rows) < grain else "in")
        if kind == "in":
            given_rows += rows.tolist()
            client.answered.agree(client, all_of("ab"), grain, False)
    assert len(set(given_rows)) == len(given_rows)
    assert len(given_rows) + (0 if client.summed["given"] or not len(rows) else len(rows)) == len(
        {(u, i, k, t) for t, edges in enumerate(stages) for k, (u, i) in enumerate(edges)})


def test_a_changed_cell_leaves_out_the_stage_in_the_next_run(tmp_path):
    first = stage(begun(Answered(tmp_path / "rows.npz")), 0, HERE)
    assert first.answered.stage(first, 3) == "in"
    first.answered.agree(first, all_of("abc"), 3, False)

    again = stage(begun(Answered(tmp_path / "rows.npz")), 0, HERE)      # as after a kill
    assert again.answered.stage(again, 3) == "in"
    assert again.answered.terms(again, 3, False)["listed"].keys() == set("abc")
    again.answered.agree(again, all_of("cba"), 3, False)
    with pytest.raises(FedvineError, match="of others before"):
        again.answered.agree(again, all_of("abcd"), 3, False)

    changed = stage(begun(Answered(tmp_path / "rows.npz")), 0, [(0, 4), *HERE[1:]])
    assert changed.answered.stage(changed, 3) == "out"
    assert changed.answered.terms(changed, 3, False) == {"content": "", "listed": {}}
    changed.answered.agree(changed, {**all_of("bcd"), "a": ""}, 3, False)
    stage(changed, 1, ELSEWHERE)
    assert changed.answered.stage(changed, 3) == "in"
    assert changed.summed["rows"].tolist() == sorted(hashes(ELSEWHERE))


def test_with_others_the_rows_wait_for_new_ones(tmp_path):
    first = stage(begun(Answered(tmp_path / "rows.npz")), 0, HERE)
    first.answered.agree(first, all_of("abc"), 3, False)
    other = stage(begun(Answered(tmp_path / "rows.npz")), 0, HERE)
    assert other.answered.terms(other, 3, False)["listed"].keys() == set("abc")     # d is, too
    stage(other, 1, ELSEWHERE)
    assert other.answered.stage(other, 3) == "in"
    assert set(other.summed["rows"].tolist()) == hashes(HERE) | hashes(ELSEWHERE)
    assert not other.answered.terms(other, 3, False)["listed"]
    other.answered.agree(other, all_of("abcd"), 3, False)


def test_without_new_rows_a_sum_of_all_stages_is_of_the_clients_before():
    client = stage(begun(), 0, HERE)
    client.answered.agree(client, all_of("abc"), 3, True)
    stage(client, 1, ELSEWHERE[:2])
    assert client.answered.stage(client, 3) == "wait"
    assert client.answered.terms(client, 3, True)["listed"].keys() == set("abc")
    assert not client.answered.terms(client, 3, False)["listed"]
    stage(client, 2, [])
    assert client.answered.stage(client, 3) == "wait"
    stage(client, 3, [(6, 1)])
    assert client.answered.stage(client, 3) == "in" and len(client.summed["rows"]) == 3


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "rows.npz").write_bytes(b"PK nothing")
    client = stage(begun(Answered(tmp_path / "rows.npz")), 0, HERE)
    with pytest.raises(FedvineError, match=r"rows\.npz is damaged"):
        client.answered.stage(client, 3)


# -- in a run -------------------------------------------------------------------------------------
class Remembering(MockClients):
    """Clients that remember what their sums were of, as sites do."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for worker in self.workers.values():
            worker.answered = Answered()
            worker.renew()


class Counting(Adding):
    """Adds the stage's edges once a stage, and one number of each client each round."""

    aggregate: Sum = Sum(secure=True)

    def start(self, world: World) -> Server:
        return Server(totals=[], stayed=[], edges=[])

    def arrive(self, server, clients, at):
        clients.call(self.note, expect=None)
        if at.t:
            total, _ = clients.sum(self.count, length=1, once=True)
            server.edges = [*server.edges, int(total[0])]

    @on_client
    def note(self, client):
        """Note how many edges came."""
        client.edges = [*vars(client).get("edges", []), len(client.stage)]

    @on_client(combined="sum")
    def count(self, client):
        """Return the number of edges of the stage."""
        return unsent(client, {"n": np.array([client.edges[-1]], np.uint64)})["n"]


def carried_out(**options: Any) -> Any:
    return testing.run(Counting(), *tiny_case(tiny_stream(names=FOUR)), seed=7,
                       engine=Remembering, protocol=LinkPrediction.tiny(), quorum=0.5,
                       **options).finish()


@pytest.mark.slow
def test_whoever_is_back_within_a_stage_is_in_its_sums_no_more():
    made = carried_out(lose={(1, 0, 2, 1): {"bob"}})
    assert made.server.totals == [15, 15, 13, 13, 15, 15, 15, 15]
    assert made.server.stayed == [4, 4, 3, 3, 4, 4, 4, 4]


def test_without_one_of_a_stages_clients_its_other_sums_are_of_nobody():
    made = carried_out(lose={(1, 2, 1, 2): {"cyd"}})
    assert made.server.totals == [15, 15, 15, 0, 15, 15, 15, 15]
    assert made.server.stayed == [4, 4, 4, 0, 4, 4, 4, 4]


def test_what_was_in_no_sum_is_in_the_next_stages():
    plain, lost = carried_out(), carried_out(lose={(2, 0, 2, 3): {"dan"}})
    dan = plain.clients.workers["dan"].client.edges
    first, second, third = plain.server.edges
    assert lost.server.edges == [first, second - dan[2], third + dan[2]]
