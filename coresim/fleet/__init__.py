"""Many jobs on many kinds of hosts: the fleet file, a job transferred to another host, the best host of each job."""
