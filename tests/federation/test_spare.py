"""Processes that live for long keep nothing of jobs that have ended."""

from types import SimpleNamespace

import pytest

from fedvine.federation import spare


@pytest.mark.slow
def test_of_a_job_that_ended_nothing_is_kept():
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from nvflare.fuel.f3.communicator import Communicator
    from nvflare.fuel.f3.endpoint import Endpoint, EndpointState
    from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint
    from nvflare.fuel.f3.stats_pool import new_time_pool

    cell = SimpleNamespace(communicator=Communicator(Endpoint("server")),
                           msg_travel_stats_pool=new_time_pool("travel", "seconds"))
    kept = cell.communicator.conn_manager.sfm_endpoints
    for name, state in {"ada": EndpointState.READY, "bob": EndpointState.DISCONNECTED,
                        "ada.new": EndpointState.READY, "ada.old": EndpointState.DISCONNECTED,
                        "server.old": EndpointState.DISCONNECTED}.items():
        kept[name] = SfmEndpoint(Endpoint(name))
        kept[name].endpoint.state = state
        cell.msg_travel_stats_pool.record_value(f"{name}#task:get", 0.1)
        cell.msg_travel_stats_pool.record_value(f"{name}#task:put", 0.1)
    spare.forget_jobs(cell)
    assert set(kept) == {"ada", "bob", "ada.new"}       # bob, a site, may come back
    assert set(cell.msg_travel_stats_pool.cat_bins) == {
        f"{name}#task:{what}" for name in kept for what in ("get", "put")}
