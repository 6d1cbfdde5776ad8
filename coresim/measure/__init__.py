"""The one instrument: a job's own loader, run with several numbers of workers while it notes what each part costs."""
