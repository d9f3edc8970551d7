"""Writes the golden files anew: `PYTHONPATH=operator:tests python -m golden.update`. Review the diff."""

from __future__ import annotations

from golden.render import GOLDEN, examples, rendered


def main() -> None:
    """Replace all golden files, and remove those without an example."""
    wanted = {GOLDEN / example.name: rendered(example) for example in examples()}
    for stale in set(GOLDEN.glob("*.yaml")) - set(wanted):
        stale.unlink()
    for path, text in wanted.items():
        path.write_text(text)
        print(path.name)


if __name__ == "__main__":
    main()
