from __future__ import annotations

from django.urls import path

from example_project.shop import views

urlpatterns = [
    path("", views.shop, name="shop"),
    path("orders/", views.recent_orders, name="recent_orders"),
    path("order/", views.order, name="order"),
]
