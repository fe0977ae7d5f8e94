"""Logs as Spark reads them: from directories, object stores and daemons."""
