"""Wikipedia's edits in JODIE's layout: found, or downloaded once and checked ever after."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

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


@pytest.mark.slow
def test_the_real_file(tmp_path):
    data = os.environ.get("FEDVINE_DATA")
    if not data or not (Path(data) / "temporal/wikipedia/wikipedia.csv.gz").is_file():
        pytest.skip("FEDVINE_DATA has no temporal/wikipedia/wikipedia.csv.gz")
    shutil.copy(Path(data) / "temporal/wikipedia/wikipedia.csv.gz", tmp_path)
    stream = wikipedia.load(tmp_path)
    assert (len(stream), stream.num_src, stream.num_dst) == (157_474, 8_227, 1_000)
    assert stream.label is not None and int((stream.label == 1).sum()) == 217
    assert (stream.t[0], stream.t[-1]) == (0, 2_678_373)
    with gzip.open(tmp_path / "wikipedia.csv.gz", "rt") as file:
        rows = [line.rstrip().split(",") for line in file][1:]
    assert [stream.src_ids[i] for i in stream.src.tolist()] == [row[0] for row in rows]
    assert [stream.dst_ids[i] for i in stream.dst.tolist()] == [row[1] for row in rows]
    assert stream.t.tolist() == [float(row[2]) for row in rows]
    assert len(stream.by_time(wikipedia.STAGES)) == 10
    # Without a folder the file below FEDVINE_DATA is the one that is read.
    assert wikipedia.load().t.tolist() == stream.t.tolist()


def test_another_file_of_that_name(tmp_path, cache):
    (tmp_path / "wikipedia.csv").write_text("u,i,ts,label\n0,5,0.0,0\n")
    with pytest.raises(FedvineError, match="it is not the JODIE file"):
        wikipedia.load(tmp_path)
    (tmp_path / "wikipedia.csv").write_text(HEADER + "0,5,0.0,0\n1,5,soon,0\n")
    with pytest.raises(FedvineError, match=r"the query wikipedia could not be read: .*Line: 3"):
        wikipedia.load(tmp_path)
    assert not list(cache.iterdir())
