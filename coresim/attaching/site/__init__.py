"""A folder that stands first on PYTHONPATH of a program that coresim attaches to."""
