"""Find the job that holds a unique key, by what the key is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import connections

from awa_django.conf import get_settings
from awa_django.enqueue.options import Item, Options, prepare
from awa_django.enqueue.single import keyed
from awa_django.handler import Handler
from awa_django.storage.insert import find_unique_holders


def components(
    handler: Handler, options: Options, args: Sequence[object], kwargs: Mapping[str, object]
) -> Item:
    """The item that stands for a key: where the key names its arguments, no others need be given.

    Raises: InvalidJob when the arguments do not fit, or one that counts is missing.
    """
    unique = prepare(handler, options).unique
    if unique is not None and unique.args is True:
        arguments = handler.bind(args, kwargs)
    else:
        # What a key function reads is said by itself, when it fails.
        named = unique.args if unique is not None and isinstance(unique.args, tuple) else ()
        arguments = handler.signature.bind_some(args, kwargs, needed=named)
    return Item(handler=handler, arguments=arguments, options=options)


def find_holder(item: Item) -> int | None:
    """The id of the job that holds the unique key which the item would take; None when it is free.

    Raises: InvalidJob when the item is refused; ValueError when it is not unique.
    """
    recipe = prepare(item.handler, item.options)
    if recipe.unique is None:
        raise ValueError(f"{recipe.shape.kind!r} is not unique, so none of its jobs holds a key")
    key = keyed(recipe, recipe.make(item.arguments)).unique_key
    assert key is not None
    return find_unique_holders(connections[get_settings().database], [key]).get(key)
