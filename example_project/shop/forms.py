from __future__ import annotations

from django import forms

from example_project.shop.models import Product


class OrderForm(forms.Form):
    customer = forms.EmailField(max_length=254, label="E-mail", initial="ann@example.org")
    product = forms.ChoiceField(choices=Product.choices)
