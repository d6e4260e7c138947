"""The endpoint state machine, on its own clock."""

from __future__ import annotations

import pytest

from headrace.drive.dispatch.endpoint import Endpoint, EndpointState


def test_room_is_the_limit_less_what_is_in_flight() -> None:
    endpoint = Endpoint("http://a", 2, 0.0)
    assert endpoint.room(0.0) == 2
    endpoint.sent(0.0, 100.0)
    endpoint.sent(1.0, 50.0)
    assert (endpoint.room(1.0), endpoint.outstanding_tokens) == (0, 150.0)
    endpoint.landed(0.0, 100.0)
    assert (endpoint.room(2.0), endpoint.outstanding_tokens, endpoint.started_sum) == (1, 50.0, 1.0)
    endpoint.check()


def test_breaker_opens_after_five_failures_in_a_row_and_a_trial_mends_it() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    for _ in range(4):
        assert not endpoint.on_failure(0.0, "server_error", "500: boom")
    endpoint.on_answer(0.0, 1.0, 10)  # a success between them: the count begins anew
    for _ in range(4):
        assert not endpoint.on_failure(1.0, "server_error", "500: boom")
    assert endpoint.on_failure(1.0, "server_error", "500: boom")
    assert (endpoint.state, endpoint.why, endpoint.room(1.0)) == (EndpointState.BROKEN, "500: boom", 0)
    assert not endpoint.probe_due(1.5)
    assert endpoint.probe_due(2.0)  # one second later
    endpoint.on_probe(2.0, True)
    assert (endpoint.state, endpoint.room(2.0)) == (EndpointState.TRIAL, 1)
    endpoint.on_answer(3.0, 1.0, 10)
    assert (endpoint.state, endpoint.room(3.0)) == (EndpointState.REACHABLE, 8)


def test_a_failed_trial_opens_it_again_for_twice_as_long() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    for _ in range(2):
        endpoint.on_failure(0.0, "refused", "nothing listens")
    assert endpoint.state is EndpointState.BROKEN  # two refusals suffice
    endpoint.on_probe(1.0, True)
    endpoint.on_failure(1.0, "server_error", "500")
    assert not endpoint.probe_due(2.9)
    assert endpoint.probe_due(3.0)


def test_probes_that_fail_keep_it_broken_with_growing_pauses_up_to_ten_seconds() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    endpoint.on_silent(0.0, "no route")
    now, pauses = 0.0, []
    for _ in range(8):
        due = next(now + t / 10 for t in range(1, 1000) if endpoint.probe_due(now + t / 10))
        pauses.append(round(due - now, 1))
        now = due
        endpoint.on_probe(now, False)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0]


def test_later_waits_twice_as_long_each_time_and_never_opens_the_breaker() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    waits = [endpoint.on_later(0.0, 503, None) for _ in range(10)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]
    assert endpoint.state is EndpointState.LIMITED
    assert endpoint.room(14.9) == 0
    assert endpoint.room(15.0) == 8
    endpoint.on_answer(15.5, 1.0, 5)
    assert endpoint.state is EndpointState.REACHABLE
    assert endpoint.on_later(16.0, 429, 7.0) == 7.0  # Retry-After is taken at its word
    assert endpoint.room(22.9) == 0
    endpoint.on_answer(23.5, 1.0, 5)
    assert endpoint.on_later(24.0, 429, 0.0) == 0.1  # zero would be asking without end


def test_four_hundreds_about_a_row_never_count() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    for _ in range(100):
        endpoint.on_refusal(0.0, 400, "too long")
    assert (endpoint.state, endpoint.answered) == (EndpointState.REACHABLE, 0)


def test_three_404_in_a_row_are_about_the_server() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    endpoint.on_refusal(0.0, 404, "no such model")
    endpoint.on_refusal(0.0, 404, "no such model")
    endpoint.on_answer(0.0, 1.0, 5)
    for _ in range(2):
        endpoint.on_refusal(0.0, 404, "no such model")
    assert endpoint.state is EndpointState.REACHABLE
    endpoint.on_refusal(0.0, 405, "no such path")
    assert (endpoint.state, endpoint.room(0.0)) == (EndpointState.REFUSING, 0)
    assert "no such path" in endpoint.why


def test_three_unanswered_probes_open_it_but_a_row_between_them_does_not() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    assert not endpoint.on_probe(0.0, False)
    assert not endpoint.on_probe(10.0, False)
    endpoint.on_answer(11.0, 1.0, 5)
    assert not endpoint.on_probe(20.0, False)
    assert not endpoint.on_probe(30.0, False)
    assert endpoint.on_probe(40.0, False)
    assert endpoint.state is EndpointState.BROKEN


def test_draining_takes_nothing_new_and_ends_drained() -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    endpoint.sent(0.0, 1.0)
    endpoint.drain()
    assert (endpoint.state, endpoint.room(0.0)) == (EndpointState.DRAINING, 0)
    endpoint.on_failure(0.0, "dropped", "x")
    endpoint.landed(0.0, 1.0)
    assert endpoint.state is EndpointState.DRAINED
    endpoint.readmit(1.0)
    assert endpoint.room(1.0) == 8


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_takes_it_out_until_it_is_added_again(status: int) -> None:
    endpoint = Endpoint("http://a", 8, 0.0)
    endpoint.on_unauthorised(0.0, status)
    endpoint.on_probe(1.0, True)
    assert (endpoint.state, endpoint.room(100.0)) == (EndpointState.REFUSING, 0)
    endpoint.readmit(101.0)
    assert endpoint.room(101.0) == 8
