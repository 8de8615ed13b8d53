"""One method of each family over mutual TLS: links, classes of nodes, a server with the graph."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import _contract_tls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_one_of_each_family_gives_the_scores_of_one_process_though_a_site_dies():
    assert {_contract_tls.family(method) for _, method in _contract_tls.chosen(
        ["fedlink", "power", "last_label"])} == set(_contract_tls.FAMILIES)
    assert _contract_tls.main(["fedlink", "power", "last_label"])
