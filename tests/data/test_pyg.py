"""To PyTorch Geometric and back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import TemporalData

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.io.convert import from_pyg, to_pyg
from fedvine.data.stream import EventStream


@settings(max_examples=40, deadline=None)
@given(data=st.data(), bipartite=st.booleans(), edges=st.integers(1, 30))
def test_round_trip(data, bipartite, edges):
    """A stream numbered by first appearance comes back as it was; so does its data."""
    column = st.lists(st.integers(0, 5), min_size=edges, max_size=edges)
    first = TemporalData(
        src=torch.tensor(data.draw(column)),
        dst=torch.tensor(data.draw(column)) + (10 if bipartite else 0),
        t=torch.tensor(data.draw(column)), msg=torch.rand(edges, 3),
        y=torch.tensor(data.draw(column)))
    stream = from_pyg(first, bipartite=bipartite)
    again = from_pyg(to_pyg(stream), bipartite=bipartite)
    for name in ("src", "dst", "t", "features", "label"):
        assert np.array_equal(getattr(stream, name), getattr(again, name))
    back = to_pyg(again)
    for name in ("src", "dst", "t", "msg", "y"):
        assert torch.equal(back[name], to_pyg(stream)[name])
    order = torch.sort(first.t, stable=True).indices
    assert torch.equal(back.msg, first.msg[order]) and torch.equal(back.t, first.t[order])
    named = [int(stream.src_ids[n]) for n in stream.src.tolist()]
    assert named == first.src[order].tolist()


def test_kinds_of_nodes_are_told_apart():
    apart = TemporalData(src=torch.tensor([0, 1]), dst=torch.tensor([2, 2]), t=torch.tensor([0, 1]))
    mixed = TemporalData(src=torch.tensor([0, 1]), dst=torch.tensor([1, 2]), t=torch.tensor([0, 1]))
    assert from_pyg(apart).bipartite and not from_pyg(mixed).bipartite
    assert from_pyg(mixed).dst.tolist() == [1, 2] and from_pyg(mixed).features is None


def test_everything_is_carried():
    stream = EventStream(
        np.array([0, 1], np.int32), np.array([0, 0], np.int32), np.array([0.5, 1.5]),
        Ids.of(["a", "b"]), Ids.of(["x"]), weight=np.array([1, 2], np.float32),
        label=np.array([-1, 1], np.int32), deleted=np.array([False, True]),
        codes={"who": np.array([1, 0], np.int32)}, categories={"who": ["JFK", "LGA"]})
    data = to_pyg(stream)
    assert data.src.tolist() == [0, 1] and data.dst.tolist() == [2, 2]
    assert data.t.dtype == torch.float64 and data.msg.shape == (2, 0)
    assert data["who"].tolist() == [1, 0]
    back = from_pyg(data)
    assert back.weight is not None and back.weight.tolist() == [1, 2]
    assert back.label is not None and back.label.tolist() == [-1, 1]
    assert back.deleted is not None and back.deleted.tolist() == [False, True]


def test_data_that_is_no_stream():
    t = torch.tensor([0, 1])
    with pytest.raises(FedvineError, match='no "dst"'):
        from_pyg(TemporalData(src=t, t=t))
    with pytest.raises(FedvineError, match='"msg" has 1 rows and "t" has 2'):
        from_pyg(TemporalData(src=t, dst=t, t=t, msg=torch.rand(1, 2)))
    with pytest.raises(FedvineError, match='"t" holds a value that is not finite'):
        from_pyg(TemporalData(src=t, dst=t, t=torch.tensor([0, torch.nan])))
    with pytest.raises(FedvineError, match=r'"t" has the shape \(2, 2\)'):
        from_pyg(TemporalData(src=t, dst=t, t=torch.stack([t, t])))
    for y in ([0.2, 1.0], [2 ** 40, 1]):
        with pytest.raises(FedvineError, match='"y" holds a value that is not a whole number'):
            from_pyg(TemporalData(src=t, dst=t, t=t, y=torch.tensor(y)))
    assert from_pyg(TemporalData(src=t + 7, dst=t + 9, t=t.flip(0)[:, None])).t.tolist() == [0, 1]
    with pytest.raises(FedvineError, match="has no rows"):
        from_pyg(TemporalData(src=t[:0], dst=t[:0], t=t[:0]))
