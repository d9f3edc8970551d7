"""`kubectl epd`: what the operator would do with a file, and why; how an object fares, and what mends it."""
