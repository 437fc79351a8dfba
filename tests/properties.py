"""Property tests in two ways: the same few examples every run, or many fresh ones whose seed is told.

`make test` wants a red test to stay red until the code is right; `make proof` wants examples nobody has seen:

    CLEARHEAD_PROPERTIES=40 pytest -m hypothesis                           # 40 fresh examples of each test
    CLEARHEAD_PROPERTIES=40 pytest -m hypothesis --hypothesis-seed=12345   # those of that run again
"""

import os
import random
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from typing import Any

import hypothesis
import pytest

COUNT = "CLEARHEAD_PROPERTIES"


def choose_profile() -> None:
    """Before any test is collected: settings are read when a test is decorated."""
    always: dict[str, Any] = {"deadline": None, "database": None}
    hypothesis.settings.register_profile("repeatable", derandomize=True, max_examples=25, **always)
    if (count := os.environ.get(COUNT)) is not None:
        # A loaded machine is no property of the code.
        slow = [hypothesis.HealthCheck.too_slow]
        hypothesis.settings.register_profile(
            "proof", derandomize=False, max_examples=int(count), suppress_health_check=slow, **always
        )
    hypothesis.settings.load_profile("repeatable" if count is None else "proof")


class FreshExamples:
    """Seeds every test from one number, counts the examples that were run, and tells both at the end."""

    def __init__(self, seed: int) -> None:
        self.seed, self.examples = seed, 0
        self.tests: set[str] = set()

    def pytest_report_header(self) -> str:
        return f"property tests: {os.environ[COUNT]} fresh examples each, --hypothesis-seed={self.seed}"

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        test = getattr(item, "obj", None)
        if not hasattr(test, "hypothesis"):
            return
        self.tests.add(item.nodeid)
        # Parameters of one test are other tests, with examples of their own.
        digest = sha256(f"{self.seed} {item.nodeid}".encode()).digest()
        hypothesis.seed(int.from_bytes(digest[:8], "big"))(test)
        if not hasattr(test.hypothesis.inner_test, "is_counted"):
            test.hypothesis.inner_test = self._counted(test.hypothesis.inner_test)

    def _counted(self, body: Callable[..., None]) -> Callable[..., None]:
        @wraps(body)
        def counted(*args: Any, **kwargs: Any) -> None:
            body(*args, **kwargs)  # what it rejects is no example, and what fails ends the test
            self.examples += 1

        counted.is_counted = True
        return counted

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        again = f"{COUNT}={os.environ[COUNT]} pytest -m hypothesis --hypothesis-seed={self.seed}"
        terminalreporter.write_line(
            f"{self.examples:,} property examples passed, by {len(self.tests)} tests; the same again: {again}"
        )


def configure(config: pytest.Config) -> None:
    if COUNT in os.environ:
        given = config.getoption("--hypothesis-seed", default=None)
        seed = random.SystemRandom().randrange(2**32) if given is None else int(given)
        config.pluginmanager.register(FreshExamples(seed), "fresh-examples")
