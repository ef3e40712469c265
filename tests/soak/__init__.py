"""A chaos soak: workers and producers under a nemesis, and an account of every job at the end.

``python -m tests.soak --minutes 10 --seed 7``; how it works stands in ``run.py``.
"""
