"""Interfaces to the outside world, and their implementations on this machine."""
