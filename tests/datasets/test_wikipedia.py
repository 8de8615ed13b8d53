"""Wikipedia's edits in JODIE's layout: found, or downloaded once and checked ever after."""

import gzip

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.datasets import wikipedia

HEADER = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
TEXT = HEADER + "0,5,0.0,0,-0.5,1.25\n1,5,36.0,1,0.0,0.0\n0,7,77.5,0,3.0,1e-3\n"


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch):
    monkeypatch.setattr(wikipedia, "URL", "http://127.0.0.1:9/wikipedia.csv")


@pytest.mark.parametrize("packed", [False, True])
def test_features_and_labels_are_kept(tmp_path, packed):
    if packed:
        (tmp_path / "wikipedia.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    else:
        (tmp_path / "wikipedia.csv").write_text(TEXT)
    stream = wikipedia.load(tmp_path)
    assert stream.t.tolist() == [0, 36, 77.5] and stream.bipartite
    assert [stream.src_ids[i] for i in stream.src] == ["0", "1", "0"]
    assert [stream.dst_ids[i] for i in stream.dst] == ["5", "5", "7"]
    assert stream.label is not None and stream.label.tolist() == [0, 1, 0]
    assert stream.features is not None
    assert np.allclose(stream.features, [[-0.5, 1.25], [0, 0], [3, 1e-3]])


def test_another_file_of_that_name(tmp_path, cache):
    (tmp_path / "wikipedia.csv").write_text("u,i,ts,label\n0,5,0.0,0\n")
    with pytest.raises(FedvineError, match="it is not the JODIE file"):
        wikipedia.load(tmp_path)
    (tmp_path / "wikipedia.csv").write_text(HEADER + "0,5,0.0,0\n1,5,soon,0\n")
    with pytest.raises(FedvineError, match=r"the query wikipedia could not be read: .*Line: 3"):
        wikipedia.load(tmp_path)
    assert not list(cache.iterdir())
