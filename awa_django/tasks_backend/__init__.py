"""The ``django.tasks`` backend: tasks are jobs, in the same tables, queues, workers and admin.

``TASKS = {"default": {"BACKEND": "awa_django.tasks_backend.AwaBackend"}}``. It maps names and states
and adds no behaviour of its own. The framework is Django's from 6.0 on, and the ``django-tasks``
package on Django 5.2.
"""

from __future__ import annotations

from awa_django.tasks_backend.backend import AwaBackend, load
from awa_django.tasks_backend.handler import AwaTaskContext, UnstorableResult
from awa_django.tasks_backend.task import AwaTask

__all__ = ["AwaBackend", "AwaTask", "AwaTaskContext", "UnstorableResult", "load"]
