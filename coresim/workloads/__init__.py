"""Jobs whose samples can be prepared and timed: the default image job, and what a user imitates to add one."""
