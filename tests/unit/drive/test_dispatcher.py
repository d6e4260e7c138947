"""Who is asked next: hand-made fleets on a virtual clock, and a simulated hour of random ones."""

from __future__ import annotations

import heapq
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.drive.dispatch.dispatcher import STALLED_SECONDS, Dispatcher
from headrace.drive.dispatch.endpoint import Endpoint
from headrace.drive.dispatch.ticket import Flight, Ticket
from headrace.drive.prompts import Prompt, Request


def ticket(number: int, tokens: float = 100.0) -> Ticket:
    request = Request("/v1/chat/completions", {}, None, "x")
    return Ticket(Prompt(number, str(number), 0, number + 1, 0, request, None), tokens)


def fleet(*limits: int) -> Dispatcher:
    dispatcher = Dispatcher()
    for number, limit in enumerate(limits):
        url = f"http://s{number}"
        dispatcher.endpoints[url] = Endpoint(url, limit, 0.0)
    return dispatcher


def send_all(dispatcher: Dispatcher, now: float) -> list[Flight]:
    sent = []
    while (flight := dispatcher.next_flight(now)) is not None:
        sent.append(flight)
    return sent


def test_the_next_prompt_goes_where_the_fewest_expected_tokens_wait() -> None:
    dispatcher = fleet(4, 4)
    dispatcher.offer([ticket(0, 1000.0), ticket(1), ticket(2), ticket(3)])
    # s0 gets the long one; the short ones go to s1 until it holds more than s0
    assert [flight.url[-2:] for flight in send_all(dispatcher, 0.0)] == ["s0", "s1", "s1", "s1"]
    dispatcher.check()


def test_a_full_server_never_holds_the_queue() -> None:
    dispatcher = fleet(1, 3)
    dispatcher.offer([ticket(n) for n in range(6)])
    assert len(send_all(dispatcher, 0.0)) == 4
    assert len(dispatcher.ready) == 2


def test_what_failed_goes_elsewhere_if_there_is_an_elsewhere() -> None:
    dispatcher = fleet(1, 1)
    dispatcher.offer([ticket(0)])
    flight = send_all(dispatcher, 0.0)[0]
    dispatcher.landed(flight)
    flight.ticket.avoid = flight.url
    dispatcher.again(flight.ticket, 1.0)
    assert dispatcher.next_flight(0.9) is None
    assert dispatcher.next_wake() == 1.0
    again = dispatcher.next_flight(1.0)
    assert again is not None
    assert again.url != flight.url


def test_what_failed_returns_to_the_only_server() -> None:
    dispatcher = fleet(1)
    dispatcher.offer([ticket(0)])
    flight = send_all(dispatcher, 0.0)[0]
    dispatcher.landed(flight)
    flight.ticket.avoid = flight.url
    dispatcher.again(flight.ticket, 1.0)
    again = dispatcher.next_flight(1.0)
    assert again is not None
    assert again.url == flight.url


def answer(dispatcher: Dispatcher, flight: Flight, now: float) -> None:
    dispatcher.landed(flight)
    flight.ticket.flights.remove(flight)  # the landing's part
    dispatcher.endpoints[flight.url].on_answer(now, now - flight.started, 100)


def test_no_row_is_hedged_on_servers_of_equal_speed() -> None:
    dispatcher = fleet(2, 2)
    dispatcher.offer([ticket(n) for n in range(4)])
    flights = send_all(dispatcher, 0.0)
    for flight in flights[:3]:
        answer(dispatcher, flight, 1.0)
    # one long row left: it has run 2.9 times the longest latency seen, on a server that answered at 1.0
    assert dispatcher.hedge(2.9) is None


def test_a_row_on_a_server_that_never_answered_is_asked_of_an_idle_one_once() -> None:
    dispatcher = fleet(1, 1)
    dispatcher.offer([ticket(0), ticket(1)])
    first, second = send_all(dispatcher, 0.0)
    answer(dispatcher, first, 1.0)
    assert dispatcher.hedge(2.9) is None  # three longest latencies have not passed
    hedge = dispatcher.hedge(3.0)
    assert hedge is not None
    assert (hedge.ticket, hedge.url) == (second.ticket, first.url)
    assert len(second.ticket.flights) == 2
    assert dispatcher.hedge(9.0) is None
    dispatcher.check()


def test_a_row_on_a_server_known_to_be_slow_is_hedged_after_the_fast_ones_latency() -> None:
    dispatcher = fleet(1, 1)
    for n in range(4):  # s0 needs 1 s, s1 needs 8 s
        dispatcher.offer([ticket(2 * n), ticket(2 * n + 1)])
        fast, slow = sorted(send_all(dispatcher, 10.0 * n), key=lambda flight: flight.url)
        answer(dispatcher, fast, 10.0 * n + 1)
        if n < 3:
            answer(dispatcher, slow, 10.0 * n + 8)
    assert dispatcher.hedge(30.9) is None
    hedge = dispatcher.hedge(31.0)
    assert hedge is not None
    assert hedge.url == "http://s0"


