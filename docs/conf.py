"""Sphinx: the MyST pages of the repository, and docstrings; scripts/docs calls it from the root."""

import sys
from pathlib import Path

from pydantic import BaseModel
from sphinx.ext.autodoc.mock import mock

sys.path.insert(0, str(Path(__file__).parent))
import api_pages

project = "fedvine"
author = "The fedvine authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode",
              "sphinx_gallery.gen_gallery"]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst", "docs/gallery/*.rst",
                    "docs/decisions/*.md", "docs/results/*.md", "docs/results/cells/*.md"]
myst_heading_anchors = 3
highlight_language = "none"       # of blocks that name no language: commands, formulas

autodoc_mock_imports = ["nvflare"]    # of the extra flare
autodoc_typehints_format = "short"
add_module_names = False
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Shapes", "params_style")]
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": "examples/gallery",
    "gallery_dirs": "docs/gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "min_reported_time": 3600,
    "show_memory": False,
}

html_theme = "furo"
html_title = "fedvine"
html_show_copyright = False
html_copy_source = False


def _fields(app, what, name, thing, options, lines):
    """Put a table of fields under the docstring of a pydantic model, such as a method."""
    if what == "class" and issubclass(thing, BaseModel):
        lines += ["", *api_pages.fields(thing)]


def _signature(app, what, name, thing, *rest):
    """Show no signature for a pydantic model: the table has its fields."""
    return ("", "") if what == "class" and issubclass(thing, BaseModel) else None


def _skipped(app, what, name, thing, skip, options):
    """Leave out fields of a NamedTuple, whose texts are numbers, and scikit-learn's requests."""
    number = (getattr(thing, "__doc__", "") or "").startswith("Alias for field")
    return True if number or name.endswith("_request") or name == "get_metadata_routing" else None


def _title(app, name, source):
    """Give a page that a command wrote its file's name as a title, and its picture."""
    if name.startswith("docs/results/") and not source[0].startswith("# "):
        page = app.srcdir / name
        drawn = page.with_suffix(".png").exists()
        picture = f"![{page.name}]({page.name}.png)\n\n" if drawn else ""
        source[0] = f"# {page.name}\n\n{picture}{source[0]}"


def setup(app):
    """Write the pages of the API reference before Sphinx looks for pages."""
    with mock(autodoc_mock_imports):
        api_pages.write(Path(__file__).parent / "api")
    app.connect("source-read", _title)
    app.connect("autodoc-process-docstring", _fields)
    app.connect("autodoc-skip-member", _skipped)
    app.connect("autodoc-process-signature", _signature)
