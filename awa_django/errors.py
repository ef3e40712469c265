"""The errors this package raises: what happened is an attribute, what to do is in the message."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured


class AwaError(Exception):
    """Base of every error of this package."""


class ConfigurationError(AwaError, ImproperlyConfigured):
    """A setting, a decorator or a command-line option is wrong."""


class InvalidJob(AwaError, ValueError):
    """A job was refused at enqueue; nothing was written. The message names the argument or option."""


class UnknownJobKind(AwaError, LookupError):
    """No handler is registered under this kind."""

    def __init__(self, kind: str, message: str | None = None) -> None:
        super().__init__(
            message
            or f"no handler is registered for kind {kind!r}: is its module named tasks.py or jobs.py "
            "in an installed app, or listed in AWA['IMPORTS']?"
        )
        self.kind = kind


class JobNotFound(AwaError, LookupError):
    """No job has this id: it never existed, or was pruned after its retention."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} does not exist (or was deleted after its retention)")
        self.job_id = job_id


class ScheduleNotFound(AwaError, LookupError):
    """No schedule has this name: none was declared, or no worker declares it any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}: `manage.py awa_cron list` names them all")
        self.name = name


class UniqueConflict(AwaError):
    """Another job holds the unique key.

    ``holder_id`` is the id of that job, or None when it was gone before it could be named.
    """

    def __init__(
        self, message: str, *, holder_id: int | None, constraint: str = "idx_awa_jobs_unique"
    ) -> None:
        super().__init__(message)
        self.holder_id = holder_id
        self.constraint = constraint


class SchemaMismatch(AwaError):
    """The schema in the database is not the one this code works on."""

    def __init__(self, *, expected: int, found: int | None) -> None:
        if found is None:
            what_to_do = "the awa schema is not installed: run `manage.py migrate awa`"
        elif found < expected:
            what_to_do = (
                f"the awa schema is at version {found}, this code needs {expected}: "
                "run `manage.py migrate awa`"
            )
        else:
            what_to_do = (
                f"the awa schema is at version {found}, newer than the {expected} this code knows: "
                "upgrade awa-django here, or go back by `manage.py migrate awa "
                f"{expected:04d}` of the newer release"
            )
        super().__init__(what_to_do)
        self.expected = expected
        self.found = found


class TerminalError(AwaError):
    """Raised by a handler: fail the job now, whatever attempts are left."""
