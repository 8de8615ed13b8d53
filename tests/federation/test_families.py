"""Labelled graphs over mutual TLS."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import _contract_tls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_sites_of_nodes_give_the_scores_of_one_process_though_a_site_dies():
    """Links, and a server with the graph, are in test_federation; scripts/bench has all methods."""
    assert _contract_tls.main(["power"])
