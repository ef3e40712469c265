"""What the tests in a browser share: a policy as strict as one can be, and POSTs without clicking."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# As docs/security.md has it for Django 6.
SECURE_CSP = {
    "default-src": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
    "form-action": ["'self'"],
    "object-src": ["'none'"],
}
POLICY = "; ".join(f"{directive} {' '.join(sources)}" for directive, sources in SECURE_CSP.items())

# page.evaluate(POST, [url, {"name": "value"}]) on a page that has a form.
POST = """
([url, data]) => {
    const form = Object.assign(document.createElement("form"), {method: "post", action: url});
    const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
    for (const [name, value] of Object.entries({...data, csrfmiddlewaretoken: token})) {
        form.append(Object.assign(document.createElement("input"), {type: "hidden", name, value}));
    }
    document.body.append(form);
    form.submit();
}
"""


def strict_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware for Django 5.2, which has none of its own: nothing inline, nothing from elsewhere."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return respond
