from __future__ import annotations

from django.contrib import admin

from example_project.shop.models import Message, Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable at run time
    list_display = ["id", "customer", "product", "amount", "placed_at", "paid_at", "points"]
    search_fields = ["customer"]


@admin.register(Message)
class MessageAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["id", "purpose", "recipient", "sent_at", "job_id"]
    list_filter = ["purpose"]
