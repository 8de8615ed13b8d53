"""Packages of others add names, and take none that are used here."""

import pytest

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.federation.policy import Policy, shown
from fedvine.methods.edgebank import EdgeBank
from fedvine.rivals.dslr import DslrIsolated

OTHER = '''
from typing import ClassVar

from fedvine.core.method import Method


class Mine(Method):
    """A method of somebody else."""
    name: ClassVar[str] = "mine"


class Bank(Method):
    """It would like to be the built-in one."""
    name: ClassVar[str] = "edgebank"


class Variant(Method):
    """Likewise, where that is one of several in a file."""
    name: ClassVar[str] = "dslr_isolated"
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with three entry points of one module, on the path."""
    info = tmp_path / "others-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text("[fedvine.methods]\n" + "".join(
        f"{name} = others_methods\n" for name in ("mine", "edgebank", "dslr_isolated")))
    (tmp_path / "others_methods.py").write_text(OTHER)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_name_that_is_used_here_is_not_another_packages(package):
    assert registry.method("mine").__module__ == "others_methods"
    assert registry.method("edgebank") is EdgeBank
    assert registry.method("dslr_isolated") is DslrIsolated
    known = registry.methods()
    assert (known["edgebank"], known["dslr_isolated"]) == (EdgeBank, DslrIsolated)
    assert "built-in" not in registry.first_lines("methods")["edgebank"]


def test_a_policy_says_which_package_a_method_is_of(package):
    assert registry.package_of("mine") == "others 2.5"
    assert registry.package_of("edgebank") is None
    mine = registry.method("mine")()
    for fields in ({}, {"package": "others 2.4"}):
        for refused in (Policy.installed, lambda policy: policy.check(mine)):
            with pytest.raises(FedvineError, match=r'write package = "others 2.5"'):
                refused(Policy(methods={"mine": fields}))
    with pytest.raises(FedvineError, match="edgebank is fedvine's own; leave out package"):
        Policy(methods={"edgebank": {"package": "others 2.5"}}).installed()
    policy = Policy(methods={"mine": {"package": "others 2.5"}})
    policy.check(mine)
    assert 'mine (package "others 2.5")' in shown(policy)[0]
