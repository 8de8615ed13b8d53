"""dgcolearn_plus: the contract."""

import pytest

from fedvine import testing
from fedvine.methods.dgcolearn_plus import DgCoLearnPlus


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(DgCoLearnPlus.tiny())
