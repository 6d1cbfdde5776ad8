"""The command line: the only layer that prints, exits or reads argv. One file per verb."""
