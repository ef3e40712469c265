"""Which actions there are on jobs: what each is called, who may do it, what it asks for and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminSplitDateTime
from django.utils.translation import gettext_lazy as _l

from awa_django.admin.words import Words
from awa_django.operations import HIGHEST_PRIORITY, LONGEST_NAME, LOWEST_PRIORITY, Change
from awa_django.operations.change import Operation
from awa_django.states import JobState


class PriorityForm(forms.Form):
    priority = forms.IntegerField(
        label=_l("Priority"),
        min_value=LOWEST_PRIORITY,
        max_value=HIGHEST_PRIORITY,
        initial=2,
        help_text=_l("1 runs soonest, 4 last; 2 is usual."),
    )


class DateAndTime(AdminSplitDateTime):
    """Its two inputs have names, which Django 5.2 does not give them."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        for part, name in zip(self.widgets, (_l("Date"), _l("Time")), strict=True):
            part.attrs["aria-label"] = name


class RescheduleForm(forms.Form):
    run_at = forms.SplitDateTimeField(label=_l("Run at"), widget=DateAndTime)


class QueueForm(forms.Form):
    queue = forms.CharField(label=_l("Queue"), max_length=LONGEST_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAction:
    """One action: what it is called, who may do it, what it asks first and what it does."""

    name: str
    label: Words
    selected: Words
    """What it is called in the list, where it is done to what is ticked."""
    operation: Operation
    effect: Words
    """What happens to which jobs, for the page that asks."""
    asks: bool = True
    """On a page of its own first; all that match are always asked about."""
    form: type[forms.Form] | None = None
    deletes: bool = False

    @property
    def permission(self) -> str:
        """The name that ``has_perm`` takes."""
        return Change(operation=self.operation).permission

    @property
    def states(self) -> frozenset[JobState]:
        """Of a job for which its page offers it; the operation itself decides."""
        return Change(operation=self.operation).states

    def change(self, form: forms.Form | None) -> Change:
        """What was asked for. Raises: ValueError for a value that only the operation knows to be wrong."""
        change = Change(operation=self.operation, **({} if form is None else form.cleaned_data))
        change.check()
        return change


JOB_ACTIONS = {
    action.name: action
    for action in (
        JobAction(
            name="retry_jobs",
            label=_l("Retry"),
            selected=_l("Retry selected jobs"),
            operation="retry",
            effect=_l(
                "Jobs that have failed or were cancelled become available, with all their attempts again."
            ),
            asks=False,
        ),
        JobAction(
            name="run_jobs_now",
            label=_l("Run now"),
            selected=_l("Run selected jobs now"),
            operation="run_now",
            effect=_l("Jobs that wait for their time or for a retry become available at once."),
            asks=False,
        ),
        JobAction(
            name="cancel_jobs",
            label=_l("Cancel"),
            selected=_l("Cancel selected jobs"),
            operation="cancel",
            effect=_l(
                "Jobs that have not ended are cancelled. A running handler is told within a second, and "
                "what it returns is dropped."
            ),
        ),
        JobAction(
            name="set_priority_of_jobs",
            label=_l("Set priority"),
            selected=_l("Set priority of selected jobs"),
            operation="set_priority",
            effect=_l("The priority of jobs that have not ended is set."),
            form=PriorityForm,
        ),
        JobAction(
            name="reschedule_jobs",
            label=_l("Reschedule"),
            selected=_l("Reschedule selected jobs"),
            operation="reschedule",
            effect=_l("Jobs that have not started become due at another time."),
            form=RescheduleForm,
        ),
        JobAction(
            name="move_jobs",
            label=_l("Move to another queue"),
            selected=_l("Move selected jobs to another queue"),
            operation="move_queue",
            effect=_l("Jobs that have not started and have no unique key go to another queue."),
            form=QueueForm,
        ),
        JobAction(
            name="delete_jobs",
            label=_l("Delete"),
            selected=_l("Delete selected jobs"),
            operation="delete",
            effect=_l("Jobs that do not run are deleted for good, with their errors and results."),
            deletes=True,
        ),
    )
}
