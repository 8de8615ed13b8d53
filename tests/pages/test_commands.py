"""scripts/commands: what counts as a command of a page, what becomes of each, and when it fails."""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
runner = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "commands.py"), run_name="runner"))

PAGE = """
Text with `fedvine show fedlink`, `fedvine.core.method`, `fedvine serve`, `scripts/bench cities` and
`fedvine show
fedlink` again.

<!-- slow `fedvine run`: a minute -->
<!-- template `fedvine run NAME`: NAME is a
method -->
<!-- a comment like any other -->

```
pip install -c constraints.txt ".[demo,flare]"
fedvine run fedlink --data flights     # a year
hub    fedvine run NAME --data \\
    flights
fedvine list
fedvine list
```

```python
fedvine = 1
```

```{toctree}
README
```
"""


def test_what_counts_as_a_command_and_what_a_mark_makes_of_it():
    """The longest beginning counts; twice in a block is twice, in the text it is once."""
    assert [(c.text, c.line, c.mark, c.reason) for c in runner.commands(PAGE)] == [
        ("fedvine serve --help", 2, "", ""),
        ("fedvine show fedlink", 2, "", ""),
        ("scripts/bench cities", 2, "", ""),
        ('pip install -c constraints.txt ".[demo,flare]"', 12, "install", ""),
        ("fedvine run fedlink --data flights", 13, "slow", "a minute"),
        ("fedvine run NAME --data flights", 14, "template", "NAME is a method"),
        ("fedvine list", 16, "", ""),
        ("fedvine list", 17, "", ""),
        ("fedvine = 1", 21, "", "")]
    assert runner.commands(PAGE)[-1].code == "fedvine = 1\n"
    assert runner.extras(runner.commands(PAGE)) == {"demo", "flare"}
    assert runner.extras(runner.commands("`fedvine list`, the extra `metis`")) == set()


@pytest.mark.parametrize(("page", "sentence"), [
    ("```\nls\n```", "line 2: 'ls' stands in a block of commands"),
    ("<!-- slow `fedvine run`: long -->\n`fedvine list`", "no command begins with `fedvine run`"),
    ("<!-- slow: long -->\n`fedvine list`", "a mark is <!-- KIND `command`: reason -->"),
    ("```\nfedvine run fedlink --data ...\n```", "line 2: `fedvine run fedlink"),
    ("Then `fedvine predict KIT`.", "line 1: `fedvine predict KIT` has dots or a word that"),
    ("<!-- slow `fedvine list`: -->\n`fedvine list`", "a mark is <!--"),
])
def test_no_mark_is_loose_and_no_line_is_passed_over(page, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        runner.commands(page)


def test_every_page_can_be_read():
    listed = {p.name: runner.commands(runner.marked(p)) for p in runner.pages()}
    assert sum(len(found) for found in listed.values()) > 80
    assert runner.extras(listed["README.md"]) == {"demo"}
    assert all(c.reason for found in listed.values() for c in found if c.mark in runner.KINDS)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A reader in whose environment this Python is, and pages of her own."""
    found = object.__new__(runner.Reader)
    found.work, found.seconds, found.tree = tmp_path / "work", 60, tmp_path / "tree"
    found.work.mkdir()
    found.tree.mkdir()
    (found.tree / "a.txt").write_text("as it is")
    environment = tmp_path / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    found.environment = lambda wanted: environment
    found.page = tmp_path / "page.md"
    monkeypatch.setitem(runner.Reader.read.__globals__, "ROOT", tmp_path)
    return found


def test_commands_run_in_order_in_a_copy(reader, capsys):
    reader.page.write_text("""
<!-- slow `python -c "pass`: for ever -->
<!-- network `python -c 1`: nothing -->
```
python -c "assert open('a.txt').read() == 'as it is'; open('a.txt', 'w').write('mine')"
python -c "assert open('a.txt').read() == 'mine'"
python -c "pass"
python -c 1
python -m venv .venv
```""")
    assert reader.read(reader.page, quick=False, network=False) == []
    said = [line.split(":")[0].strip() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [word.split(" ")[0] for word in said] == ["ran", "ran", "ran", "needs", "nothing",
                                                     "environment"]
    assert (reader.tree / "a.txt").read_text() == "as it is"
    assert reader.read(reader.page, quick=True, network=False) == []
    assert "takes long:       python -c \"pass\"" in capsys.readouterr().out


def test_one_that_fails_is_named_with_what_it_wrote(reader, capsys):
    reader.page.write_text("""
```
python -c "import sys; print('because'); sys.exit(3)"
python -c "print(1)"
```""")
    first, = reader.read(reader.page, quick=True, network=False)
    assert first.startswith("page.md, line 3: `python -c") and first.endswith("ended with 3.")
    said = capsys.readouterr().out
    assert "    | because" in said and "ran" in said        # the last one had its turn
    reader.page.write_text("```\nls\n```")
    assert "'ls' stands in a block" in reader.read(reader.page, True, False)[0]


@pytest.mark.parametrize("mark", ["", "<!-- slow `python`: for ever -->"])
def test_one_that_does_not_end_is_stopped_with_all_that_it_started(reader, capsys, mark):
    """A fault, unless the page says that it takes long."""
    reader.page.write_text(f"""{mark}
```
python -c "import time; time.sleep(999)" | cat
```""")
    reader.seconds = 0.5
    failures = reader.read(reader.page, quick=False, network=False)
    if mark:
        assert failures == [] and "stopped at" in capsys.readouterr().out
    else:
        assert failures[0].endswith("did not end and is not marked slow.")
