import subprocess

import peers
import pytest


@pytest.mark.skipif(peers.go() is None, reason="Go is not installed")
@pytest.mark.parametrize("command", ["vet", "test"])
def test_the_sources_in_go(command: str) -> None:
    done = subprocess.run([str(peers.go()), command, "."], cwd=peers.HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
