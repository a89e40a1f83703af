"""The configuration file and the environment, as frozen Settings.

Keeps true: this module is the only reader of either; what it returns was checked whole, so no
other module checks it again. Every mistake is one `Misconfigured` line that begins with the path
of the field. Every field has an environment variable: `KUBE_SYNC_` and its path in capitals,
joined by `_` (`opa.token_file` is `KUBE_SYNC_OPA_TOKEN_FILE`); it wins over the file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit, urlunsplit

import msgspec
import yaml

from kube_sync.errors import Misconfigured
from kube_sync.objects import GroupVersionResource

ENV_PREFIX = "KUBE_SYNC_"
CONFIG_ENV = ENV_PREFIX + "CONFIG"

_DataName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
# RFC 1123 label; above all not empty, which the API server would read as all namespaces.
_Namespace = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
_AnyNamespace = Annotated[str, msgspec.Meta(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]
_Label = Annotated[str, msgspec.Meta(pattern=r"^[^=!,\s]+=[^=!,\s]+$")]
_DataPath = Annotated[str, msgspec.Meta(pattern=r"^[^/\s]+(/[^/\s]+)*$")]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file: immutable, and a misspelt key is an error."""


class Kubernetes(_Section, frozen=True):
    """Which API server: in-cluster when nothing is said and a service account is there."""

    kubeconfig: str | None = None
    context: str | None = None


class Opa(_Section, frozen=True):
    """The OPA that this process feeds or asks."""

    url: str = "http://127.0.0.1:8181"
    token_file: str | None = None
    ca_file: str | None = None
    binary: str = "opa"  # compiles candidate policies beside the OPA that serves; path or name


class Resource(_Section, frozen=True, rename={"as_": "as"}):
    """One collection to replicate, its name in OPA (by default its plural), and what part of it.

    A resource that says `namespaces` or `ignore_namespaces` takes neither from `replicate`.
    """

    group: str
    version: str
    resource: str
    as_: _DataName | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    namespaces: tuple[_Namespace, ...] | None = None
    ignore_namespaces: tuple[_Namespace, ...] | None = None
    # A path is dotted or, since keys may have dots, a list of keys.
    fields: Literal["all"] | tuple[str | tuple[str, ...], ...] = "all"

    @property
    def paths(self) -> tuple[tuple[str, ...], ...] | None:
        """The fields to keep, each as the keys on the way to it; None for all."""
        return None if self.fields == "all" else tuple(map(_keys, self.fields))

    @property
    def name(self) -> str:
        """The collection's name below `data.<root>`."""
        return self.as_ or self.resource

    @property
    def gvr(self) -> GroupVersionResource:
        """The collection in the Kubernetes API."""
        return GroupVersionResource(self.group, self.version, self.resource)


_CLUSTERS = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "clusters")
_REPLICASETS = Resource("apps", "v1", "replicasets")


class Replicate(_Section, frozen=True):
    """What goes into OPA, and where."""

    root: _DataName = "kubernetes"
    fields: Literal["all"] = "all"
    namespaces: tuple[_Namespace, ...] = ()  # none: all
    ignore_namespaces: tuple[_Namespace, ...] = ()
    resources: tuple[Resource, ...] = (_CLUSTERS, _REPLICASETS)

    def namespaces_of(self, resource: Resource) -> tuple[str, ...]:
        """Return the only namespaces to replicate a resource from, none for all of them."""
        own = resource.namespaces or () if _says_where(resource) else self.namespaces
        return tuple(dict.fromkeys(own))

    def ignored_of(self, resource: Resource) -> tuple[str, ...]:
        """Return the namespaces to leave out of a resource."""
        own = resource.ignore_namespaces or () if _says_where(resource) else self.ignore_namespaces
        return tuple(dict.fromkeys(own))


def _keys(path: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path.split(".")) if isinstance(path, str) else path


def _says_where(resource: Resource) -> bool:
    return (resource.namespaces, resource.ignore_namespaces) != (None, None)


class Labelled(_Section, frozen=True):
    """ConfigMaps that a label makes policy or JSON data, as for kube-mgmt; off while nowhere."""

    namespaces: tuple[_AnyNamespace, ...] = ()  # "*": all of them
    policy: _Label = "openpolicyagent.org/policy=rego"
    data: _Label = "openpolicyagent.org/data=opa"


