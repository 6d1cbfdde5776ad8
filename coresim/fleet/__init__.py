"""Plan many jobs on many kinds of hosts: the fleet file, the transfer of a job to another host, the best hosts."""
