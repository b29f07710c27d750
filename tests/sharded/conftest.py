"""Workers that tests of several files share: they take longer to start than tests do."""

import pytest

from tests.sharded.clients import METHOD, client_of


@pytest.fixture(scope="session")
def one():
    """A client of one worker, which is a process from scratch, as it is for users."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    with dask.config.set({METHOD: "spawn"}):
        cluster = distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def of_two():
    with client_of(2) as client:
        yield client


@pytest.fixture
def two(of_two):
    """A client of two workers, which both run: one may have been killed before."""
    of_two.wait_for_workers(2, timeout=120)
    return of_two
