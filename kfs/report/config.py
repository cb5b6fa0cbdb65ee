"""The configuration of a study: dataclass schemas, composed by Hydra, checked, converted once.

The dataclasses of ``kfs.report.schemas`` (and those of forecasters and training methods) are the only source of defaults,
types and help; the files in ``conf/`` say only what differs. Keys that no schema has, ``+key`` and ``~key`` are refused with a
list of what exists. Inner code sees dataclasses and dictionaries, never a DictConfig. Nothing here reads data or runs a notebook.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import typing
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from kfs.errors import SchemaError, UnknownNameError, unknown_name
from kfs.records import content_id
from kfs.report.schemas import (
    DATA,
    BootstrapConfig,
    CudaL1Data,
    DataConfig,
    LiveData,
    PricesConfig,
    PromptsConfig,
    PublishedData,
    SampleConfig,
    StudyConfig,
    TrainConfig,
)

GROUPS = ("study", "data", "forecaster", "debug")
_WHERE = "kfs/report/schemas.py"


def callers_path(value: str) -> str:
    """A path as the caller of the study meant it, absolute: notebooks run elsewhere, and are told where in ``KFS_CWD``."""
    return os.path.abspath(os.path.join(os.environ.get("KFS_CWD") or os.getcwd(), os.path.expanduser(value)))


def project_root() -> Path:
    """Folder that holds ``conf/`` and ``notebooks/``: the working folder or one above it, else the checkout kfs comes from.

    Raises
    ------
    SchemaError
        If there is none.
    """
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).resolve().parents[2]):
        if (folder / "conf" / "config.yaml").is_file() and (folder / "conf" / "study").is_dir():
            return folder
    raise SchemaError(
        f"no conf/config.yaml beside the kfs package or above {Path.cwd()}; work in a clone and install it with: pip install -e ."
    )


def as_list(overrides: str | Sequence[str] | None) -> list[str]:
    """Overrides as a list, whether given as one line of text or as a list.

    Examples
    --------
    >>> as_list("debug=tiny 'notebooks=[02_accuracy, 05_recovery]'")
    ['debug=tiny', 'notebooks=[02_accuracy, 05_recovery]']
    """
    return shlex.split(overrides) if isinstance(overrides, str) else [str(o) for o in overrides or ()]


def study_names(root: Path | None = None) -> list[str]:
    """Studies that exist, from ``conf/study``."""
    return _choices("study", root or project_root())


def _choices(group: str, root: Path) -> list[str]:
    return sorted(p.stem for p in (root / "conf" / group).glob("*.yaml"))


def _options_schema(kind: type) -> type:
    """A dataclass of a forecaster's options only: its fields that can be given, with their types and defaults."""
    hints = typing.get_type_hints(kind)
    rows = []
    for f in dataclasses.fields(kind):
        if not f.init:
            continue
        if f.default is not dataclasses.MISSING:
            given = field(default=f.default)
        elif f.default_factory is not dataclasses.MISSING:
            given = field(default_factory=f.default_factory)
        else:
            raise SchemaError(f"forecaster option {kind.__name__}.{f.name} has no default; every option needs one")
        rows.append((f.name, _omega_type(hints[f.name]), given))
    return dataclasses.make_dataclass(f"{kind.__name__}Options", rows)


def _omega_type(hint: Any) -> Any:
    """A type OmegaConf can check; the forecaster itself checks what this lets pass."""
    if typing.get_origin(hint) is typing.Literal:
        return str if all(isinstance(v, str) for v in typing.get_args(hint)) else Any
    return hint


def _register() -> None:
    """Give Hydra the schemas. Safe to repeat."""
    from hydra.core.config_store import ConfigStore

    from kfs.forecast import FORECASTERS

    rows = [(name, _options_schema(kind) | None, None) for name, kind in FORECASTERS.items()]
    forecasters = dataclasses.make_dataclass("ForecasterConfig", rows)
    schema = dataclasses.make_dataclass(
        "Study", [("forecaster", forecasters, field(default_factory=forecasters))], bases=(StudyConfig,)
    )
    from kfs.rl.grpo import GrpoTraining
    from kfs.rl.readout import ReadoutTraining

    store = ConfigStore.instance()
    store.store("study_schema", schema)
    store.store("train_schema", TrainConfig)
    for kind in (ReadoutTraining, GrpoTraining):
        store.store(f"{kind.method}_schema", _options_schema(kind), group="train")
    for name, kind in DATA.items():
        store.store(f"{name}_schema", kind, group="data")


