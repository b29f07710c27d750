"""Workers of Dask, for tests."""

from contextlib import contextmanager

import pytest

METHOD = "distributed.worker.multiprocessing-method"


@contextmanager
def client_of(n_workers, threads=1):
    """Start workers, each a process with so many threads, and give a client of theirs.

    They are copies of a process that has imported the package once for all, and so are those that
    take the places of others.
    """
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    with dask.config.set({METHOD: "forkserver"}):
        context = distributed.utils.get_mp_context()
        context.set_forkserver_preload(["distributed", "pm_match"])
        with (
            distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=threads, dashboard_address=None
            ) as own,
            distributed.Client(own) as client,
        ):
            yield client
