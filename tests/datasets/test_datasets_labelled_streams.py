"""Streams whose nodes have classes: the published counts, and since when each class is known."""

import gzip
from collections import Counter

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.datasets import flights, patent, retail, sociopatterns, wikipedia
from fedvine.datasets.snap import BitcoinOtc

CITED = "7 3 0.0\n3 9 0.25\n9 4 0.25\n7 4 1.0\n"
CLASSED = "3 b\n4 b\n7 a\n9 c\n"
MET = "100\t5\t6\t1A\tStaff\n120\t6\t8\tStaff\t1B\n120\t5\t8\t1A\t1B\n"


def edges(stream: EventStream) -> list[tuple[str, str, float]]:
    return [(stream.src_ids[s], stream.dst_ids[d], t) for s, d, t in
            zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True)]


def nodes(stream: EventStream) -> NodeData:
    assert stream.nodes is not None
    return stream.nodes


def names(stream: EventStream, before: float = np.inf) -> dict[str, str]:
    """The known class of each node just before a time."""
    known = nodes(stream)
    return {stream.src_ids[i]: known.classes[y]
            for i, y in enumerate(known.at(before, stream.num_src)[1].tolist()) if y >= 0}


# -- patent ------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
def test_patents_are_known_when_they_appear(tmp_path, packed):
    for name, text in (("patent.txt", CITED), ("node2label.txt", CLASSED)):
        if packed:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (tmp_path / name).write_text(text)
    stream = patent.load(tmp_path)
    assert edges(stream) == [("7", "3", 0), ("3", "9", 0.25), ("9", "4", 0.25), ("7", "4", 1)]
    assert stream.t.dtype == np.float64 and not stream.bipartite
    assert nodes(stream).classes == ("a", "b", "c")
    assert names(stream, 0) == {} and names(stream, 0.25) == {"7": "a", "3": "b"}
    assert names(stream, 0.3) == {"7": "a", "3": "b", "9": "c", "4": "b"}


def test_a_patent_without_a_class_is_not_known(tmp_path):
    (tmp_path / "patent.txt").write_text(CITED)
    (tmp_path / "node2label.txt").write_text("3 b\n7 a\n1000 z\n")
    stream = patent.load(tmp_path)
    assert names(stream) == {"3": "b", "7": "a"} and nodes(stream).classes == ("a", "b")
    known = nodes(stream)
    assert {stream.src_ids[n]: t for n, t in zip(known.node, known.t, strict=True)} == {
        "7": 0, "3": 0, "9": 0.25, "4": 0.25}      # of their first edges


@pytest.mark.parametrize(("cited", "classed", "said"), [
    (CITED, "3 b\n4\n", r"node2label\.txt does not have 2 values in line 2"),
    (CITED, "3 b\n\n", "does not have 2 values in line 2"),
    (CITED, "3 b\n4 a\n3 a\n", "gives node 3 the classes b and a"),
    (CITED, "", r"node2label\.txt is empty"),
    (CITED, b"3 \xff\n", r"node2label\.txt is not a readable text file"),
    (CITED, b"\x1f\x8b cut short", r"node2label\.txt is not a readable text file"),
    ("7 3 0.0\n3 9 soon\n", CLASSED, "the query patent could not be read"),
    ("7 3 0.0\n3 9\n", CLASSED, "the query patent: line 2 of .* has 2 cells"),
])
def test_other_patents_are_refused(tmp_path, cited, classed, said):
    (tmp_path / "patent.txt").write_text(cited)
    (tmp_path / "node2label.txt").write_bytes(classed if isinstance(classed, bytes)
                                              else classed.encode())
    with pytest.raises(FedvineError, match=said):
        patent.load(tmp_path)
    (tmp_path / "patent.txt").write_text(CITED)
    (tmp_path / "node2label.txt").write_text(CLASSED)
    assert len(patent.load(tmp_path)) == 4


# -- sociopatterns -----------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
def test_people_are_known_when_they_are_met(tmp_path, packed):
    if packed:
        (tmp_path / "thiers_2012.csv.gz").write_bytes(gzip.compress(MET.encode()))
    else:
        (tmp_path / "thiers_2012.csv").write_text(MET)
    stream = sociopatterns.load(tmp_path, "thiers")
    assert edges(stream) == [("5", "6", 100), ("6", "8", 120), ("5", "8", 120)]
    assert stream.t.dtype == np.int64 and not stream.bipartite
    assert nodes(stream).classes == ("1A", "1B", "Staff")
    assert names(stream, 120) == {"5": "1A", "6": "Staff"}
    assert names(stream, 121) == {"5": "1A", "6": "Staff", "8": "1B"}


def test_other_contacts_are_refused(tmp_path):
    with pytest.raises(FedvineError, match=r'no network "hopsital" \(did you mean "hospital"\?\)'):
        sociopatterns.load(tmp_path, "hopsital")
    for text, said in ((MET + "140\t5\t6\t1B\tStaff\n", "gives node 5 the classes 1A and 1B"),
                       (MET + "140\t5\t6\t1A\t\n", "does not have 5 values in line 4"),
                       (MET + "140\t5\t\t1A\tStaff\n", '"j" is empty in its row 4'),
                       (MET + "noon\t5\t6\t1A\tStaff\n", "could not be read: .*Line: 4")):
        (tmp_path / "Contacts_Hospital.csv").write_text(text)
        with pytest.raises(FedvineError, match=said):
            sociopatterns.load(tmp_path, "hospital")


