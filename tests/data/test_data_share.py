"""A share of a stream's edges: drawn evenly, the same ones always, and told in name and digest."""

import numpy as np
import pytest
import shop
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.identity import digest
from fedvine.data.spec import Data, thinned
from fedvine.experiments.experiment import Experiment
from fedvine.testing import tiny_graphs, tiny_stream


@given(st.floats(0.1, 1), st.integers(200, 900))
def test_each_edge_is_kept_or_not_and_nothing_else_changes(share, edges):
    whole = tiny_stream(edges)
    found, again = thinned(whole, share), thinned(whole, share)
    assert digest(found) == digest(again)
    spread = 5 * (edges * share * (1 - share)) ** 0.5
    assert abs(len(found) - edges * share) <= spread + 1
    mine, every = (list(zip(s.src.tolist(), s.dst.tolist(), s.t.tolist(),
                            s.codes["client"].tolist(), strict=True)) for s in (found, whole))
    rest = iter(every)
    assert all(edge in rest for edge in mine)               # in the same order
    assert np.array_equal(found.src_ids[0], whole.src_ids[0])


def test_all_of_the_edges_and_nearly_none():
    whole = tiny_stream(400)
    assert digest(thinned(whole, 1.0)) == digest(whole)
    with pytest.raises(FedvineError, match=r"No edge of tiny is left with data\.share = 1e-09"):
        thinned(whole, 1e-9)


def test_every_seed_of_an_experiment_has_the_same_edges(tmp_path):
    data = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    made = [Experiment.model_validate({"data": {**data, "share": 0.5}, "method": "edgebank",
                                       "seed": s}) for s in (0, 1)]
    parts = [e.open()[1] for e in made]
    assert digest(parts[0].stream) == digest(parts[1].stream)
    assert parts[0].stream.name == "shop-50%"
    assert sum(len(p) for p in parts[0].parts.values()) == len(parts[0].stream) < 480
    whole = Experiment.model_validate({"data": data, "method": "edgebank"})
    assert "share" not in whole.plain()["data"] and made[0].plain()["data"]["share"] == 0.5
    done = made[0].run(tmp_path / "run").finish()
    assert Experiment.of_run(tmp_path / "run").data.share == 0.5 and done.scores["test"]


def test_what_cannot_be_a_share_is_refused(tmp_path):
    for share in (0, -0.5, 1.5):
        with pytest.raises(ValueError, match="share"):
            Data(source=str(shop.write(tmp_path)), share=share)


def test_a_labelled_graph_has_another_key_for_it():
    graph = tiny_graphs()[0].stream
    with pytest.raises(FedvineError, match=r"data\.share is of streams; .* set tasks\.edges"):
        thinned(graph, 0.5)
