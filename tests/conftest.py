"""What all tests share: the folder of real data, a cache that nobody keeps, and two options.

``--shuffle SEED`` runs the tests of each file, and the files, in a drawn order. ``--cpu N`` ends
with the N tests that took most processor time, their child processes included.
"""

import os
import random
import resource
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail.
settings.register_profile("fedvine", deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedvine")


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run tests in a drawn order")
    parser.addoption("--cpu", type=int, metavar="N", help="show the N tests with most CPU time")


@pytest.hookimpl(tryfirst=True)                 # before tests are chosen by their marks
def pytest_collection_modifyitems(config, items):
    """Files stay together, for the sake of what their tests share. A federation of real processes
    is slow to start, whatever is asked of it; it comes first with the file that takes longest, so
    that no worker waits for them."""
    long = {item.path for item in items if item.path.name == "test_contract.py"}
    for item in items:
        if "federation" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            long.add(item.path)
    items.sort(key=lambda item: item.path not in long)
    seed = config.getoption("shuffle")
    if seed is not None:
        draw = random.Random(seed)
        place = {path: draw.random() for path in dict.fromkeys(item.path for item in items)}
        draw.shuffle(items)
        items.sort(key=lambda item: place[item.path])


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[BEGAN] = _cpu()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown":
        item.user_properties.append(("cpu", _cpu() - item.stash.get(BEGAN, _cpu())))
    yield


def pytest_terminal_summary(terminalreporter, config):
    took = sorted(((seconds, report.nodeid) for reports in terminalreporter.stats.values()
                   for report in reports for name, seconds in getattr(report, "user_properties", ())
                   if name == "cpu"), reverse=True)
    if config.getoption("cpu"):
        terminalreporter.section(f"{sum(s for s, _ in took):.0f} s of processor time")
        for seconds, name in took[:config.getoption("cpu")]:
            terminalreporter.line(f"{seconds:7.2f} {name}")


BEGAN = pytest.StashKey[float]()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    """Nothing a test caches is left behind or found by another test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDVINE_CACHE", str(folder))
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)     # of the terminal that tests are run in
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder, in which the test is."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def data() -> Path:
    """The folder of real data sets; skips where there is none."""
    folder = os.environ.get("FEDVINE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDVINE_DATA names no folder of real data")
    return Path(folder)
