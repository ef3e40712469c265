"""The list that somebody came from to the page of a job, as it was left: its filters, search and place.

Django's lists put what was asked of them into the links of their rows; here it is kept until the way back.
"""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict

# Django's own name for it.
NAME = "_changelist_filters"


def to_list(url: str, request: HttpRequest) -> str:
    """The address of a list, asked as before; from the page of a job that was opened there."""
    query = _kept(request)
    return f"{url}?{query}" if query else url


def carried(url: str, request: HttpRequest) -> str:
    """The address of another page of the job, which leads back to the same list."""
    return _carrying(url, _kept(request))


def from_list(url: str, request: HttpRequest) -> str:
    """The address of a page of a job, for who comes from the list that was asked so."""
    return _carrying(url, request.GET.urlencode())


def _kept(request: HttpRequest) -> str:
    return QueryDict(request.GET.get(NAME, "")).urlencode()


def _carrying(url: str, query: str) -> str:
    return f"{url}?{urlencode({NAME: query})}" if query else url