class Allow(_Section, frozen=True):
    """What a policy ConfigMap may do although it is refused to all others by default."""

    packages: tuple[str, ...] = ()  # dotted, as in `system.log`
    builtins: tuple[str, ...] = ()  # as in `http.send`


class Policies(_Section, frozen=True):
    """Where policy ConfigMaps live; `static` says that OPA has policies from elsewhere too."""

    namespaces: tuple[str, ...] = ("kube-federation-scheduling-policy",)
    static: bool = False
    labelled: Labelled = Labelled()
    allow: Allow = Allow()


class Placement(_Section, frozen=True):
    """The decision to ask for, and the replicated resources (by name in OPA) it is about."""

    path: _DataPath = "io/k8s/federation/admission"
    resources: tuple[str, ...] = ("replicasets",)


class Decisions(_Section, frozen=True):
    """The decision stream: where the replicator serves it, where the remediator finds it."""

    listen: str = "127.0.0.1:9400"
    url: str = "http://127.0.0.1:9400/v1/decisions"
    token_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None


class Guard(_Section, frozen=True):
    """Limits of the remediator; none can be set yet."""


class Remediate(_Section, frozen=True):
    """Whether decisions are written back: only `enforce` writes."""

    mode: Literal["off", "dry-run", "manual", "enforce"] = "enforce"
    guard: Guard = Guard()


class Engine(_Section, frozen=True):
    """How the policy engine is asked; `v1` is `{"input": …}` in and `{"result": …}` out."""

    dialect: Literal["v1"] = "v1"


class Admission(_Section, frozen=True):
    """The webhook's own server."""

    listen: str = "0.0.0.0:8443"  # the API server calls from another machine
    cert_file: str | None = None
    key_file: str | None = None
    engine: Engine = Engine()


class Coordination(_Section, frozen=True):
    """Where this installation keeps its Leases and the ConfigMap of last good policies."""

    namespace: _Namespace = "kube-sync"


class Observe(_Section, frozen=True):
    """Where /metrics, /livez and /readyz are; without it each command has a port of its own."""

    listen: str | None = None


class Settings(_Section, frozen=True):
    """The whole configuration, checked."""

    kubernetes: Kubernetes = Kubernetes()
    opa: Opa = Opa()
    replicate: Replicate = Replicate()
    policies: Policies = Policies()
    placement: Placement = Placement()
    decisions: Decisions = Decisions()
    remediate: Remediate = Remediate()
    admission: Admission = Admission()
    coordination: Coordination = Coordination()
    observe: Observe = Observe()

    def targets(self) -> tuple[Resource, ...]:
        """Return the resources that decisions are about."""
        return tuple(r for r in self.replicate.resources if r.name in self.placement.resources)


@dataclass(frozen=True, slots=True)
class Field:
    """One leaf of the configuration and the environment variable that overrides it."""

    path: str  # dotted, as in `opa.token_file`
    type: Any

    @property
    def variable(self) -> str:
        """The environment variable's name."""
        return ENV_PREFIX + self.path.replace(".", "_").upper()


class _Yaml(yaml.SafeLoader):
    """YAML whose only booleans are true and false: `mode: off` is a word, not False."""


# Assigned, not declared: the stubs call it an instance variable.
_Yaml.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def load_settings(file: str | None, environment: Mapping[str, str]) -> Settings:
    """Read `file` (or the one that KUBE_SYNC_CONFIG names), apply the environment, check all.

    Raises Misconfigured.
    """
    source = file or environment.get(CONFIG_ENV)
    document = _read(source) if source else {}
    for field in fields():
        if (text := environment.get(field.variable)) is not None:
            _put(document, field.path, _from_text(field, text))
    try:
        settings = msgspec.convert(document, Settings)
    except msgspec.ValidationError as error:
        raise Misconfigured(_explain(str(error), source, environment)) from error
    _check(settings)
    return settings


def effective(settings: Settings) -> str:
    """Return the settings as YAML, with passwords in URLs masked."""
    document = msgspec.to_builtins(settings)
    document["opa"]["url"] = _masked(settings.opa.url)
    document["decisions"]["url"] = _masked(settings.decisions.url)
    return yaml.safe_dump(document, sort_keys=False)


