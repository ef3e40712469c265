"""What connects the queue to a service outside of Django. Each module needs a package of its own."""
