"""Measuring: run a job's own loader with several numbers of workers, and note what each part costs."""
