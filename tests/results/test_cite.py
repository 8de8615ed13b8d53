"""What to cite: every built-in method has its source, and the library is that of CITATION.cff."""

import re
from pathlib import Path

import pytest

import fedvine
from fedvine.cli import main
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.results.cite import SHORT, cite, of_method, sources

ROOT = Path(__file__).parents[2]
KNOWN = sources()


@pytest.mark.parametrize("name", registry.names("methods"))
def test_every_built_in_method_has_its_source(name):
    papers = of_method(name, KNOWN)
    assert papers is not None and all(key in KNOWN["papers"] for key in papers)


def test_every_paper_is_of_a_method_and_whole():
    used = {key for papers in KNOWN["methods"].values() for key in papers}
    assert used == set(KNOWN["papers"])
    for paper in KNOWN["papers"].values():
        assert paper["title"] and paper["author"] and paper["kind"]
        where = {"inproceedings": "booktitle", "article": "journal"}.get(paper["kind"])
        assert where is None or paper[where]


def test_the_library_is_that_of_the_citation_file():
    text = (ROOT / "CITATION.cff").read_text()
    assert KNOWN["library"]["title"] == re.search(r'^title: "(.+)"$', text, re.M)[1]
    assert KNOWN["library"]["note"] == re.search(r"^license: (.+)$", text, re.M)[1]
    assert f"version: {fedvine.__version__}\n" in text
    assert KNOWN["library"]["author"] == "{" + re.search(r'- name: "(.+)"', text)[1] + "}"


def test_entries_are_bibtex_each_once():
    found = cite(["power", "replay", "popularity", "fedproto_dyn", "ergnn_isolated"])
    assert found.startswith("% Without a paper, cite the library: popularity.\n")
    assert re.findall(r"^@\w+\{(\w+),$", found, re.M) == [
        "zhu_power", "tan_fedproto", "pareja_evolvegcn", "zhou_ergnn", "fedvine"]
    assert found.count("{") == found.count("}") and SHORT in found
    assert f"  version = {{{fedvine.__version__}}}," in found


def test_a_method_of_another_package_and_an_unknown_one(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        other = type("Other", (), {"__module__": "other.methods"})
        patch.setattr(registry, "method", lambda name: other)
        assert "% No built-in methods, cite their authors: other." in cite(["other"])
    with pytest.raises(FedvineError, match="powr"):
        cite(["powr"])
    with pytest.raises(SystemExit) as ended:
        main.main(["cite", "edgebank"])
    assert not ended.value.code
    assert "Towards Better Evaluation" in capsys.readouterr().out
