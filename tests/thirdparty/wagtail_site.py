"""What an editor of the Wagtail site does, and what is there afterwards; run with the site's settings."""

from __future__ import annotations

import json
import sys

import django

django.setup()

from django.core.files.base import ContentFile  # noqa: E402
from wagtail.documents.models import Document  # noqa: E402
from wagtail.models import Page  # noqa: E402


def edit() -> None:
    """Publish a page and a document: each asks for tasks as it is saved."""
    Page.objects.get(depth=1).add_child(instance=Page(title="Rhubarb"))
    Document.objects.create(title="Recipe", file=ContentFile(b"rhubarb", name="recipe.txt"))


def delete() -> None:
    """Delete the document: its file is deleted by a task that is enqueued once that has committed."""
    Document.objects.get().delete()


def show() -> None:
    print(
        json.dumps(
            {
                "pages": [page.title for page in Page.objects.search("rhubarb")],
                "documents": [document.title for document in Document.objects.search("recipe")],
            }
        )
    )


{"edit": edit, "delete": delete, "show": show}[sys.argv[1]]()
