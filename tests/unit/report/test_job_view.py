"""The live table: what stands where, and that it fits the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headrace.drive.status import JobStatus, SourceStatus
from headrace.report.job_view import STATES, live_view
from tests.unit.report.statuses import endpoint, status


def lines_of(job: JobStatus, width: int = 80, height: int | None = None) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as caught:
        console.print(live_view(job, width, height))
    return [line.rstrip() for line in caught.get().splitlines()]


def test_the_first_screen_of_a_running_job() -> None:
    broken = endpoint(
        1,
        state="broken",
        why="connection refused",
        in_flight=0,
        cap=None,
        running=None,
        queued=None,
        answered=7,
        errors={"refused": 2, "dropped": 1},
        output_tokens_per_second=None,
        median_latency_seconds=None,
    )
    assert lines_of(status(endpoints=[endpoint(0), broken], message="disk full: waiting for room")) == [
        "running  █████████░░░░░░░░░░░░░ 41.5 %  124,500 of 300,000 rows  2 h 14 min left",
        "31.2 req/s · 12,040 output tok/s, in flight included",
        "finished only 8,002 (too low yet) · in flight 76 of 80 · latency 38 s",
        "answer 1,420 tokens · running for 1 h 07 min",
        "! disk full: waiting for room",
        "",
        "server              state       in flight run/cap  tok/s latency answered errors",
        "127.0.0.1:30000     ● reachable     38/40 37+1/37  1,423  38.2 s   12,345      0",
        "127.0.0.1:30001     ✖ broken         0/40       –      –       –        7      3",
        "✖ 127.0.0.1:30001: connection refused",
        "",
        "source                     rows     done   failed excluded mean tokens truncated",
        "infinity                299,000  123,000       44    1,000       1,431       400",
        "gsm8k                     1,000      456        0        0         211         0",
        "",
        "flags         truncated 400, empty 2",
        "failed tries  503 12, timeout 3",
        "in failed/    refused 44",
    ]


def test_the_finished_only_figure_goes_when_it_can_be_trusted() -> None:
    assert any("finished only" in line for line in lines_of(status()))
    assert not any("finished only" in line for line in lines_of(status(settled=True)))


def test_nothing_is_made_up_before_the_first_answer() -> None:
    young = status(
        phase="starting",
        rows=0,
        done=0,
        failed=0,
        excluded=0,
        requests_per_second=None,
        output_tokens_per_second=None,
        output_tokens_per_second_finished=None,
        in_flight_tokens=None,
        mean_output_tokens=None,
        median_latency_seconds=None,
        eta_seconds=None,
        endpoints=[],
        sources=[],
        flags={},
        errors={},
        failures={},
    )
    found = lines_of(young)
    assert found[0].endswith("–  0 of 0 rows")
    assert found[1] == "– req/s · output tok/s not known before the first answers · in flight 76 of 80"


def test_many_servers_are_summed_up_and_the_worst_shown_first() -> None:
    servers = [endpoint(number) for number in range(60)]
    servers[17] = endpoint(17, state="limited", why="429", errors={"429": 9})
    servers[44] = endpoint(44, state="broken", why="no route to host")
    servers[50] = endpoint(50, errors={"dropped": 3})
    found = lines_of(status(endpoints=servers))
    at = found.index("60 servers: 58 reachable, 1 limited, 1 broken; the 12 worst:")
    shown = [line.split()[0] for line in found[at + 2 : at + 14]]
    assert shown[:3] == ["127.0.0.1:30044", "127.0.0.1:30017", "127.0.0.1:30050"]
    assert len(shown) == 12
    assert found[at + 14] == "✖ 127.0.0.1:30044: no route to host"


def test_states_have_a_word_and_a_shape() -> None:
    shapes = [shape for shape, _ in STATES.values()]
    assert len(set(shapes)) == len(shapes) == 7
    for word, (shape, _) in STATES.items():
        assert any(
            f"{shape} {word}" in line for line in lines_of(status(endpoints=[endpoint(0, state=word)]))
        )


_TEXTS = st.text(max_size=300)
_COUNTS = st.integers(0, 10**9)
_FIGURES = st.none() | st.floats(0, 1e9)


@settings(max_examples=25, deadline=None)
@given(
    width=st.sampled_from([80, 100, 120, 200]),
    message=_TEXTS,
    why=_TEXTS,
    url=st.text("abc.-:", min_size=1, max_size=200),
    number=_COUNTS,
    figure=_FIGURES,
    servers=st.integers(0, 40),
    phase=st.sampled_from(["starting", "running", "paused", "draining", "finished", "stopped"]),
)
def test_no_line_is_wider_than_the_terminal(
    width: int, message: str, why: str, url: str, number: int, figure: float | None, servers: int, phase: str
) -> None:
    one = endpoint(
        0, url=f"http://{url}", why=why, state="broken", in_flight=min(number, 9999), answered=number
    )
    source = SourceStatus(
        name=why or "x",
        rows=number,
        done=number,
        failed=number,
        excluded=number,
        mean_output_tokens=figure,
        truncated=number,
    )
    job = status(
        phase=phase,
        message=message,
        rows=number,
        done=number,
        in_flight=number,
        endpoints=[one] * servers,
        sources=[source] * (servers % 12),
        requests_per_second=figure,
        output_tokens_per_second=figure,
        eta_seconds=figure,
        flags={why or "flag": number},
    )
    from rich.cells import cell_len

    assert max(cell_len(line) for line in lines_of(job, width)) <= width


@pytest.mark.parametrize("width", [60, 70])
def test_narrow_terminals_lose_columns_not_their_shape(width: int) -> None:
    assert max(map(len, lines_of(status(), width))) <= width


@pytest.mark.parametrize("servers", [8, 16, 40])
def test_it_fits_a_terminal_of_24_lines(servers: int) -> None:
    found = lines_of(status(endpoints=[endpoint(number) for number in range(servers)]), 80, 24)
    assert len(found) <= 24
    assert found[-1] == "in failed/    refused 44"


def test_addresses_are_not_taken_for_markup() -> None:
    found = lines_of(status(endpoints=[endpoint(0, url="http://[fe80::1]:8000")]))
    assert any(line.startswith("[fe80::1]:8000 ") for line in found)


def test_what_was_noted_at_the_beginning_is_a_few_lines() -> None:
    notes = ["the disk had lost 3 rows", "a network\x1b[1mdisk " + "far away " * 40, "c", "d", "e"]
    found = lines_of(status(notes=notes))
    assert found[-5] == "note          the disk had lost 3 rows"
    assert found[-4].startswith("note          a network [1mdisk far away")
    assert found[-2:] == ["note          c", "              and 2 more notes"]
    assert len(lines_of(status(notes=notes, endpoints=[endpoint(at) for at in range(8)]), height=24)) <= 26


def test_rows_of_another_input_are_told_beside_the_job() -> None:
    found = lines_of(status(other_rows=605))
    assert "other rows    605 in out/infinity answer none of this job's prompts" in found
    assert "124,500 of 300,000 rows" in found[0]
    assert not any("other rows" in line for line in lines_of(status()))


def test_a_finished_job_is_not_said_to_be_too_slow_yet() -> None:
    assert any("too low yet" in line for line in lines_of(status()))
    assert not any("too low yet" in line for line in lines_of(status(phase="finished")))
