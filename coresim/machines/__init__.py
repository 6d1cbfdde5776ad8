"""Published facts: machines that one can rent or buy, and how long training steps take on their GPUs."""
