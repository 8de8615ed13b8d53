"""fedlink_plus: its loops give the same without compilation, which finds a wrong index."""

import json
import os
import subprocess
import sys

import pytest

RUN = """
import json, sys, warnings
warnings.simplefilter("ignore", RuntimeWarning)     # integers of hashes wrap around
from fedvine import testing
from fedvine.experiments.run import run
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.tasks.link_prediction import LinkPrediction
method = FedLinkPlus.tiny().model_copy(update=json.loads(sys.argv[1]))
stream = testing.tiny_stream()
parts, plan = testing.tiny_case(stream)
made = run(method, parts, plan, seed=7, protocol=LinkPrediction.tiny())
made.finish()
print(json.dumps(made.summary["scores"]["test"]["mean"], sort_keys=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"share": "none", "capacity": 60}],
                         ids=["rows", "trimmed"])
def test_loops_stay_within_bounds(options):
    compiled, plain = (subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(options)], check=True, capture_output=True,
        text=True, env={**os.environ, "NUMBA_DISABLE_JIT": off}).stdout for off in ("0", "1"))
    assert json.loads(plain) == pytest.approx(json.loads(compiled), abs=1e-6)
