"""The emulated fleet over real sockets: load, faults, coming and going, and the command in a process."""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headrace.errors import BusyError, UsageError
from headrace.simulate.emulate import EmulatedFleet, EmulatorOptions, Faults, StepTimes
from headrace.simulate.emulate.journal import body_hash

Outcome = tuple[str, bytes]  # a status or the name of what went wrong, and the body
QUICK = StepTimes(0.001, 0.0, 0.0, 0.001, 0.0)
LONG = {"max_tokens": 100_000, "ignore_eos": True}


def body(content: str = "hello", **fields: Any) -> bytes:
    document = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
    return json.dumps(document).encode()


async def post(session: aiohttp.ClientSession, url: str, data: bytes) -> Outcome:
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(f"{url}/v1/chat/completions", data=data, headers=headers) as response:
            return str(response.status), await response.read()
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        return type(error).__name__, b""


def run(
    options: EmulatorOptions, scenario: Callable[[EmulatedFleet, aiohttp.ClientSession], Awaitable[None]]
) -> None:
    async def main() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            EmulatedFleet(options) as fleet,
            aiohttp.ClientSession(connector=connector) as session,
        ):
            await asyncio.wait_for(scenario(fleet, session), 60)

    asyncio.run(main())


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Polls what only the server knows; `run` sets the limit."""
    for _ in itertools.count():
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.005)


async def gets(outcome: str, session: aiohttp.ClientSession, url: str, data: bytes) -> bool:
    return (await post(session, url, data))[0] == outcome


def test_the_cap_holds_the_rest_waits_and_the_queue_limit_refuses() -> None:
    options = EmulatorOptions(replicas=1, cap=4, max_queued_requests=3, step_times=QUICK)

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        url = fleet.urls[0]
        work = [asyncio.create_task(post(session, url, body(str(i), max_tokens=300))) for i in range(10)]
        await until(lambda: fleet.stats(0).received == 10)
        await until(lambda: fleet.stats(0).running == 4)  # once the first prefill is over
        assert fleet.stats(0).queued == 3
        outcomes = [await one for one in work]
        refused = [text for status, text in outcomes if status == "503"]
        assert collections.Counter(status for status, _ in outcomes) == {"200": 7, "503": 3}
        assert json.loads(refused[0])["message"] == "The request queue is full."
        stats = fleet.stats(0)
        assert (stats.answered, stats.refused, stats.max_in_flight, stats.in_flight) == (7, 3, 7, 0)

    run(options, scenario)


def test_a_client_that_goes_away_frees_its_slot() -> None:
    options = EmulatorOptions(replicas=1, cap=1, context_length=200_000, step_times=QUICK)

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        url = fleet.urls[0]
        for stream in (False, True):
            work = asyncio.create_task(post(session, url, body(**LONG, stream=stream)))
            await until(lambda: fleet.stats(0).running == 1)
            work.cancel()
            await until(lambda: fleet.stats(0).running == 0)
        assert fleet.stats(0).aborted == 2
        assert (await post(session, url, body(max_tokens=2)))[0] == "200"

    run(options, scenario)


def test_each_fault_looks_like_itself() -> None:
    kinds = ("error_500", "error_503", "error_429", "drop", "drop_middle", "truncate", "html")
    options = EmulatorOptions(
        replicas=len(kinds),
        step_times=QUICK,
        mean_output_tokens=20,
        faults={index: Faults(**{kind: 100.0}) for index, kind in enumerate(kinds)},
    )

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        got = {kind: await post(session, url, body()) for kind, url in zip(kinds, fleet.urls, strict=True)}
        statuses = {kind: status for kind, (status, _) in got.items()}
        assert statuses == {
            "error_500": "500",
            "error_503": "503",
            "error_429": "429",
            "drop": "ServerDisconnectedError",
            "drop_middle": "ClientPayloadError",
            "truncate": "200",
            "html": "200",
        }
        with pytest.raises(json.JSONDecodeError):
            json.loads(got["truncate"][1])
        assert got["html"][1].startswith(b"<html>")
        async with session.post(f"{fleet.urls[2]}/generate", data=b"{}") as response:
            assert response.headers["Retry-After"] == "1"
        for index in range(len(kinds)):
            assert fleet.stats(index).faulted >= 1
            await fleet.set_faults(index)
            assert (await post(session, fleet.urls[index], body()))[0] == "200"

    run(options, scenario)


def test_a_stream_can_be_cut_too() -> None:
    faults = {0: Faults(truncate=100), 1: Faults(drop_middle=100)}
    options = EmulatorOptions(replicas=2, step_times=QUICK, mean_output_tokens=100, faults=faults)

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        status, text = await post(session, fleet.urls[0], body(stream=True))
        assert status == "200"
        assert text.startswith(b"data: ")
        assert not text.endswith(b"data: [DONE]\n\n")
        assert (await post(session, fleet.urls[1], body(stream=True)))[0] == "ClientPayloadError"

    run(options, scenario)


def test_a_server_hangs_is_healed_refuses_and_comes_back_at_the_same_address() -> None:
    options = EmulatorOptions(replicas=2, step_times=QUICK, mean_output_tokens=20)

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        url, other = fleet.urls
        await fleet.set_faults(0, hang="posts")
        hung = asyncio.create_task(post(session, url, body()))
        await until(lambda: fleet.stats(0).in_flight == 1)
        async with session.get(f"{url}/health") as response:
            assert response.status == 200
        assert not hung.done()

        await fleet.set_faults(0, refuse=True)
        assert (await hung)[0] in ("ServerDisconnectedError", "ClientOSError")
        assert (await post(session, url, body()))[0] == "ClientConnectorError"
        assert (await post(session, other, body()))[0] == "200"

        await fleet.set_faults(0)
        assert fleet.urls == [url, other]
        assert (await post(session, url, body()))[0] == "200"
        assert fleet.stats(0).in_flight == 0

        await fleet.set_faults(0, hang="all")
        with pytest.raises(TimeoutError):
            async with session.get(f"{url}/health", timeout=aiohttp.ClientTimeout(total=0.1)):
                pass

    run(options, scenario)


def test_stopping_a_replica_loses_what_is_in_flight_and_nothing_else() -> None:
    options = EmulatorOptions(replicas=2, context_length=200_000, step_times=QUICK)

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        lost = [asyncio.create_task(post(session, fleet.urls[0], body(str(i), **LONG))) for i in range(5)]
        kept = asyncio.create_task(post(session, fleet.urls[1], body(max_tokens=200)))
        await until(lambda: fleet.stats(0).running == 5)
        await fleet.stop_replica(0)
        for one in lost:
            assert (await one)[0] in ("ServerDisconnectedError", "ClientOSError")
        assert (await kept)[0] == "200"
        await fleet.start_replica(0)
        assert (await post(session, fleet.urls[0], body(max_tokens=3)))[0] == "200"
        stats = fleet.stats(0)
        assert (stats.starts, stats.aborted, stats.running) == (2, 5, 0)

    run(options, scenario)


def test_a_crash_after_n_answers_and_the_return(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    options = EmulatorOptions(
        replicas=1,
        step_times=QUICK,
        mean_output_tokens=20,
        journal=journal,
        faults={0: Faults(crash_after=3, back_after_seconds=0.3)},
    )

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        url = fleet.urls[0]
        for i in range(3):
            assert (await post(session, url, body(str(i))))[0] == "200"
        await until(lambda: fleet.stats(0).in_flight == 0)
        await until(lambda: gets("ClientConnectorError", session, url, b"{}"))
        await until(lambda: fleet.stats(0).starts == 2)
        assert (await post(session, url, body("back")))[0] == "200"

    run(options, scenario)
    lines = [line.split() for line in journal.read_text().splitlines()]
    good = [name for name, outcome in lines if outcome == "200"]
    assert good == [body_hash(body(word)) for word in ("0", "1", "2", "back")]


def test_a_slow_replica_is_slower_by_its_factor_also_while_it_works() -> None:
    # 41 tokens: one prefill and 40 steps of 5 ms = 0.205 s; at a quarter of the speed 0.82 s
    times = StepTimes(0.005, 0.0, 0.0, 0.005, 0.0)
    options = EmulatorOptions(replicas=2, step_times=times, faults={1: Faults(slow=4)})

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        loop = asyncio.get_running_loop()

        async def seconds(url: str) -> float:
            start = loop.time()
            assert (await post(session, url, body(max_tokens=41, ignore_eos=True)))[0] == "200"
            return loop.time() - start

        assert 0.2 <= await seconds(fleet.urls[0]) < 0.5
        slow = asyncio.create_task(seconds(fleet.urls[1]))
        await asyncio.sleep(0.41)  # half of it is done
        await fleet.set_faults(1)
        assert 0.5 <= await slow < 0.8

    run(options, scenario)


def test_faults_are_set_over_http_from_loopback() -> None:
    options = EmulatorOptions(replicas=2, step_times=QUICK, mean_output_tokens=20)

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        first, second = fleet.urls
        control = f"{first}/emulator/faults?replica=1"
        async with session.post(control, json={"error_503": 100}) as response:
            assert response.status == 200
        await until(lambda: gets("503", session, second, body()))
        async with session.post(control, json={"eror": 1}) as response:
            assert response.status == 400
            assert "eror" in (await response.json())["error"]
        async with session.post(f"{first}/emulator/faults?replica=7", json={}) as response:
            assert response.status == 400
        async with session.post(control, json={"refuse": True}) as response:
            assert response.status == 200
        await until(lambda: gets("ClientConnectorError", session, second, body()))
        async with session.post(control, json={}) as response:
            assert response.status == 200
        await until(lambda: gets("200", session, second, body()))
        async with session.get(f"{first}/emulator/stats?replica=1") as response:
            assert (await response.json())["starts"] == 2

    run(options, scenario)


def test_over_long_prompts_of_one_replica_are_refused() -> None:
    options = EmulatorOptions(replicas=1, step_times=QUICK, faults={0: Faults(max_prompt_tokens=50)})

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        status, text = await post(session, fleet.urls[0], body("word " * 100))
        assert status == "400"
        assert "is longer than the model's context length (50 tokens)" in json.loads(text)["message"]
        assert (await post(session, fleet.urls[0], body("short")))[0] == "200"

    run(options, scenario)


def test_every_request_is_journalled_once_whatever_happens(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    options = EmulatorOptions(
        replicas=1,
        step_times=QUICK,
        mean_output_tokens=10,
        journal=journal,
        faults={0: Faults(error_503=10, drop=5, drop_middle=5, truncate=10, html=5)},
    )
    bodies = [body(f"prompt {i}") for i in range(200)]
    statuses: list[str] = []

    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        statuses.extend(
            status for status, _ in await asyncio.gather(*(post(session, fleet.urls[0], b) for b in bodies))
        )

    run(options, scenario)
    lines = [line.split() for line in journal.read_text().splitlines()]
    assert sorted(name for name, _ in lines) == sorted(body_hash(one) for one in bodies)
    outcomes = collections.Counter(outcome for _, outcome in lines)
    seen = collections.Counter(statuses)
    assert outcomes["503"] == seen["503"] > 0
    assert outcomes["200"] + outcomes["truncated"] + outcomes["html"] == seen["200"]
    assert outcomes["dropped"] == len(bodies) - seen["200"] - seen["503"] > 0
    assert set(outcomes) == {"200", "503", "dropped", "truncated", "html"}


def test_a_taken_port_is_told_with_the_way_out() -> None:
    async def main() -> None:
        async with EmulatedFleet(EmulatorOptions(replicas=1)) as fleet:
            port = int(fleet.urls[0].rsplit(":", 1)[1])
            with pytest.raises(BusyError, match=f"port {port} of 127.0.0.1 is taken.*--base-port"):
                async with EmulatedFleet(EmulatorOptions(replicas=1, base_port=port)):
                    pass

    asyncio.run(main())


def test_unknown_replicas_are_named() -> None:
    async def scenario(fleet: EmulatedFleet, session: aiohttp.ClientSession) -> None:
        with pytest.raises(UsageError, match="replica 3 does not exist; replicas are 0 to 0"):
            fleet.stats(3)

    run(EmulatorOptions(replicas=1), scenario)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_end(ending: signal.Signals) -> None:
    program = "from headrace.cli import main; main()"
    words = [sys.executable, "-c", program, "emulate", "--replicas", "2", "--base-port", "0"]
    words += ["--speed", "50", "--error-503", "1=100", "--slow", "2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        urls = [process.stdout.readline().strip() for _ in range(2)]
        request = urllib.request.Request(
            f"{urls[0]}/v1/chat/completions", body(max_tokens=5), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.loads(response.read())["usage"]["completion_tokens"] <= 5
        with urllib.request.urlopen(f"{urls[1]}/emulator/faults", timeout=30) as response:
            faults = json.loads(response.read())
        assert (faults["error_503"], faults["slow"]) == (100, 2)
        process.send_signal(ending)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "Traceback" not in said
    finally:
        process.kill()
        process.wait()


def test_the_command_names_every_switch_it_does_not_understand() -> None:
    from headrace.simulate.emulate.switches import faults_of

    with pytest.raises(UsageError) as wrong:
        faults_of(2, {"slow": ["x=8"], "drop": ["150"], "hang": ["0"]}, [])
    assert wrong.value.problems[0].startswith("--slow x=8: 'x' is no replica")
    assert all("drop is 150 percent" in problem for problem in wrong.value.problems[1:])
    faults = faults_of(4, {"slow": ["3=8"], "hang": ["0", "1=all"], "drop": ["2"]}, [2])
    assert [faults[i].slow for i in range(4)] == [1, 1, 1, 8]
    assert [faults[i].hang for i in range(4)] == ["posts", "all", "no", "no"]
    assert [faults[i].refuse for i in range(4)] == [False, False, True, False]
    assert all(faults[i].drop == 2 for i in range(4))
