"""Engines: pure functions ``(Pipeline, Draws, RunLength) -> Run``, with no generator, no clock and no I/O."""
