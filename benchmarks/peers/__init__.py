"""Other queues, each run by a script in a virtual environment of its own."""
