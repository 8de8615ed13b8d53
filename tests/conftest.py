"""What all tests share: the folder of real data, and a cache that nobody keeps."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fedvine", deadline=None, print_blob=True)
settings.load_profile("fedvine")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    """Nothing a test caches is left behind or found by another test."""
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def data() -> Path:
    """The folder of real data sets; skips where there is none."""
    folder = os.environ.get("FEDVINE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDVINE_DATA names no folder of real data")
    return Path(folder)
