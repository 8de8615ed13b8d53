"""fedlink_plus: the contract."""

import pytest

from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(FedLinkPlus.tiny())
