"""Edge lists of the Temporal Graph Benchmark, on small files of its layouts."""

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.datasets.tgb import TgblCoin, TgbnReddit

COIN = ("time,src,dst,weight\n1648811421,0x27cb,0x8426,800.0\n1648811433,0x8426,0x001e,0\n"
        "1648811421,0x001e,0x27cb,2\n")
POSTS = ("ts,src,subreddit,num_words,score\n100,ann,cats,12,-3\n101,bob,dogs,1,4\n"
         "700,ann,dogs,2,1\n")
LABELS = ("ts,src,subreddit,weight\n200,ann,cats,0.25\n200,ann,dogs,0.75\n200,bob,dogs,0.5\n"
          "200,bob,cats,0.5\n800,ann,cats,1.0\n200,eve,owls,1.0\n")


def test_coin(tmp_path):
    (tmp_path / "tgbl-coin_edgelist_v2.csv").write_text(COIN)
    stream = TgblCoin.load(tmp_path)
    assert [(stream.src_ids[a], stream.src_ids[b]) for a, b in zip(
        stream.src.tolist(), stream.dst.tolist(), strict=True)] == [
            ("0x27cb", "0x8426"), ("0x001e", "0x27cb"), ("0x8426", "0x001e")]
    assert stream.t.tolist() == [1648811421, 1648811421, 1648811433]
    assert stream.t.dtype == np.int64 and not stream.bipartite and stream.directed
    assert stream.weight is not None
    assert stream.weight.tolist() == pytest.approx([np.log2(800), 1, 0])
    assert TgblCoin.load(tmp_path).t.tolist() == stream.t.tolist()


def test_reddit(tmp_path):
    (tmp_path / "tgbn-reddit_edgelist.csv").write_text(POSTS)
    plain = TgbnReddit.load(tmp_path)
    assert plain.bipartite and plain.nodes is None
    assert [(plain.src_ids[a], plain.dst_ids[b]) for a, b in zip(
        plain.src.tolist(), plain.dst.tolist(), strict=True)] == [
            ("ann", "cats"), ("bob", "dogs"), ("ann", "dogs")]
    assert plain.weight is not None and plain.weight.tolist() == [-3, 4, 1]
    (tmp_path / "tgbn-reddit_node_labels.csv").write_text(LABELS)
    for stream in (TgbnReddit.load(tmp_path), TgbnReddit.load(tmp_path)):     # made, and opened
        assert stream.t.tolist() == plain.t.tolist()
        known = stream.nodes
        assert known is not None and known.classes == ("cats", "dogs")
        assert [(stream.src_ids[n], t, known.classes[y]) for n, t, y in zip(
            known.node.tolist(), known.t.tolist(), known.y.tolist(), strict=True)] == [
                ("ann", 200, "dogs"), ("bob", 200, "cats"), ("ann", 800, "cats")]


@pytest.mark.parametrize(("kind", "name"), [(TgblCoin, "tgbl-coin_edgelist_v2.csv"),
                                            (TgbnReddit, "tgbn-reddit_edgelist.csv")])
def test_errors_are_a_sentence_and_leave_nothing(kind, name, tmp_path, cache):
    (tmp_path / name).write_text("time,src,dst,weight,more\nnever,a,b,1,1\n")
    with pytest.raises(FedvineError, match="could not be read") as error:
        kind.load(tmp_path)
    assert str(error.value).count(". ") == 0
    (tmp_path / name).write_text(POSTS if kind is TgbnReddit else COIN)
    if kind is TgbnReddit:
        labels = tmp_path / "tgbn-reddit_node_labels.csv"
        labels.write_text("ts,src,subreddit,weight\n1,ann,cats,much\n")
        with pytest.raises(FedvineError, match=r"labels\.csv could not be read"):
            kind.load(tmp_path)
        labels.write_text(LABELS)
        assert kind.load(tmp_path).nodes is not None
    assert len(kind.load(tmp_path)) == 3
    assert len(list(cache.iterdir())) == 1
