"""Job files: what they become, and what is said of every mistake, with its line and column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.drive.job.api_key import read_api_key
from headrace.drive.job.file import Given, load_job
from headrace.drive.job.resolver import name_of
from headrace.errors import UsageError
from headrace.words import Api, Flag, FlagPolicy, OutputFormat

ROWS = '{"question": "What is 2 + 2?", "id": "a"}\n{"question": "And 3 + 3?", "id": "b"}\n'
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a job file beside a folder of prompts."""
    (tmp_path / "data").mkdir()
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / "data" / name).write_text(ROWS)

    def write(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def problems_of(path: Path | None, *given: Given, folder: Path | None = None) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load_job(path, given, folder=folder)
    return [problem.replace(f"{path}:", "") for problem in caught.value.problems]


GOOD = "out: out\nservers: http://127.0.0.1:30000\nprompts: data/one.jsonl\n"


def test_a_whole_job(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_KEY", "k")
    (tmp_path / "earlier").mkdir()
    path = write(
        """
out: out/first
servers: [http://127.0.0.1:30000-30002, "https://fleet.example"]
model: Qwen/Qwen3.6-27B
api: chat
in_flight: 40
sampling: {max_tokens: 4096, temperature: 1e-1, stop: [no, "on"]}
thinking: true
sources:
  - prompts: data/*.jsonl
    name: both
    count: 300_000
    samples: 2
    sampling: {max_tokens: 2048}
    thinking: false
  - prompts: data/one.jsonl
    columns: {prompt: question}
    id_column: id
    system: Be short.
flags_policy: {truncated: keep, empty: retry_once}
exclude: [earlier]
format: jsonl
token_ids: true
request_timeout: 30m
max_tries: 3
api_key_env: FLEET_KEY
dispatch_seed: 7
hedge: false
"""
    )
    job = load_job(path).job
    assert job.out == tmp_path / "out" / "first"
    assert job.servers == (
        "http://127.0.0.1:30000",
        "http://127.0.0.1:30001",
        "http://127.0.0.1:30002",
        "https://fleet.example:443",
    )
    assert (job.model, job.api, job.in_flight) == ("Qwen/Qwen3.6-27B", Api.CHAT, 40)
    both, one = job.sources
    assert both.name == "both"
    assert both.paths == (tmp_path / "data" / "one.jsonl", tmp_path / "data" / "two.jsonl")
    assert (both.limit, both.samples, both.thinking) == (300_000, 2, False)
    assert both.sampling == {"max_tokens": 2048, "temperature": 0.1, "stop": ["no", "on"]}
    assert (one.name, one.limit, one.samples, one.thinking) == ("one", None, 1, True)
    assert (one.columns, one.id_column, one.system) == ({"prompt": "question"}, "id", "Be short.")
    assert one.sampling["max_tokens"] == 4096
    assert job.flag_policies[Flag.EMPTY] is FlagPolicy.RETRY_ONCE
    assert job.flag_policies[Flag.REPETITION] is FlagPolicy.KEEP
    assert job.exclude == (tmp_path / "earlier",)
    assert (job.output_format, job.token_ids) == (OutputFormat.JSONL, True)
    assert (job.request_timeout_seconds, job.max_tries) == (1800.0, 3)
    assert (job.api_key_env, job.seed, job.hedge_tail) == ("FLEET_KEY", 7, False)


def test_defaults(write: Write) -> None:
    job = load_job(write(GOOD)).job
    assert (job.in_flight, job.model, job.request_timeout_seconds, job.max_tries) == (None, None, 3600.0, 5)
    assert (job.output_format, job.hedge_tail, job.row_checks) == (OutputFormat.PARQUET, True, True)
    assert [source.name for source in job.sources] == ["one"]


def test_every_mistake_at_once_each_at_its_place(write: Write) -> None:
    path = write(
        """\
out: out
servers:
  - http://127.0.0.1:30000-30001
  - http://127.0.0.1:30001
  - ftp://elsewhere
modle: Qwen
in_flight: many
max_tries: 0
thinking: no
max_tokens: 5
sources:
  - prompts: data/one.jsonl
    count: -3
  - prompts: [data/none.jsonl, 3]
    columns: {promt: question}
  - hello
  - prompts: data/two.jsonl
    samplng: {}
flags_policy: {trunc: keep, empty: retry}
api_key: sk-very-secret
max_tries: 3
"""
    )
    found = problems_of(path)
    assert [problem.split(": ", 1)[0] for problem in found] == [
        "4:5",
        "5:5",
        "6:1",
        "7:12",
        "8:12",
        "9:11",
        "10:1",
        "13:12",
        "14:15",
        "14:32",
        "15:15",
        "16:5",
        "18:5",
        "19:16",
        "19:36",
        "20:1",
        "21:1",
    ]
    said = [problem.split(": ", 1)[1] for problem in found]
    assert said[0] == (
        "server http://127.0.0.1:30001 is given twice (also by 'http://127.0.0.1:30000-30001'); "
        "keep one of them."
    )
    assert said[1] == "'ftp://elsewhere' begins with ftp://; http:// or https:// is expected."
    assert said[2] == "'modle' is no key of the job. Did you mean 'model'?"
    assert said[3] == "in_flight is 'many': 'auto' or a whole number of at least 1 is expected."
    assert said[4] == "max_tries is 0; at least 1 is allowed."
    assert said[5] == "thinking is 'no'; true or false is expected."
    assert said[6] == "'max_tokens' is no key of the job: it belongs under 'sampling'."
    assert said[7] == "sources.1.count is -3; at least 1 is allowed."
    assert "none.jsonl does not exist" in said[8]
    assert "Did you mean 'prompt'?" in said[10]
    assert said[12] == "'samplng' is no key of a source. Did you mean 'sampling'?"
    assert said[13].endswith("Did you mean 'truncated'?")
    assert said[14].endswith("known: keep, reject, retry_once. Did you mean 'retry_once'?")
    assert "api_key_env: NAME, or api_key_file: PATH" in said[15]
    assert "very-secret" not in "\n".join(found)
    assert said[16] == "'max_tries' is given twice, first on line 8. Keep one of them."


def test_what_is_missing_is_said_with_its_flag() -> None:
    assert problems_of(None) == [
        "'prompts' is missing: say what to ask (--prompts FILE), or give 'sources'.",
        "'out' is missing: say where the output goes (--out DIR).",
        "'servers' is missing: say who answers (--server http://HOST:PORT).",
    ]


def test_flags_go_before_the_file_for_every_source_and_say_so(write: Write, tmp_path: Path) -> None:
    path = write(
        """\
out: out
servers: [http://127.0.0.1:30000]
sampling: {max_tokens: 4096, top_p: 0.9}
sources:
  - prompts: data/one.jsonl
    sampling: {max_tokens: 2048, temperature: 0.5}
  - prompts: data/two.jsonl
    thinking: true
"""
    )
    given = (
        Given(("sampling", "max_tokens"), 10, "--max-tokens"),
        Given(("thinking",), False, "--thinking"),
        Given(("servers",), ["http://10.0.0.1:8000"], "--server"),
        Given(("count",), 1, "--count"),
    )
    resolved = load_job(path, given)
    one, two = resolved.job.sources
    assert one.sampling == {"max_tokens": 10, "top_p": 0.9, "temperature": 0.5}
    assert two.sampling == {"max_tokens": 10, "top_p": 0.9}
    assert (one.thinking, two.thinking, one.limit) == (False, False, 1)
    assert resolved.job.servers == ("http://10.0.0.1:8000",)
    assert [note.replace(str(path), "job.yaml") for note in resolved.overrides] == [
        "--max-tokens 10 instead of 4096 (job.yaml:3:24)",
        "--max-tokens 10 instead of 2048 (job.yaml:6:28)",
        "--thinking false instead of true (job.yaml:8:15)",
        "--server http://10.0.0.1:8000 instead of http://127.0.0.1:30000 (job.yaml:2:10)",
    ]


def test_prompts_by_flag_replace_the_sources_and_start_from_the_current_folder(
    write: Write, tmp_path: Path
) -> None:
    path = write(GOOD.replace("prompts: data/one.jsonl", "sources: [{prompts: data/one.jsonl}]"))
    job = load_job(path, [Given(("prompts",), ["two.jsonl"], "--prompts")], folder=tmp_path / "data").job
    assert [source.paths for source in job.sources] == [(tmp_path / "data" / "two.jsonl",)]


def test_problems_of_flags_carry_the_flag(tmp_path: Path) -> None:
    given = (
        Given(("servers",), ["127.0.0.1:30000"], "--server"),
        Given(("sampling", "temperature"), -1.0, "--temperature"),
        Given(("columns",), ["question"], "--columns"),
        Given(("extra_body",), "{not json", "--extra-body"),
        Given(("flags_policy",), ["truncated=retry"], "--flags-policy"),
        Given(("out",), "out", "--out"),
        Given(("prompts",), ["none.jsonl"], "--prompts"),
    )
    found = problems_of(None, *given, folder=tmp_path)
    assert sorted(problem.split(":")[0] for problem in found) == [
        "--columns",
        "--extra-body",
        "--flags-policy",
        "--prompts",
        "--server",
        "--temperature",
    ]
    assert "--server: '127.0.0.1:30000' has no scheme; write http://127.0.0.1:30000." in found


def test_flags_of_the_form_name_value(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(ROWS)
    given = (
        Given(("servers",), ["http://h:1"], "--server"),
        Given(("out",), "out", "--out"),
        Given(("prompts",), ["rows.jsonl"], "--prompts"),
        Given(("columns",), ["prompt=question"], "--columns"),
        Given(("flags_policy",), ["truncated=retry_once", "empty=reject"], "--flags-policy"),
        Given(("extra_body",), '{"priority": 3}', "--extra-body"),
        Given(("in_flight",), "12", "--in-flight"),
        Given(("request_timeout",), "90", "--request-timeout"),
    )
    job = load_job(None, given, folder=tmp_path).job
    assert job.sources[0].columns == {"prompt": "question"}
    assert job.sources[0].extra_body == {"priority": 3}
    assert job.flag_policies[Flag.TRUNCATED] is FlagPolicy.RETRY_ONCE
    assert job.flag_policies[Flag.EMPTY] is FlagPolicy.REJECT
    assert (job.in_flight, job.request_timeout_seconds) == (12, 90.0)


def test_sampling_is_checked_at_the_parameter(write: Write) -> None:
    path = write(GOOD + "sampling:\n  max_tokens: 10\n  temprature: 0.5\n  top_p: 2\n")
    found = problems_of(path)
    assert [problem.split(": ")[0] for problem in found] == ["6:3", "7:3"]
    assert "Did you mean 'temperature'?" in found[0]


def test_columns_that_no_row_has_are_found_before_anything_is_sent(write: Write) -> None:
    path = write(GOOD + "columns: {prompt: qestion}\n")
    (found,) = problems_of(path)
    assert "qestion" in found
    assert "question" in found


def test_a_chat_source_does_not_fit_the_generate_form(write: Write) -> None:
    path = write(GOOD + "api: generate\nsystem: Be short.\n")
    (found,) = problems_of(path)
    assert found.startswith("3:10: ")
    assert "api: chat" in found


def test_names_of_sources_differ(write: Write) -> None:
    path = write(
        """\
out: out
servers: [http://h:1]
sources:
  - {prompts: data/one.jsonl, name: a}
  - {prompts: data/two.jsonl, name: a}
"""
    )
    (found,) = problems_of(path)
    assert found.startswith("5:37: source name 'a' is taken (")
    twice = write("out: out\nservers: [http://h:1]\nprompts: [data/one.jsonl, data/*.jsonl, data]\n")
    assert [source.name for source in load_job(twice).job.sources] == ["one", "data", "data-2"]


@pytest.mark.parametrize(
    ("prompts", "name"),
    [
        ("data/train.jsonl.zst", "train"),
        ("/a/b/gsm8k", "gsm8k"),
        ("/data/infinity/*.jsonl", "infinity"),
        ("/data/x/**/*.parquet", "x"),
        ("my prompts (new).csv", "my-prompts--new"),
        ("*.csv", "prompts"),
        (".hidden.csv", "prompts"),
    ],
)
def test_names_that_sources_get(prompts: str, name: str) -> None:
    assert name_of(prompts) == name


def test_keys_come_from_environment_or_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_KEY", raising=False)
    assert problems_of(write(GOOD + "api_key_env: FLEET_KEY\n")) == [
        "4:14: environment variable FLEET_KEY is not set or empty; export it first."
    ]
    (found,) = problems_of(write(GOOD + "api_key_file: none.txt\n"))
    assert found.startswith("4:15: ")
    (tmp_path / "key.txt").write_text("k")
    assert load_job(write(GOOD + "api_key_file: key.txt\n")).job.api_key_file == tmp_path / "key.txt"
    monkeypatch.setenv("FLEET_KEY", "k")
    (found,) = problems_of(write(GOOD + "api_key_file: key.txt\napi_key_env: FLEET_KEY\n"))
    assert "keep one of them" in found


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("sk-1\nsk-2", "holds a line break as character 5 of 9"),
        ("sk\x1b[0m", "holds U+001B as character 3 of 6"),
        ("sk 1", "holds U+0020 as character 3 of 4"),
        ("sk…", "holds U+2026 as character 3 of 3"),
        ("k" * 9000, "holds more than 8,192 characters"),
    ],
)
def test_a_key_is_one_word_wherever_it_comes_from(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    monkeypatch.setenv("FLEET_KEY", key)
    (tmp_path / "key.txt").write_text(key, encoding="utf-8")
    for line in ("api_key_env: FLEET_KEY\n", "api_key_file: key.txt\n"):
        (found,) = problems_of(write(GOOD + line))
        assert said in found
        assert "sk" not in found.replace("FLEET_KEY", "")
    (tmp_path / "key.txt").write_bytes(b"\xff\n")
    assert len(problems_of(write(GOOD + "api_key_file: key.txt\n"))) == 1


def test_a_line_break_at_the_end_of_a_key_is_nothing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_KEY", "sk-1\n")
    job = load_job(write(GOOD + "api_key_env: FLEET_KEY\n")).job
    assert read_api_key(job) == "sk-1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"a\\0b"', "'a?b' is no path: it holds a NUL."),
        ("x" * 256, "a name in it is 256 bytes long; the limit is 255."),
        ("é" * 128, "a name in it is 256 bytes long; the limit is 255."),
        ("/".join(["x" * 200] * 20), "bytes long; the limit is 4,000."),
    ],
)
def test_names_that_no_file_can_have_are_found_at_the_check(write: Write, text: str, said: str) -> None:
    (found,) = problems_of(write(GOOD.replace("out: out", f"out: {text}")))
    assert found.startswith("1:6: ")
    assert found.endswith(said)
    for line in (f"ledger: {text}\n", f"exclude: {text}\n", f"api_key_file: {text}\n"):
        (found,) = problems_of(write(GOOD + line))
        assert found.endswith(said)
    (found,) = problems_of(write(GOOD.replace("data/one.jsonl", text)))
    assert found.endswith(said)


def test_file_names_that_are_not_utf8_are_told_by_folder(write: Write, tmp_path: Path) -> None:
    (tmp_path / "data" / "b\udcff.jsonl").write_text(ROWS)
    (found,) = problems_of(write(GOOD.replace("data/one.jsonl", "data")))
    assert found == f"3:10: {tmp_path}/data/b?.jsonl: it is not UTF-8; rename the file."


def test_out_may_not_be_a_file_and_a_ledger_needs_its_folder(write: Write, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    found = problems_of(write(GOOD.replace("out: out", "out: taken") + "ledger: gone/l.db\nexclude: gone\n"))
    assert [problem.split(": ")[0] for problem in found] == ["1:6", "4:9", "5:10"]


def test_prompts_in_the_output_folder_are_refused(write: Write, tmp_path: Path) -> None:
    path = write(GOOD.replace("out: out", "out: data"))
    (problem,) = problems_of(path)
    assert f"one.jsonl lies in the output folder of this job, {tmp_path / 'data'}" in problem
