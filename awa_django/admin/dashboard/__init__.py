"""The dashboard: how the queue fares, on one page that refreshes by itself."""

from awa_django.admin.dashboard.page import Dashboard, DashboardAdmin

__all__ = ["Dashboard", "DashboardAdmin"]