def _parse(overrides: list[str]):
    """Parsed overrides; what is not ``key=value`` is refused."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise SchemaError(
            f"cannot read the overrides {overrides}: {str(error).splitlines()[0]}; write them as key=value"
        ) from error


def sweep(overrides: Iterable[str]) -> list[list[str]]:
    """Every combination of comma lists, ``choice(...)`` and ``range(...)`` in the overrides, first key slowest.

    Examples
    --------
    >>> sweep(["seed=0,1", "debug=tiny"])
    [['seed=0', 'debug=tiny'], ['seed=1', 'debug=tiny']]
    """
    jobs: list[list[str]] = [[]]
    for parsed in _parse(list(overrides)):
        if parsed.is_sweep_override():
            values = [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]
        else:
            values = [parsed.input_line]
        jobs = [[*job, value] for job in jobs for value in values]
    return jobs


def _check_key(key: str, base: Any, choices: Sequence[str], command: str) -> None:
    """Refuse a key that no schema has, listing its neighbours that exist."""
    from omegaconf import OmegaConf

    node, seen = base, ""
    for part in key.split("."):
        known = [f"{seen}{k}" for k in node] if OmegaConf.is_dict(node) else []
        if not OmegaConf.is_dict(node) or part not in node:
            groups = () if seen else [g for g in choices if g not in known]
            raise unknown_name("config key", key, [*known, *groups], f"{command} --config shows them all; {_WHERE}")
        seen = f"{seen}{part}."
        node = node[part]
        if node is None and key != seen[:-1]:
            if seen.startswith("forecaster."):
                remedy = f"takes no part here; choose it with forecaster={part} or forecaster=all"
            else:
                remedy = "is null and has no keys"
            raise UnknownNameError(f"config key {key!r}: {seen[:-1]!r} {remedy}")


def compose(study: str = "embedded", overrides: str | Sequence[str] = (), *, root: Path | None = None) -> StudyConfig:
    """Compose and check the configuration of a study.

    Parameters
    ----------
    study : str
        A file of ``conf/study``.
    overrides : str or sequence of str
        Hydra overrides, ``key=value``; groups are study, data, forecaster, debug.
    root : Path, optional
        Folder with ``conf/``; default the checkout.

    Returns
    -------
    StudyConfig
        Plain dataclasses; ``forecaster`` is a dictionary of dictionaries.

    Raises
    ------
    UnknownNameError
        If a study, group choice, key, forecaster or notebook does not exist; lists those that do.
    SchemaError
        If a value has the wrong type, or ``+key``, ``~key`` or a sweep is given.
    """
    root = root or project_root()
    if study not in study_names(root):
        raise unknown_name("study", study, study_names(root), "conf/study")
    return _convert(compose_plain("config", [f"study={study}", *as_list(overrides)], GROUPS, root, f"kfs study {study}"), root)


def compose_plain(top: str, given: Sequence[str], groups: Sequence[str], root: Path, command: str) -> dict[str, Any]:
    """Compose ``conf/<top>.yaml`` with overrides and check them; plain values, defaults filled in.

    Parameters
    ----------
    top : str
        Name of the file that lists the defaults.
    given : sequence of str
        Overrides; what chooses in the first one of ``groups`` may stand there once.
    groups : sequence of str
        Groups that can be chosen from.
    root : Path
        Folder with ``conf/``.
    command : str
        What a user would type, for messages.

    Raises
    ------
    UnknownNameError, SchemaError
        As :func:`compose`.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    parsed = _parse(list(given))
    chosen, values, refused = [], [], []
    for item in parsed:
        key, line = item.key_or_group, item.input_line
        if item.is_add() or item.is_force_add() or item.is_delete():
            refused.append((key, line))
            continue
        if item.is_sweep_override():
            raise SchemaError(f"{line!r} holds several values; sweep over them with: {command} {line} -m")
        if key == "data.source":
            raise SchemaError(f"{line!r}: the source is chosen as a group; write data={' or data='.join(_choices('data', root))}")
        if key in groups:
            if str(item.value()) not in _choices(key, root):
                raise unknown_name(f"{key} choice", item.value(), _choices(key, root), f"conf/{key}")
            if key == "study" and item is not parsed[0]:
                raise SchemaError(f"{line!r}: the study is named once; write kfs study {item.value()}")
            chosen.append(line)
        else:
            values.append((key, line))

    GlobalHydra.instance().clear()
    _register()
    with initialize_config_dir(str(root / "conf"), version_base="1.3", job_name="kfs"):
        try:
            base = hydra_compose(top, chosen)
            for key, _ in [*refused, *values]:
                _check_key(key, base, groups, command)
            for key, line in refused:
                raise SchemaError(f"{line!r}: keys are neither added nor removed; {key!r} exists, so write {key}=value")
            node = hydra_compose(top, [*chosen, *(line for _, line in values)])
            return OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
        except HydraException as error:
            cause = error.__cause__ or error
            lines = [*str(error).splitlines(), *str(cause).splitlines()]
            raise SchemaError(f"{lines[0]}: {next((x for x in lines[1:] if x), lines[0])} (types: {_WHERE})") from error


