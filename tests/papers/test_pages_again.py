"""Pages of results come out of the kept cells again, but for those that are frozen text."""

import re
from pathlib import Path

import pytest

from fedvine.datasets import at_hand
from fedvine.papers import reproduce
from fedvine.results.frozen import frozen

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted(ROOT.glob("docs/results/*.md")) if not frozen(page)
         and page.stem in reproduce.names() and page.stem not in reproduce.tgb.STUDIES
         # what an unfinished page says of panels without a run depends on the data at hand
         and "runs were not made" not in page.read_text()]
# Another --cap gives another sentence, and so does another place of data that are not here.
OTHER = re.compile(r"; a page may take \d+(?=\.$)| was not run(, its data .* here)?: .*", re.M)


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A cache of all pages: each data set is read once."""
    return tmp_path_factory.mktemp("tables")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_is_that_of_its_cells(page, monkeypatch, tables):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("FEDVINE_DATA", raising=False)       # by the lines alone
    monkeypatch.setenv("FEDVINE_CACHE", str(tables))
    with at_hand():
        sheet = reproduce.reproduce(page.stem, budget=0, tell=len)
    assert OTHER.sub("", sheet.markdown()) == OTHER.sub("", page.read_text())
