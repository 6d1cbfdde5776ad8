"""Attaching to a user's unchanged program: what its loop and its loader do, told from inside of it."""
