"""Real clocks in, a `Profile` out. Never imports the simulator: they meet in `coresim.model.profile`."""
