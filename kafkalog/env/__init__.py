"""The seams to the outside world: clock, filesystem, scheduler, threads, random numbers."""
