"""The lists of jobs: pages by key, capped counts, and only what an index or a stated window gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from awa_django.admin import base, reach, search
from awa_django.admin.filters import JobFilter, names_for
from awa_django.admin.keyset import CountTo, Key, Order

# Where a page begins: behind a row, or before one; and where a window begins. In the URL.
AFTER_VAR, BEFORE_VAR, FROM_VAR = "after", "before", "from"
# ``before`` the end: the last page.
END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Where the links to other pages lead; empty where there is no such page."""

    first: str = ""
    previous: str = ""
    next: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was looked through where not all was."""

    size: str
    start: str
    end: str
    """The first row that was not looked at; empty where all behind ``start`` was."""
    is_by_instant: bool
    restart_url: str
    next_url: str


@dataclass(frozen=True, slots=True)
class Position:
    """Which page of the list is asked for."""

    after: Key | None = None
    before: Key | None = None
    is_last: bool = False

    @property
    def is_backwards(self) -> bool:
        return self.before is not None or self.is_last


class JobChangeList(ChangeList):
    """Django's, with its results come by otherwise."""

    filter_specs: Any  # JobFilter, all of them
    pages: Pages
    window: Window | None
    line_cap: int
    """More than 0 where only so many of the available jobs were looked through."""
    problem: str

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """All that match, for actions; what the page shows is come by in ``get_results``."""
        for name in (AFTER_VAR, BEFORE_VAR, FROM_VAR):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        return super().get_queryset(request, exclude_parameters)

    @property
    def shown_line_cap(self) -> str:
        return f"{self.line_cap:,}"

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return self.order().by()

    def order(self) -> Order:
        """By the one column asked for, of those that an index is in the order of."""
        default: Any = self.model_admin.ordering
        for part in self.params.get(ORDER_VAR, "").split("."):
            _, sign, place = part.rpartition("-")
            if place.isascii() and place.isdecimal() and int(place[:9]) < len(self.list_display):
                shown = self.list_display[int(place[:9])]
                if shown in (self.sortable_by or ()):
                    column = str(self.get_ordering_field(shown))
                    return Order(("id",) if column == "id" else (column, "id"), descending=sign == "-")
        return Order(tuple(name.removeprefix("-") for name in default), default[0].startswith("-"))

    def get_results(self, request: HttpRequest) -> None:
        term = self.query.strip()
        found = search.read(term, names_for(request).matches) if term else None
        wanted, narrowing, is_possible = self._wanted(found)
        order = self.order()
        narrows = bool(narrowing) or (found is not None and found.kind is None)
        unpacks = bool(narrowing) or (found is not None and found.is_in_json)
        if found is not None and found.is_ids:
            way = reach.by_ids(order, wanted)
        else:
            way = reach.choose(self.model, order, wanted, narrows=narrows, unpacks=unpacks)
        order = way.order
        start, position = _asked(request, order)
        rows = self.root_queryset.none()
        end = None
        if is_possible:
            end = way.end(self.root_queryset, start)
            rows = way.base(self.root_queryset).filter(**way.rest)
            for each in narrowing:
                rows = each.narrow(rows)
            if found is not None and found.kind is None:
                rows = found.apply(rows)
            if start is not None:
                rows = rows.filter(order.behind(start, inclusive=True))
            if end is not None:
                rows = rows.filter(order.behind(end, backwards=True))
        self._show(rows, way, position, start)
        self.problem = "" if found is None else found.problem
        is_cut = way.line is not None and (narrows or bool(way.rest) or self.paginator.is_capped)
        self.line_cap = base.COUNT_CAP if is_cut else 0
        self.window = None if start is None and end is None else self._window(way, start, end)

    def _wanted(self, found: search.Search | None) -> tuple[dict[str, str], list[JobFilter], bool]:
        """Which values in which columns, who wants more than that, and whether any row can have it all."""
        wanted: dict[str, str] = {}
        chosen: list[JobFilter] = [spec for spec in self.filter_specs if spec.value()]
        pairs = [spec.equals() for spec in chosen]
        if found is not None:
            if found.condition is None:
                pairs.append(None)
            if found.kind is not None:
                pairs.append(("kind", found.kind))
        for pair in pairs:
            if pair is None or wanted.setdefault(*pair) != pair[1]:
                return {}, [], False
        return wanted, [spec for spec in chosen if spec.narrows], True

    def _show(self, rows: QuerySet[Any], way: reach.Reach, position: Position, start: Key | None) -> None:
        """Read one page, and set what the templates ask for."""
        size = self.list_per_page
        counted = rows.values("pk")[: base.COUNT_CAP + 1]
        page, is_cut = self._read(rows, way, position, counted)
        if position.is_backwards and not is_cut and len(page) < size and not position.is_last:
            # Rows vanished, or the page began in the middle: the first page in full instead.
            position = Position()
            page, is_cut = self._read(rows, way, position, counted)
        if page:
            count = page[0].awa_count
        else:
            count = 0 if position == Position() or rows.query.is_empty() else counted.count()
        has_next = is_cut if not position.is_backwards else position.before is not None
        has_previous = position.after is not None if not position.is_backwards else is_cut
        is_first = not has_previous and (page or count == 0)
        order = way.order
        keep = {} if start is None else {FROM_VAR: order.write(start)}
        self.pages = Pages(
            first="" if is_first else self._url(keep),
            previous=self._url({**keep, BEFORE_VAR: order.write(order.key(page[0]))})
            if has_previous and page
            else "",
            next=self._url({**keep, AFTER_VAR: order.write(order.key(page[-1]))})
            if has_next and page
            else "",
            last=self._url({**keep, BEFORE_VAR: END}) if has_next or (count and not page) else "",
        )
        paginator = base.CappedPaginator(rows, size)
        paginator.count = min(count, base.COUNT_CAP)
        paginator.is_capped = count > base.COUNT_CAP
        self.paginator = paginator
        self.result_list = page
        self.result_count = paginator.count
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = True
        self.multi_page = False

    def _read(
        self, rows: QuerySet[Any], way: reach.Reach, position: Position, counted: QuerySet[Any]
    ) -> tuple[list[Any], bool]:
        """The rows of a page in the list's order, and whether there are more in the direction of reading."""
        backwards = position.is_backwards
        key = position.before if backwards else position.after
        if key is not None:
            rows = rows.filter(way.order.behind(key, backwards=backwards))
        rows = rows.order_by(*way.order.by(way.prefix, backwards=backwards)).annotate(
            awa_count=CountTo(counted)
        )
        size = self.list_per_page
        page = list(rows[: size + 1])
        is_cut = len(page) > size
        page = page[:size]
        return (page[::-1] if backwards else page), is_cut

    def _window(self, way: reach.Reach, start: Key | None, end: Key | None) -> Window:
        order = way.order

        def shown(key: Key | None) -> str:
            if key is None:
                return ""
            return base.show_date(key[0]) if order.columns[0] == "run_at" else str(key[0])

        return Window(
            size=f"{way.window or 0:,}",
            start=shown(start),
            end=shown(end),
            is_by_instant=order.columns[0] == "run_at",
            restart_url=self._url({}) if start is not None else "",
            next_url=self._url({FROM_VAR: order.write(end)}) if end is not None else "",
        )

    def _url(self, position: dict[str, str]) -> str:
        return str(self.get_query_string(position))


def _asked(request: HttpRequest, order: Order) -> tuple[Key | None, Position]:
    """Where the window and the page begin; what is no place in this order is left out."""
    after, before, start = (request.GET.get(name, "") for name in (AFTER_VAR, BEFORE_VAR, FROM_VAR))
    key = order.read(after)
    if key is not None:
        return order.read(start), Position(after=key)
    return order.read(start), Position(before=order.read(before), is_last=before == END)
