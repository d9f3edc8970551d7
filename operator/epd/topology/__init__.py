"""What a spec means, as pure functions: roles, engine version and flags, the two keys, and the hash of the inputs."""
