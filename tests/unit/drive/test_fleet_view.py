"""What the servers' first answers say of the model."""

from __future__ import annotations

import pytest

from headrace.drive.fleet_view import FirstLook, served_model
from headrace.errors import UnreachableError


def test_silent_servers_are_told_in_their_number() -> None:
    silent = FirstLook("http://h:1", None, "Connection refused")
    with pytest.raises(UnreachableError, match=r"^the server does not answer: Connection refused. Start it,"):
        served_model(None, [silent])
    with pytest.raises(UnreachableError, match=r"^none of the 2 servers answers: .* Start them,"):
        served_model(None, [silent, silent])
    assert served_model(None, [silent, FirstLook("http://h:2", ("m",), None)]) == "m"
