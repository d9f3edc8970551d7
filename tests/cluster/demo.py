"""demo"""


def run_demo() -> None: ...
