"""The command line and the repository's own promises."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from kfs import cli, doctor

ROOT = Path(__file__).parent.parent


def test_importing_kfs_loads_nothing_heavy():
    heavy = ("torch", "numpy", "pandas", "pydantic", "transformers", "hydra")
    code = f"import sys, kfs; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_help_names_every_verb(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    assert {"study", "record", "data", "doctor"} <= set(re.findall(r"^ {4}(\w+)", capsys.readouterr().out, re.MULTILINE))


@pytest.mark.parametrize("verb", ["study", "record", "data", "doctor"])
def test_every_verb_has_help(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0 and verb in capsys.readouterr().out


def test_an_error_of_ours_is_one_line_and_a_status(capsys):
    assert cli.main(["record", "trimull"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("kfs: unknown task 'trimull'") and error.count("\n") == 1


def test_doctor_says_what_is_there_and_how_to_mend_the_rest(capsys):
    status = cli.main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert {"python", "torch", "gpu", "triton", "mirror", "data smollm2", "landlock", "namespaces"} <= {
        f["what"] for f in findings
    }
    assert status == (1 if any(f["state"] == "broken" for f in findings) else 0)
    assert all(f["mend"] for f in findings if f["state"] == "broken")


def test_doctor_prints_a_line_for_each_finding(capsys):
    cli.main(["doctor"])
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.lstrip().startswith("->")]
    assert len(lines) == len(doctor.examine())


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_environment_yml_and_pyproject_are_in_step():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    assert set(pip) == {"-c constraints.txt", "-e .[all]"}
    (python,) = [d for d in environment["dependencies"] if isinstance(d, str) and d.startswith("python=")]
    lowest = project()["requires-python"].removeprefix(">=")
    assert [int(x) for x in python.removeprefix("python=").split(".")] >= [int(x) for x in lowest.split(".")]


def test_all_brings_every_extra_but_vllm():
    extras = project()["optional-dependencies"]
    assert set(extras) == {"lm", "train", "gpu", "vllm", "lab", "dev", "all"}
    assert extras["all"] == ["kfs[lm,train,gpu,lab,dev]"]


def test_constraints_pin_every_dependency():
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}
    extras = project()["optional-dependencies"]
    wanted = project()["dependencies"] + [r for e in ("lm", "train", "gpu", "lab", "dev") for r in extras[e]]
    for requirement in map(Requirement, wanted):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(pin), f"{requirement} does not allow the pinned {pin}"


def test_make_lists_its_targets():
    out = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"help", "setup", "study", "test", "lab", "lint"} <= set(re.findall(r"make (\w+)", out))


def test_the_readme_has_no_gaps_and_names_files_that_exist():
    text = (ROOT / "README.md").read_text()
    assert "@@" not in text
    assert all((ROOT / path).is_file() for path in re.findall(r"\]\((?!http)([^)]+)\)", text))


def test_modules_stay_under_500_lines():
    long = {p.name: n for p in (ROOT / "kfs").rglob("*.py") if (n := len(p.read_text().splitlines())) > 500}
    assert not long
