"""Fixtures and hooks for all Python tests."""
import contextlib
import os
import signal
import subprocess
import sys

import pytest

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77  # the exit status that ctest reports as Skipped


def pytest_addoption(parser):
    parser.addoption("--build", default=f"{SOURCE}/build/release", metavar="FOLDER", help="build folder (default: build/release)")


def pytest_configure(config):
    os.environ["TEST_BUILD"] = os.path.abspath(config.getoption("build"))
    # nohup and & start a program with signals ignored, and children inherit that.
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("campaign")
    if marker and not os.environ.get("FRACGPU_CAMPAIGN"):
        pytest.skip(f"{marker.args[0]}; FRACGPU_CAMPAIGN=1 runs it")


def pytest_sessionfinish(session, exitstatus):
    """Exits with SKIPPED if all tests were skipped. A module that skips itself leaves nothing collected."""
    outcomes = session.config.pluginmanager.getplugin("terminalreporter").stats
    nothing_failed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if nothing_failed and "skipped" in outcomes and "passed" not in outcomes:
        session.exitstatus = SKIPPED


@pytest.fixture(scope="session")
def build():
    """The build folder."""
    return os.environ["TEST_BUILD"]


@pytest.fixture
def machine():
    """Makes simulated machines, by their profiles, that last as long as the test."""
    from machine import Machine
    with contextlib.ExitStack() as stack:
        yield lambda profile: stack.enter_context(Machine(profile))


@pytest.fixture
def mig_machine():
    """The same for tests that change MIG instances."""
    from mig_machine import MigMachine
    with contextlib.ExitStack() as stack:
        yield lambda profile: stack.enter_context(MigMachine(profile))


@pytest.fixture(scope="session")
def run_again(pytestconfig):
    """Runs pytest again with the same arguments under another command, such as unshare, and ends with its exit status."""
    def run(*command, **options):
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            done = subprocess.run([*command, sys.executable, *sys.orig_argv[1:]], check=False, **options)
        pytest.exit("the tests ran in a child process", done.returncode)
    return run
