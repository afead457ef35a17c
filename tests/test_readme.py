"""The README's example prints what the README says."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def test_example_prints_what_the_readme_shows(capsys):
    (code,), (output,) = blocks("python"), blocks("text")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == output


def test_there_are_two_commands_and_each_makes_its_own_environment():
    commands = [block.strip() for block in blocks("bash")]
    assert len(commands) == 2
    for command in commands:
        assert "\n" not in command
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install")
