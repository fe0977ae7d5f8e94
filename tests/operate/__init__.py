"""What operators run, judged by the tools that they judge it with."""
