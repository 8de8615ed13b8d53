"""fedlink_plus: the contract."""

import pytest

from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("share", ["rows", "sums"])
def test_contract(check, share):
    check(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | {"share": share, "buckets": 64}))
