"""The running processes: a supervisor, and the children that run handlers.

A job's path through a child: ``claimer`` takes it, ``executor`` runs its handler, ``verdict`` says
what that means, ``completer`` writes it. The supervisor runs no handler, so nothing that a handler
does can stop its heartbeats, rescues and promotions.
"""
