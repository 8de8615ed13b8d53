"""FedLink under the contract suite, and against slow references."""

import pytest

from fedvine import checks
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_local import FedLinkLocal
from fedvine.methods.fedlink_minibatch import FedLinkMiniBatch
from fedvine.methods.fedlink_noemb import FedLinkNoEmb
from fedvine.methods.local import Local
from fedvine.methods.stfl import STFL

FAMILY = (FedLink, FedLinkLocal, FedLinkNoEmb, FedLinkMiniBatch, STFL, Local)


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", FAMILY, ids=lambda m: m.name)
def test_contract(method, check):
    check(method.tiny())
