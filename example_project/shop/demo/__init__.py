"""What ``manage.py demo`` is made of: the load, the account of it, and the processes that it starts."""
