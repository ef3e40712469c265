"""Orders, and the messages that went out for them: what the jobs do is seen here."""

from __future__ import annotations

from decimal import Decimal

from django.db import models


class Product(models.TextChoices):
    TEA = "tea", "Tea, 250 g"
    COFFEE = "coffee", "Coffee, 500 g"
    CHOCOLATE = "chocolate", "Chocolate, one bar"


PRICES = {
    Product.TEA: Decimal("7.50"),
    Product.COFFEE: Decimal("12.90"),
    Product.CHOCOLATE: Decimal("3.20"),
}


class Order(models.Model):
    customer = models.EmailField()
    product = models.CharField(max_length=20, choices=Product, default=Product.TEA)
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    placed_at = models.DateTimeField(auto_now_add=True)
    paid_at = models.DateTimeField(null=True, editable=False)
    points = models.IntegerField(default=0, editable=False)
    # The jobs of this order, so that its page can say how they stand.
    receipt_job_id = models.BigIntegerField(null=True, editable=False)
    payment_job_id = models.BigIntegerField(null=True, editable=False)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"


class Message(models.Model):
    """A mail or a note that a job sent. One per job: a job that runs again finds it sent already."""

    class Purpose(models.TextChoices):
        RECEIPT = "receipt"
        REMINDER = "reminder"
        NEWSLETTER = "newsletter"
        WAREHOUSE = "warehouse"

    job_id = models.BigIntegerField(unique=True)
    purpose = models.CharField(max_length=20, choices=Purpose)
    recipient = models.CharField(max_length=254)
    text = models.TextField()
    sent_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.purpose} to {self.recipient}"
