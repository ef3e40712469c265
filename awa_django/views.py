"""Views that a project puts into its URLs: the metrics of the queue."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.db import DatabaseError, InterfaceError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from awa_django.conf import get_settings
from awa_django.exposition import CONTENT_TYPE
from awa_django.metrics import render

PERMISSION = "awa.view_queuestats"
# For a person with a browser or with curl; the same whether or not there is a token.
NOT_ALLOWED = (
    "Send the token of AWA['METRICS_TOKEN'] as `Authorization: Bearer ...`, or log in to the admin\n"
    f"as a member of staff with the permission {PERMISSION}.\n"
)


@require_safe
@never_cache
@transaction.non_atomic_requests
def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics in Prometheus' text format, for who brings ``AWA["METRICS_TOKEN"]`` or is staff.

    The token comes as ``Authorization: Bearer ...``; members of staff need the permission to view the
    statistics. Answers 401 to others, and 503 when the database does not answer in time.
    """
    if not (_has_token(request) or _is_staff(request)):
        return HttpResponse(
            NOT_ALLOWED, "text/plain", status=401, headers={"WWW-Authenticate": 'Bearer realm="metrics"'}
        )
    try:
        text = render()
    except (DatabaseError, InterfaceError) as exc:
        return HttpResponse(f"the database did not answer: {type(exc).__name__}\n", "text/plain", status=503)
    return HttpResponse(text, CONTENT_TYPE)


def _has_token(request: HttpRequest) -> bool:
    token = get_settings().metrics_token
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return token is not None and scheme.lower() == "bearer" and constant_time_compare(given.strip(), token)


def _is_staff(request: HttpRequest) -> bool:
    user = getattr(request, "user", None) or AnonymousUser()
    return bool(user.is_staff and user.has_perm(PERMISSION))  # who is not active has no permission
