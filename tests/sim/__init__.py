"""Simulated twins of the seams: time, chance, tasks, threads and a disk that forgets.

They keep the contracts of ``kafkalog/env``: the suites in this folder run against both.
"""
