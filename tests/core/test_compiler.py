"""Optimizers work without PyTorch's compiler, and the compiler is there when it is asked for."""

import subprocess
import sys

import pytest

STEPS = """
import sys
{left_out}
import torch
found = []
for kind in (torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS):
    weight = torch.nn.Parameter(torch.arange(3.0))
    optimizer = kind([weight], lr=0.1)
    def loss():
        optimizer.zero_grad()
        value = (weight * 2).square().sum()
        value.backward()
        return value
    loss()
    for _ in range(3):
        optimizer.step(loss)
    optimizer.load_state_dict(optimizer.state_dict())
    found += weight.tolist()
print("torch._dynamo.utils" in sys.modules)
print(found)
"""
LEFT_OUT = """
from fedvine.core.compiling import leave_out_compiler
leave_out_compiler()
"""
COMPILED = STEPS.format(left_out=LEFT_OUT) + """
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist())
print(torch.utils.checkpoint.checkpoint(torch.sin, torch.zeros(1), use_reentrant=False).tolist())
import torch._dynamo.config
print(sys.modules["torch._dynamo"].__file__ is not None)
"""


def lines(text):
    """What a process prints."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          check=True).stdout.splitlines()


@pytest.mark.slow
def test_optimizers_take_the_same_steps_without_the_compiler():
    without, with_it = (lines(STEPS.format(left_out=call)) for call in (LEFT_OUT, ""))
    assert without[0] == "False" and with_it[0] == "True"       # else nothing is left out
    assert without[1] == with_it[1]


@pytest.mark.slow
def test_who_compiles_gets_the_compiler():
    assert lines(COMPILED)[2:] == ["[2.0, 2.0]", "[0.0]", "True"]


@pytest.mark.slow
def test_a_run_does_not_import_it(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text('[method]\nname = "dgcolearn"\nrounds = 1\n[data]\nsource = "generated"\n'
                    "options = {nodes = 60, edges = 600, snapshots = 4}\n")
    said = lines(f"""
import sys
from fedvine.cli.main import main
sys.argv = ["fedvine", "run", {str(file)!r}, "--out", {str(tmp_path / "run")!r}]
try:
    main()
except SystemExit as end:
    assert not end.code
print("torch.optim" in sys.modules, "torch._dynamo.utils" in sys.modules)""")
    assert said[-1] == "True False"
