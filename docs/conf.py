"""The documentation as a site: ``make docs``. Needs no database and nothing from the network."""

from __future__ import annotations

import re
from importlib import metadata

import django
from django.conf import settings
from sphinx.application import Sphinx

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "awa_django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}},
)
django.setup()

project = "awa-django"
project_copyright = f"the authors of {project}"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"{project} {metadata.version(project)}"

myst_heading_anchors = 4  # links to headings as code hosts make them

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
# Of the types in signatures those of Python and Django have no page here, nor have the aliases of ours.
nitpick_ignore_regex = [("py:class", ".*"), ("py:obj", r"typing\..*")]

LINK = re.compile(r"^- \[[^\]]+\]\(([^)]+)\.md\)", re.MULTILINE)


def add_toctrees(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make a table of contents of each section of an index: its list of links is the one place for it."""
    if page not in ("index", "design/README"):
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
        pages = [link for link in LINK.findall(section) if not link.startswith("../")]
        if pages:
            caption = section.partition("\n")[0].lstrip("# ")
            lines = ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
            source[0] += "\n".join(lines)


def list_errors(_app: Sphinx, _what: str, _name: str, _obj: object, _opts: object, lines: list[str]) -> None:
    """Make a list of a docstring's ``Raises:`` section, which comes last."""
    if "Raises:" in lines:
        start = lines.index("Raises:") + 1
        lines[start:] = [re.sub(r"^ {4}(?=\S)", "    - ", line) for line in lines[start:]]


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_toctrees)
    app.connect("autodoc-process-docstring", list_errors)
