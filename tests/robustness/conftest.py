"""What counts as taking bad input well: an answer, or one sentence and status 2; never a traceback, never silence."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gpuguide import cli


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str

    def check(self) -> None:
        """An answer on standard output, or one sentence on standard error."""
        assert self.status in (0, 2), self
        assert "Traceback" not in self.out + self.err
        if self.status == 2:
            assert self.out == "", self
            lines = self.err.strip().splitlines()
            assert len(lines) == 1, self
            assert lines[0].startswith("gpuguide: ")
            assert 20 < len(lines[0]) < 1000


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call with the words of a command."""

    def call(*words: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["gpuguide", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return Outcome(ended.value.code or 0, captured.out, captured.err)

    return call
