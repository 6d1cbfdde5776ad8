"""The real input pipeline on this machine, run at declared settings and held beside what was predicted."""