@pytest.mark.parametrize("load", [patent.load, sociopatterns.load])
def test_a_second_load_only_opens(tmp_path, monkeypatch, load):
    (tmp_path / "patent.txt").write_text(CITED)
    (tmp_path / "node2label.txt").write_text(CLASSED)
    (tmp_path / "Primary_School.csv").write_text(MET)
    first = load(tmp_path)
    for module in (patent, sociopatterns):
        monkeypatch.setattr(module, "read", lambda *_, **__: pytest.fail("read again"))
    assert edges(load(tmp_path)) == edges(first) and names(load(tmp_path)) == names(first)


# -- wikipedia ---------------------------------------------------------------------------------
def test_who_is_banned_was_active_before(tmp_path):
    (tmp_path / "wikipedia.csv").write_text(
        "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
        "0,5,0.5,0\n1,5,3.0,1\n2,7,4.0,0\n0,5,6.0,1\n2,7,8.0,0\n")
    stream = wikipedia.load(tmp_path)
    assert names(stream, 0.5) == {}
    assert names(stream, 4) == {"0": "active", "1": "banned"}     # 1 with the first edit
    assert names(stream, 6) == {"0": "active", "1": "banned", "2": "active"}
    assert names(stream) == {"0": "banned", "1": "banned", "2": "active"}


def test_planes_beside_the_flights(tmp_path):
    (tmp_path / "flights.csv").write_text(
        "dep_time,dep_delay,tailnum,origin,dest,minute,time_hour\n"
        "517,2,N1,EWR,IAH,15,2013-01-01T10:00:00Z\n617,2,N2,EWR,IAH,15,2013-01-01T11:00:00Z\n")
    assert flights.load(tmp_path).nodes is None
    planes = tmp_path / "planes.csv"
    planes.write_text("tailnum,year,manufacturer\nN2,NA,AIRBUS INDUSTRIE\nN1,NA,CESSNA\n")
    stream = flights.load(tmp_path)      # the edges are cached, the planes are read each time
    assert names(stream) == {"N2": "AIRBUS"} and nodes(stream).y.tolist() == [-1, 0]
    for wrong in (b"tail,manufacturer\nN2,AIRBUS\n", b"tailnum,manufacturer\nN2,\xff\n"):
        planes.write_bytes(wrong)
        with pytest.raises(FedvineError, match=r"planes\.csv is not a table of planes"):
            flights.load(tmp_path)


# -- real files ----------------------------------------------------------------------------------
SCHOOL = dict(zip("1A 1B 2A 2B 3A 3B 4A 4B 5A 5B Teachers".split(),
                  (23, 25, 23, 26, 23, 22, 21, 23, 22, 24, 10), strict=True))
THIERS = {"MP*1": 31, "MP*2": 35, "PC": 38, "PC*": 35, "PSI*": 41}
PATENTS = {"1": 3_347, "2": 2_634, "3": 3_796, "4": 933, "5": 769, "6": 735}
PLANES = {"BOEING": 1_627, "AIRBUS": 736, "BOMBARDIER": 375, "EMBRAER": 299,
          "MCDONNELL DOUGLAS": 236}


@pytest.mark.slow
@pytest.mark.parametrize(("place", "module", "options", "counts", "stages", "classes"), [
    ("wikipedia", wikipedia, {}, (157_474, 8_227, 1_000), 10, None),
    ("bitcoin", BitcoinOtc, {}, (35_592, 5_881, 5_881), 21, None),
    ("retail", retail, {}, (397_924, 4_339, 3_665), 13, None),
    ("patent", patent, {}, (41_916, 12_214, 12_214), 10, PATENTS),
    ("sociopatterns", sociopatterns, {}, (125_773, 242, 242), 25, SCHOOL),
    ("sociopatterns", sociopatterns, {"network": "thiers"}, (45_047, 180, 180), 9, THIERS),
    ("sociopatterns", sociopatterns, {"network": "hospital"}, (32_424, 75, 75), 6,
     {"ADM": 8, "MED": 11, "NUR": 27, "PAT": 29}),
    ("flights", flights, {}, (328_521, 4_037, 104), 12, PLANES)],
    ids=lambda v: v.__name__ if hasattr(v, "__name__") else "")
def test_real_files_have_the_published_counts(data, place, module, options, counts, stages,
                                              classes):
    if not (data / "temporal" / place).is_dir():
        pytest.skip(f"FEDVINE_DATA has no temporal/{place}")
    stream = module.load(**options)
    assert (len(stream), stream.num_src, stream.num_dst) == counts
    cut = stream.by_count if isinstance(module.STAGES, int) else stream.by_time
    assert len(cut(module.STAGES)) == stages
    assert classes is None or Counter(names(stream).values()) == classes
