"""Put jobs into the queue, in the caller's transaction: validate, encode, insert, wake."""

from __future__ import annotations

from awa_django.enqueue.enqueued import Enqueued
from awa_django.enqueue.holder import components, find_holder
from awa_django.enqueue.many import enqueue_many
from awa_django.enqueue.options import Item, Options
from awa_django.enqueue.single import enqueue

__all__ = ["Enqueued", "Item", "Options", "components", "enqueue", "enqueue_many", "find_holder"]
