"""Rows of a comparison are told apart, say what was set, and what cannot be beside each other."""

import pytest
import quick
import shop
from wrong import fedvine, is_sentence

from fedvine.core.errors import FedvineError
from fedvine.results.compare import compare, experiments, labels

OWN = """from typing import ClassVar

from fedvine.core import Field
from fedvine.methods.popularity import Popularity


class Often(Popularity):
    name: ClassVar[str] = "often"
    keep: float = Field(default=0.5, description="share that stays")
"""
COLUMNS = [x for key, value in shop.COLUMNS.items() for x in (f"--{key}", value)]
NODES = "id,label,bank\n" + "".join(f"n{i},{'xy'[i % 2]},{'ab'[i // 15]}\n" for i in range(30))
EDGES = "src,dst\n" + "".join(f"n{i},n{(i + 1) % 30}\n" for i in range(30))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with a table and methods of one name, as working directory."""
    shop.write(tmp_path)
    for name, text in (("often", OWN), ("v2", OWN + "    # another code\n"),
                       ("v3", OWN + "    extra: int = 1\n"),
                       ("pop2", OWN.replace('"often"', '"popularity"'))):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "often.py").write_text(OWN + "    # a third code\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(*words, settings=()):
    return experiments(words, {"data": {"source": "shop.csv", **shop.COLUMNS}, "stages": "400s"},
                       settings)


def test_methods_of_one_name_in_two_files_are_named_by_their_files(files):
    assert labels(made("often.py", "v2.py", "v3.py", "popularity")) == [
        "often (often.py)", "often (v2.py)", "often (v3.py)", "popularity"]
    assert labels(made("pop2.py", "popularity")) == ["popularity (pop2.py)", "popularity"]
    assert labels(made("often.py", "other/often.py")) == ["often (often.py)",
                                                         "often (other/often.py)"]
    assert labels(made("often.py:keep=0.1", "v2.py", "often.py:keep=0.2")) == [
        "often (often.py, keep=0.1)", "often (v2.py)", "often (often.py, keep=0.2)"]
    with pytest.raises(FedvineError, match="often is there twice with the same settings"):
        labels(made("often.py", "often.py"))


def test_own_code_of_a_rivals_name_keeps_its_own_row(files, monkeypatch):
    quick.here(monkeypatch)
    found = compare(made("pop2.py:decay=0.1", "popularity"), 1, files / "cells",
                    tell=lambda line: None)
    ours, rival = found.entries
    assert {r["method"] for r in found.records()} == {"popularity (pop2.py)", "popularity"}
    assert ours.values("auc") != rival.values("auc")
    assert found.unbeaten(ours, "auc_new") == [rival]       # it is no simple rival itself
    assert found.unbeaten(rival, "auc_new") == []
    missing = compare(made("often.py", "v2.py"), 1, files / "none", budget=0).missing
    assert missing == ["often (often.py) on shop, seed 0", "often (v2.py) on shop, seed 0"]


def test_what_was_set_and_no_label_says_is_below_the_table(files):
    found = compare(made("often.py:keep=0.25", "popularity:decay=0.1",
                         "fedlink:rounds=3:width=4", "fedlink:rounds=3:width=8",
                         "fedlink_local:rounds=10"), 1, files / "cells", budget=0)
    note, = (n for n in found.notes() if n.startswith("Settings"))
    assert note == ("Settings other than the defaults: often keep=0.25; popularity decay=0.1; "
                    "fedlink (width=4) rounds=3; fedlink (width=8) rounds=3.")
    plain = compare(made("popularity", "edgebank"), 1, files / "cells", budget=0)
    assert not any(n.startswith("Settings") for n in plain.notes())
    assert note in found.sheet().markdown()


def test_a_methods_own_wrong_setting_names_the_method(files):
    with pytest.raises(FedvineError, match=r"^popularity: method.rounds is 2, but should .* 0\.$"):
        made("fedlink", "popularity:rounds=2")
    with pytest.raises(FedvineError, match=r"^edgebank: .* or equal to 0\.$"):
        made("edgebank", "popularity", settings=["method.rounds=2"])


def test_methods_of_other_tasks_are_refused_by_what_the_data_are(files):
    (files / "n.csv").write_text(NODES)
    (files / "e.csv").write_text(EDGES)
    code, _, said = fedvine("compare", "fedlink", "power", "--data", "n.csv", "--edges", "e.csv",
                            "--node", "id", "--label", "label", "--client", "bank")
    assert code == 2
    is_sentence(said, "fedlink answers for links; n is a labelled graph; choose a method for nodes")
    with pytest.raises(FedvineError, match="power answers for nodes; shop is a stream of edges"):
        compare(made("fedlink", "power"), 1, files / "cells")
