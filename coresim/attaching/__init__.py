"""Attach to a user's unchanged program, and observe its loop and its loader from inside."""