def fields(section: type[_Section] = Settings, prefix: str = "") -> Iterator[Field]:
    """Yield every leaf of the configuration, in the order of the file."""
    for name, kind in get_type_hints(section, include_extras=True).items():
        path = prefix + name
        if isinstance(kind, type) and issubclass(kind, _Section):
            yield from fields(kind, path + ".")
        else:
            yield Field(path, kind)


def parse_listen(path: str, text: str) -> tuple[str, int]:
    """Split `host:port` (`[::1]:8443` for IPv6). Raises Misconfigured, naming `path`."""
    match = re.fullmatch(
        r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]\s]*)):(?P<port>\d+)", text
    )
    # Port 0 lets the system choose one; tests use it.
    if match is None or not 0 <= (port := int(match["port"])) < 65536:  # noqa: PLR2004
        msg = f'{path}: "{text}" is not host:port, as in 127.0.0.1:9400'
        raise Misconfigured(msg)
    return match["v6"] or match["host"] or "0.0.0.0", port  # noqa: S104 - ":8443" means all


def _read(file: str) -> dict[str, Any]:
    try:
        text = Path(file).read_text(encoding="utf-8")
        document = _without_nulls(_yaml(text))
    except OSError as error:
        msg = f"configuration file {file}: {error.strerror}"
        raise Misconfigured(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        msg = f"configuration file {file}: not YAML: {' '.join(str(error).split())}"
        raise Misconfigured(msg) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        msg = f"configuration file {file}: expected a mapping, found {type(document).__name__}"
        raise Misconfigured(msg)
    return document


def _yaml(text: str) -> object:
    return yaml.load(text, Loader=_Yaml)  # noqa: S506 - a SafeLoader


def _without_nulls(value: object) -> object:
    """Drop null values of mappings: an empty section or field means its default."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


def _put(document: dict[str, Any], path: str, value: object) -> None:
    *parents, leaf = path.split(".")
    for parent in parents:
        below = document.get(parent)
        if not isinstance(below, dict):  # absent, null, or wrong: then the check names it
            if below is not None:
                return
            below = document[parent] = {}
        document = below
    document[leaf] = value


def _from_text(field: Field, text: str) -> object:
    # Text stays text: YAML would read the path "0123" as a number.
    if field.type in (str, str | None, _DataName, _DataPath, _Label, _Namespace):
        return None if text in ("", "null") and field.type == str | None else text
    try:
        return _yaml(text)
    except yaml.YAMLError as error:
        msg = f"{field.path}: {field.variable} is not YAML: {' '.join(str(error).split())}"
        raise Misconfigured(msg) from error


def _explain(message: str, source: str | None, environment: Mapping[str, str]) -> str:
    """Turn msgspec's `what - at `$.a.b`` into `a.b: what`."""
    what, _, where = message.partition(" - at ")
    if where.startswith("`key` in "):
        what, where = "a key is not text", where.removeprefix("`key` in ")
    path = where.strip("`").removeprefix("$").removeprefix(".")
    if unknown := re.search(r"unknown field `(?P<name>[^`]*)`", what):
        path = f"{path}.{unknown['name']}".lstrip(".")
        what = "unknown key"
    if what.startswith("Invalid enum value"):
        what += f"; known: {', '.join(_choices(path))}"
    variables = [f.variable for f in fields() if f.path == path and f.variable in environment]
    origin = variables[0] if variables else source
    suffix = f" (in {origin})" if origin else ""
    return f"{path or 'configuration'}: {what[:1].lower()}{what[1:]}{suffix}"


def _choices(path: str) -> list[str]:
    """Return what the field at `path` may be, where that is a list of words."""
    if path.endswith("].fields"):
        return ["all", "a list of paths"]
    return [str(c) for field in fields() if field.path == path for c in get_args(field.type)]


def _check(settings: Settings) -> None:
    """Check what types cannot say. Raises Misconfigured."""
    _check_selection(settings.replicate)
    _check_labelled(settings.policies.labelled)
    names: dict[str, GroupVersionResource] = {}
    for index, resource in enumerate(settings.replicate.resources):
        if (other := names.get(resource.name)) is not None:
            msg = (
                f'replicate.resources[{index}]: {resource.gvr} and {other} are both "'
                f'{resource.name}" in OPA; give one of them another name with `as`'
            )
            raise Misconfigured(msg)
        names[resource.name] = resource.gvr
    targets: dict[GroupVersionResource, str] = {}
    for index, name in enumerate(settings.placement.resources):
        if name not in names:
            msg = f'placement.resources[{index}]: "{name}" is not replicated; known: ' + (
                ", ".join(sorted(names)) or "none"
            )
            raise Misconfigured(msg)
        # Decisions are about objects, and have no name of a collection in OPA in them.
        if (same := targets.setdefault(names[name], name)) != name:
            msg = f'placement.resources[{index}]: "{name}" is {names[name]}, as "{same}" is'
            raise Misconfigured(msg)
    for path, url in (("opa.url", settings.opa.url), ("decisions.url", settings.decisions.url)):
        _check_url(path, url)
    for section, pair in (("decisions", settings.decisions), ("admission", settings.admission)):
        if (pair.cert_file is None) != (pair.key_file is None):
            missing = "key_file" if pair.key_file is None else "cert_file"
            msg = f"{section}.{missing}: needed, since the other half of the pair is set"
            raise Misconfigured(msg)
        parse_listen(f"{section}.listen", pair.listen)
    if settings.observe.listen is not None:
        parse_listen("observe.listen", settings.observe.listen)


def _check_selection(replicate: Replicate) -> None:
    _check_namespaces("replicate", replicate.namespaces, replicate.ignore_namespaces)
    for index, resource in enumerate(replicate.resources):
        path = f"replicate.resources[{index}]"
        _check_namespaces(path, resource.namespaces or (), resource.ignore_namespaces or ())
        for name in ("label_selector", "field_selector"):
            text: str | None = getattr(resource, name)
            if text is not None and not text.strip():
                msg = f"{path}.{name}: empty; leave it out to select everything"
                raise Misconfigured(msg)
        _check_fields(f"{path}.fields", resource)


def _check_labelled(labelled: Labelled) -> None:
    if "*" in labelled.namespaces and len(labelled.namespaces) > 1:
        msg = 'policies.labelled.namespaces: "*" is all of them; name no other beside it'
        raise Misconfigured(msg)


def _check_fields(path: str, resource: Resource) -> None:
    if resource.paths == ():
        msg = f"{path}: empty; name fields, or leave it out to keep everything"
        raise Misconfigured(msg)
    for index, (said, keys) in enumerate(zip(resource.fields, resource.paths or (), strict=False)):
        if not all(keys) or not keys:
            msg = f"{path}[{index}]: a path is keys with dots between them, or a list of keys"
            raise Misconfigured(msg)
        # Spelt so it would quietly keep nothing.
        if isinstance(said, str) and re.search(r"^/|[\[\]]", said):
            msg = (
                f'{path}[{index}]: "{said}" is not a dotted path, as in spec.containers.image '
                "(which means each container's)"
            )
            raise Misconfigured(msg)


def _check_namespaces(path: str, chosen: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    for index, name in enumerate(ignored):
        if name in chosen:
            msg = f'{path}.ignore_namespaces[{index}]: "{name}" is in {path}.namespaces too'
            raise Misconfigured(msg)


def _check_url(path: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        # Neither the URL nor the error is repeated: where the password ends cannot be told.
        msg = f"{path}: not a URL: its address or its port is malformed"
        raise Misconfigured(msg) from error
    if not usable:
        msg = f'{path}: "{_masked(url)}" is not an http or https URL'
        raise Misconfigured(msg)


def check_stream(decisions: Decisions) -> None:
    """Let nobody beyond this machine read the decisions in the clear, or without a token.

    For whoever serves the stream; the others may share its configuration without its files.
    Raises Misconfigured.
    """
    host, _ = parse_listen("decisions.listen", decisions.listen)
    if _is_loopback(host):
        return
    for name, file in (("token_file", decisions.token_file), ("cert_file", decisions.cert_file)):
        if file is None:
            msg = (
                f"decisions.{name}: needed, since decisions.listen ({decisions.listen}) is not a "
                "loopback address and the stream tells what runs where"
            )
            raise Misconfigured(msg)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # any other name may be anybody's


def _masked(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))
