"""`kubectl epd`: what the operator would do with a file, and why."""