def _convert(plain: dict[str, Any], root: Path) -> StudyConfig:
    """Plain values to dataclasses, and the checks that types cannot make."""
    _resolve_paths(plain)
    config = StudyConfig(
        **{
            **plain,
            "bootstrap": BootstrapConfig(**plain["bootstrap"]),
            "sample": SampleConfig(**plain["sample"]),
            "prompts": PromptsConfig(**plain["prompts"]),
            "prices": PricesConfig(**plain["prices"]),
            "data": convert_data(plain["data"]),
        }
    )
    if not config.forecasters and not isinstance(config.data, PublishedData):  # which brings forecasters of its own
        raise SchemaError("no forecaster takes part; choose one with forecaster=NAME or all with forecaster=all")
    for name in config.sample.forecasters:
        if name not in config.forecaster:
            raise unknown_name("forecaster", name, config.forecaster, "sample.forecasters")
    known = sorted(p.stem for p in (root / "notebooks").glob("*.ipynb"))
    for name in config.notebooks:
        if name not in known:
            raise unknown_name("notebook", name, known, "notebooks/")
    for key, value, low in (
        ("bootstrap.n_resamples", config.bootstrap.n_resamples, 1),
        ("sample.size", config.sample.size, 1),
        ("prompts.size", config.prompts.size, 1),
        ("seed", config.seed, 0),
    ):
        if value < low:
            raise SchemaError(f"{key} must be at least {low}, found {value}")
    from kfs.forecast.prompt import PromptOptions

    for name in config.prompts.options:
        if name not in (known := [f.name for f in dataclasses.fields(PromptOptions)]):
            raise unknown_name("prompt option", name, known, "prompts.options")
    if not 0 < config.bootstrap.level < 1:
        raise SchemaError(f"bootstrap.level must lie between 0 and 1, found {config.bootstrap.level}")
    return config


def convert_data(plain: dict[str, Any]) -> DataConfig:
    """Plain values of the data group as the dataclass of their source, checked; paths as the caller meant them."""
    kind = DATA.get(plain["source"])
    if kind is None:
        raise unknown_name("data source", plain["source"], DATA, _WHERE)
    if plain.get("folder"):
        plain = {**plain, "folder": callers_path(plain["folder"])}
    data = kind(**plain)
    for key, low in (("per_bin", 1), ("per_task", 1), ("max_packs", 3)):
        if (value := getattr(data, key)) is not None and value < low:
            raise SchemaError(f"data.{key} must be at least {low}, found {value}")
    if isinstance(data, CudaL1Data):
        _check_gpus(data.gpus)
    if isinstance(data, LiveData):
        _check_live(data)
    return data


def _resolve_paths(plain: dict[str, Any]) -> None:
    """Make the values that name folders absolute, so that they mean the same in a notebook's process."""
    from kfs.data import manifest

    local = plain["forecaster"].get("local")
    if local and local["model"] not in manifest.datasets():
        local["model"] = callers_path(local["model"])
    if local and local["adapter"]:
        local["adapter"] = callers_path(local["adapter"])


def _check_live(data: LiveData) -> None:
    from kfs.tasks import task_names

    if data.device not in ("cuda", "host"):
        raise unknown_name("device", data.device, ("cuda", "host"), "data.device")
    for name in data.tasks:
        if name not in task_names():
            raise unknown_name("task", name, task_names(), "data.tasks")
    if data.tasks and len(set(data.tasks)) < 3:
        raise SchemaError(f"data.tasks: one task is left out at a time, so name three or more, found {_literal(data.tasks)}")
    if data.child_pairs < 3 or (data.kernels is not None and data.kernels < 3):
        raise SchemaError(f"data.child_pairs and data.kernels must be at least 3, found {data.child_pairs} and {data.kernels}")


def _check_gpus(gpus: list[str]) -> None:
    from kfs.data.cuda_l1 import GPUS

    for gpu in gpus:
        if gpu not in GPUS:
            raise unknown_name("GPU of CUDA-L1", gpu, GPUS, "data.gpus")
    if not gpus or len(set(gpus)) < len(gpus):
        raise SchemaError(f"data.gpus must name one GPU or more, each once, found {_literal(gpus)}; known: {', '.join(GPUS)}")


def to_yaml(config: StudyConfig) -> str:
    """A configuration as yaml, in the order of the schema."""
    import yaml

    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def describe(config: StudyConfig) -> str:
    """A configuration with one line of help behind every key that has one."""
    lines: list[str] = []

    def walk(node: Any, prefix: str) -> None:
        for f in dataclasses.fields(node):
            value = getattr(node, f.name)
            if dataclasses.is_dataclass(value):
                walk(value, f"{prefix}{f.name}.")
            elif isinstance(value, dict):
                for name, options in value.items():
                    if options is None:
                        lines.append(f"{f.name}.{name}=null")
                    else:
                        lines.extend(f"{f.name}.{name}.{key}={_literal(v)}" for key, v in options.items())
                        if not options:
                            lines.append(f"{f.name}.{name}={{}}")
            else:
                key = "data" if (prefix, f.name) == ("data.", "source") else f"{prefix}{f.name}"
                lines.append(f"{key}={_literal(value)}".ljust(44) + f"  # {f.metadata.get('help', '')}")

    walk(config, "")
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def config_digest(config: StudyConfig, data: dict[str, str]) -> str:
    """Twelve hex digits over the configuration and the content of the data: the name of a run's folder."""
    return content_id(to_yaml(config), *(f"{k}={v}" for k, v in sorted(data.items())), length=12)