def test_a_server_that_finishes_nothing_while_others_do_is_stalled() -> None:
    dispatcher = fleet(1, 1)
    dispatcher.offer([ticket(0), ticket(1)])
    first, second = send_all(dispatcher, 0.0)
    answer(dispatcher, first, 5.0)
    # five longest latencies are 25 s, but never less than 30 s
    assert dispatcher.stalled(29.9) == []
    assert [e.url for e in dispatcher.stalled(30.1)] == [second.url]


def makespan(latencies: list[float], in_flight: int, rows: int, seed: int, hedging: bool) -> float:
    """Seconds until every row is answered by servers of these latencies: the driver in small."""
    dispatcher = fleet(*[in_flight] * len(latencies))
    tickets = [ticket(n) for n in range(rows)]
    dispatcher.offer(tickets)
    seconds = dict(zip(dispatcher.endpoints, latencies, strict=True))
    jitter = random.Random(seed)
    events: list[tuple[float, int, Flight]] = []
    order = 0
    now = 0.0
    answered: set[int] = set()
    cut: set[int] = set()

    def pump() -> None:
        nonlocal order
        while True:
            flight = dispatcher.next_flight(now) or (dispatcher.hedge(now) if hedging else None)
            if flight is None:
                return
            order += 1
            heapq.heappush(events, (now + seconds[flight.url] * (1 + 0.01 * jitter.random()), order, flight))

    pump()
    while len(answered) < rows:
        if hedging:  # the driver's tick
            tick = now + 1.0 - now % 1.0
            if tick < events[0][0]:
                now = tick
                pump()
                continue
        now, _, flight = heapq.heappop(events)
        if id(flight) in cut:
            continue
        answer(dispatcher, flight, now)
        number = flight.ticket.prompt.seq
        assert number not in answered
        answered.add(number)
        for other in list(flight.ticket.flights):
            cut.add(id(other))
            dispatcher.landed(other)
            flight.ticket.flights.remove(other)
        dispatcher.check()
        pump()
    return now


def test_one_slow_server_among_eight_costs_no_more_than_it_must() -> None:
    """7 servers of 1 s and one of 8 s, 8 in flight each, 300 rows. By hand: without the slow server
    300 rows at 56 a second need 6 rounds, 6 s; no schedule is faster, as 5 rounds answer 280 + 0."""
    latencies = [1.0] * 7 + [8.0]
    assert makespan(latencies, 8, 300, seed=1, hedging=True) <= 1.15 * 6.0
    # a shared queue alone waits for the slow server's first eight
    assert 8.0 <= makespan(latencies, 8, 300, seed=1, hedging=False) <= 8.2


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.5, 20.0), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 60),
    st.integers(0, 99),
)
def test_every_row_is_answered_once_on_any_fleet(
    latencies: list[float], in_flight: int, rows: int, seed: int
) -> None:
    makespan(latencies, in_flight, rows, seed, hedging=True)


def test_a_refused_row_is_asked_of_another_server_and_holds_up_nobody() -> None:
    dispatcher = fleet(2, 1)
    dispatcher.offer([ticket(n) for n in range(3)])
    flights = send_all(dispatcher, 0.0)
    refused = next(flight for flight in flights if flight.url == "http://s0")
    dispatcher.landed(refused)
    refused.ticket.refused_by = refused.ticket.avoid = refused.url
    dispatcher.again(refused.ticket, 0.0)
    dispatcher.offer([ticket(9)])
    # s0 has room, s1 has none: the new row goes to s0, the refused one waits for s1
    assert [flight.ticket.prompt.seq for flight in send_all(dispatcher, 0.0)] == [9]
    answer(dispatcher, next(flight for flight in flights if flight.url == "http://s1"), 1.0)
    assert [flight.url for flight in send_all(dispatcher, 1.0)] == ["http://s1"]


def test_a_refused_row_returns_to_the_server_that_refused_it_when_no_other_takes_requests() -> None:
    dispatcher = fleet(1, 1)
    dispatcher.endpoints["http://s1"].drain()
    lonely = ticket(0)
    lonely.refused_by = "http://s0"
    dispatcher.again(lonely, 0.0)
    assert [flight.url for flight in send_all(dispatcher, 0.0)] == ["http://s0"]


def test_while_this_process_stood_still_no_server_was_silent() -> None:
    """Stopped at 2 s for an hour: what was answered meanwhile lies unread, so all get their time anew."""
    dispatcher = fleet(1, 1)
    dispatcher.offer([ticket(n) for n in range(4)])
    for flight in send_all(dispatcher, 0.0):
        answer(dispatcher, flight, 1.0)
    send_all(dispatcher, 1.0)
    assert len(dispatcher.stalled(3602.0)) == 2
    dispatcher.woke(due=2.0, now=3602.0)
    assert dispatcher.stalled(3602.0) == []
    assert dispatcher.stalled(3602.0 + STALLED_SECONDS) == []
    assert len(dispatcher.stalled(3602.1 + STALLED_SECONDS)) == 2


def test_a_late_turn_of_the_loop_is_no_standstill() -> None:
    dispatcher = fleet(1)
    dispatcher.woke(due=2.0, now=4.0)
    assert dispatcher.silent_since(1.0) == 1.0
