"""A missing extra is told by its name, wherever it is missed."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from headrace.cli import app as app_module
from headrace.cli import main
from headrace.errors import UsageError
from headrace.extras import EXTRA_OF, missing_in, require

ROOT = Path(__file__).resolve().parents[3]
MODULE_OF = {
    "nvidia-ml-py": "pynvml",
    "vl-convert-python": "vl_convert",
}  # where a package's module is not its name


def test_every_package_of_the_extras_is_known_by_its_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = dict(project["optional-dependencies"])
    assert extras.pop("all") == [f"headrace[{','.join(extras)}]"]
    declared = {
        MODULE_OF.get(name, name.replace("-", "_")): extra
        for extra, packages in extras.items()
        for name in (re.split(r"[<>=!~ ;\[]", package)[0] for package in packages)
    }
    assert dict(EXTRA_OF) == declared


def _without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As where the module is not installed."""
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda asked, *more: None if asked == name else there(asked, *more)
    )
    monkeypatch.setitem(sys.modules, name, None)  # an import of it fails


@pytest.mark.parametrize("module", sorted(EXTRA_OF))
def test_what_is_required_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    _without(monkeypatch, module)
    with pytest.raises(UsageError) as refused:
        require(module, "drawing")
    extra = EXTRA_OF[module]
    assert str(refused.value) == (
        f"drawing needs {module}, which is not installed. The extra [{extra}] brings it: "
        f"pip install 'headrace[{extra}]'"
    )


def test_an_import_that_a_command_makes_unasked_is_told_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def draw() -> ModuleType:
        import vl_convert

        return vl_convert

    _without(monkeypatch, "vl_convert")
    monkeypatch.setattr(app_module, "app", app)
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "headrace: this command needs vl_convert, which is not installed. The extra [report] brings it: "
        "pip install 'headrace[report]'\n"
    )


def test_other_imports_that_fail_are_faults() -> None:
    assert missing_in(ImportError("no", name="headrace.nothing")) is None
    assert missing_in(ImportError("broken, but there", name="pyarrow.lib")) is None
