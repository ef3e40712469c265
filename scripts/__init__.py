"""What the make targets run; each is a program of its own."""
