"""What is printed when a job ends."""

from __future__ import annotations

from headrace.drive.store.rows import FailedRow
from headrace.report.job_summary import summary_lines
from tests.unit.report.statuses import endpoint, status

REFUSED = FailedRow(
    id="a",
    source="infinity",
    row=37,
    sample=0,
    kind="refused",
    reason="The input (5,021 tokens) is longer\nthan the model's context (4,096).",
    status=400,
    server="http://127.0.0.1:30000",
    tries=1,
    failed_at=1.0,
)


def test_a_finished_job_says_what_failed_and_by_whose_words() -> None:
    job = status(
        phase="finished",
        done=298_956,
        pending=0,
        endpoints=[endpoint(0), endpoint(1, state="broken", why="connection refused", answered=7)],
    )
    assert summary_lines(job, [REFUSED], "headrace run job.yaml") == [
        "Finished: 300,000 of 300,000 rows, 44 of them failed, in 1 h 07 min.",
        "  answers       298,956 rows, durable in out/infinity/completions",
        "  excluded      1,000 rows answered elsewhere",
        "  duplicates    4 rows got the answer of a twin",
        "  this run      120,000 answers to 121,000 requests, 30.0 per second, 1,420",
        "                output tokens each",
        "  flags         truncated 400 (0.1 %), empty 2 (<0.1 %)",
        "  failed tries  503 12, timeout 3 (asked again)",
        "  failed        44 rows, in out/infinity/failed/failed.jsonl",
        "                refused 44",
        "                  “The input (5,021 tokens) is longer than the model's context",
        "                (4,096).” (row 37 of infinity)",
        "  servers       http://127.0.0.1:30001 is broken: connection refused (7",
        "                answered)",
        "",
        "  failed rows   headrace run job.yaml --retry-failed",
        "  export        headrace export out/infinity --to conversations",
    ]


def test_a_stopped_job_says_how_to_go_on() -> None:
    job = status(phase="stopped", failed=0, failures={}, flags={}, errors={}, excluded=0, duplicates=0)
    found = summary_lines(job, (), "headrace run job.yaml --in-flight 8")
    assert found[0] == "Stopped after 1 h 07 min: 123,456 of 300,000 rows, 175,500 left."
    assert found[-2:] == [
        "  go on         headrace run job.yaml --in-flight 8",
        "  export        headrace export out/infinity --to conversations",
    ]


def test_rows_of_another_input_in_the_folder_are_told_and_not_counted() -> None:
    job = status(phase="finished", rows=600, done=600, excluded=0, failed=0, pending=0, other_rows=5)
    found = summary_lines(job)
    assert found[0] == "Finished: 600 of 600 rows, in 1 h 07 min."
    assert found[2:4] == [
        "  other rows    5 more rows lie there that answer none of this job's prompts,",
        "                but those of another input; export writes them too",
    ]
    assert not any("other rows" in line for line in summary_lines(status(phase="finished")))


def test_one_row_is_no_rows() -> None:
    job = status(phase="finished", done=1, failed=1, failures={"refused": 1}, excluded=1, duplicates=1)
    told = "\n".join(summary_lines(job, width=100))
    assert not [words for words in ("  1 rows", " 1 rows,") if words in told]
    for words in ("1 row, durable", "1 row answered", "1 row got", "1 row, in"):
        assert words in told


def test_a_long_command_stays_whole_so_that_it_can_be_copied() -> None:
    again = "headrace run --prompts " + " ".join(f"data/part-{number}.jsonl" for number in range(9))
    found = summary_lines(status(phase="stopped"), (), again)
    assert f"  go on         {again}" in found


def test_a_job_without_an_answer_offers_no_export() -> None:
    job = status(phase="stopped", done=0, done_this_run=0, failed=0)
    assert summary_lines(job)[-1] == "  go on         the same command as before"


def test_what_was_noted_at_the_beginning_stands_in_the_summary() -> None:
    job = status(phase="finished", notes=["the ledger was remade from the shards", "a network\x1bdisk"])
    found = summary_lines(job)
    at = found.index("  notes         the ledger was remade from the shards")
    assert found[at + 1] == "                a network disk"
