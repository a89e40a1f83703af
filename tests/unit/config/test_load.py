from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_sync.config import (
    CONFIG_ENV,
    Field,
    Resource,
    Settings,
    Source,
    TopologyLink,
    effective,
    fields,
    load_settings,
)
from kube_sync.config.rules import Toleration
from kube_sync.errors import Misconfigured
from kube_sync.objects import GroupVersionResource

DOCUMENTED = """\
kubernetes: {kubeconfig: null, context: null}          # default: in-cluster, then KUBECONFIG
opa:
  url: "http://127.0.0.1:8181"
  token_file: null
  ca_file: null
  binary: opa
  compile: {memory_bytes: 536870912, cpu_seconds: 30, timeout_seconds: 20}
replicate:
  root: kubernetes
  fields: all                                           # all | auto | a list of paths per resource
  verify: 0.0
  namespaces: []                                        # none: all
  ignore_namespaces: []
  topology: false
  resources:
    - {group: multicluster.x-k8s.io, version: v1alpha1, resource: clusterprofiles, as: clusters}
    - {group: apps, version: v1, resource: replicasets}
policies:
  namespaces: [kube-federation-scheduling-policy]
  static: false
  rego_version: 1
  labelled: {namespaces: [], policy: openpolicyagent.org/policy=rego,
             data: openpolicyagent.org/data=opa}
  allow: {packages: [], builtins: []}
  warnings: {}
placement: {path: io/k8s/federation/admission, resources: [replicasets], key_file: null}
decisions: {listen: "127.0.0.1:9400", board: true, token_file: null,
  url: "http://127.0.0.1:9400/v1/decisions", cert_file: null, key_file: null, ca_file: null,
  basis: {listen: null, cert_file: null, key_file: null}}
ledger: {path: null, name: '', inputs: true, max_age: 7776000, max_size: 1073741824}
remediate:
  mode: enforce                                         # off | dry-run | manual | enforce
  sinks:
    placement_decisions: {enabled: false, namespace: null}
    ocm_placement_decisions: {enabled: false, namespace: null}
    multikueue: {enabled: false, next_cluster_seconds: 300}
  argocd: {listen: null, namespace: argocd, token_file: null, cert_file: null, key_file: null}
  openreports: {enabled: false, most_results: 250, interval_seconds: 10}
  namespaces: {}
  moves: together                                       # together | add-first
  add_first:
    healthy_within_seconds: 300
    on_unhealthy: revert                                # revert | keep
    health: {source: annotations, annotation: health.kube-sync.io, path: status.clusters,
             namespace: argocd, label: null}
  concurrency: auto                                     # auto | a number
  listen: "127.0.0.1:9404"
  token_file: null
  guard:
    {moves_per_minute: 60, moves_burst: 20, namespace_moves_per_minute: 30,
     namespace_moves_burst: 10, cluster_moves_per_minute: 30, cluster_moves_burst: 10,
     dwell_seconds: 30, cooldown_seconds: 120, oscillation_seconds: 3600, stale_seconds: 60,
     shrink_share: 0.3, mass_share: 0.2, mass_floor: 10, placements: {},
     known_clusters: true}
admission:
  listen: "0.0.0.0:8443"
  cert_file: null
  key_file: null
  client_ca_file: null
  client_names: []
  max_body_bytes: 8388608
  workers: 1
  drain_seconds: 10
  owned: restore                                        # restore | deny
  remediator: system:serviceaccount:kube-sync:kube-sync-remediator
  events: true
  classes: null                                         # off | verify | on
  classes_outage_seconds: 60
  engine: {dialect: v1, url: null, path: null, token_file: null, ca_file: null, cert_file: null,
    key_file: null, timeout_seconds: 2, attempts: 5, backoff_seconds: 0.1}
  registration: {name: null, ca_file: null}
coordination: {namespace: kube-sync}
observe: {listen: null, tracing: {enabled: false, ratio: 0.01}}
EnforceSchedulingPolicy: {url: null, token: null}       # the design's own, instead of the engine's
builtin: []                                             # policy systems to load and answer for
scheduling:
  merge_option: 1                        # 1 deep | 2 the first alone | 3 by field | 4 intersection
  user_may_use: false
  default_scheduler_is_unspecified: false
  strict_affinity: false
  trust_daemonset_controller: true
  injected_toleration_seconds: 300
  global_default_priority_class: ""
  plugin_tolerations:                    # of plugins of the API server, which need no permission
    - {key: nvidia.com/gpu, operator: Exists, value: "", effect: NoSchedule}
    - {key: node.kubernetes.io/memory-pressure, operator: Exists, value: "", effect: NoSchedule}
metadata: {qos: true}                    # pods are annotated with their quality of service
topology:
  statuses: []                           # kinds of policies whose conditions are ours
  paths: true
  roots: []                              # kinds above all GatewayClasses, as Kuadrant.kuadrant.io
  links: []                              # from, to, kind, field
policy_sync:
  placers: [ocm]                         # ocm, direct
  namespace_prefix: kuadrant-
  grace_seconds: 600
  parameters_namespace: null             # of the ConfigMaps of GatewayClasses; null: any
  executor: kube-sync/kube-sync-policy-sync-spoke
  spokes: {namespace: kube-sync-spokes, label: kube-sync.io/spoke=true}
  brakes: {window_seconds: 3600, stale_seconds: 60, shrink_share: 0.3, mass_share: 0.2,
    mass_floor: 10}
"""
_THING = "{group: g.io, version: v1, resource: things}"
_WORKLOADS = "{group: kueue.x-k8s.io, version: v1beta1, resource: workloads}"
_ONE_RESOURCE = '[{group: "", version: v1, resource: replicasets}]'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def _load(file: Path, text: str, **environment: str) -> Settings:
    file.write_text(text)
    return load_settings(str(file), environment)


def _complaint(file: Path, text: str, **environment: str) -> str:
    with pytest.raises(Misconfigured) as raised:
        _load(file, text, **environment)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_no_file_and_no_environment_give_the_defaults() -> None:
    assert load_settings(None, {}) == Settings()


def test_the_documented_configuration_is_exactly_the_defaults(file: Path) -> None:
    assert _load(file, DOCUMENTED) == Settings()


def test_the_documented_configuration_names_every_field(file: Path) -> None:
    file.write_text(DOCUMENTED)
    document = yaml.safe_load(DOCUMENTED)
    for field in fields():
        below = document
        for part in field.path.split("."):
            assert part in below, field.path
            below = below[part]


def test_a_resource_may_be_called_topology_where_none_is_made(file: Path) -> None:
    text = f"replicate: {{resources: [{_THING[:-1]}, as: topology}}]}}"
    loaded = _load(file, f"{text}\nplacement: {{resources: [topology]}}")
    assert [resource.name for resource in loaded.targets()] == ["topology"]


def test_the_default_targets_are_the_replicasets() -> None:
    assert [(r.name, r.gvr) for r in Settings().targets()] == [
        ("replicasets", GroupVersionResource("apps", "v1", "replicasets"))
    ]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("{}", "off"),
        ("decisions: {token_file: /run/decisions/token}", "on"),
        ("{decisions: {token_file: /a}, admission: {classes: verify}}", "verify"),
        ("{decisions: {token_file: /a}, admission: {classes: off}}", "off"),
        ("admission: {classes: on}", "on"),
        ("{decisions: {token_file: /a}, admission: {engine: {dialect: review}}}", "off"),
        ("admission: {classes: on, engine: {url: http://elsewhere.example.com}}", "off"),
    ],
)
def test_answers_are_reused_where_a_replicator_with_a_token_is_named(
    file: Path, text: str, mode: str
) -> None:
    assert _load(file, text).classes() == mode


def test_targets_are_found_by_their_name_in_opa(file: Path) -> None:
    text = """
        replicate: {resources: [{group: g.io, version: v1, resource: things, as: mine}]}
        placement: {resources: [mine]}
    """
    assert [target.resource for target in _load(file, text).targets()] == ["things"]


def test_the_environment_may_name_the_file(file: Path) -> None:
    file.write_text("opa: {url: http://opa:1}")
    assert load_settings(None, {CONFIG_ENV: str(file)}).opa.url == "http://opa:1"


def test_the_command_line_wins_over_the_environment(file: Path) -> None:
    settings = _load(file, "opa: {url: http://one:1}", **{CONFIG_ENV: "/nowhere"})
    assert settings.opa.url == "http://one:1"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "opa:\n", "opa: null\nremediate: {mode: null}"]
)
def test_empty_files_and_null_sections_mean_the_defaults(file: Path, text: str) -> None:
    assert _load(file, text) == Settings()


def test_off_is_a_word_and_not_a_boolean(file: Path) -> None:
    assert _load(file, "remediate: {mode: off}").remediate.mode == "off"
    assert _load(file, "", KUBE_SYNC_REMEDIATE_MODE="off").remediate.mode == "off"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("opaa: {}", "opaa: unknown key"),
        ("opa: {urll: x}", "opa.urll: unknown key"),
        ("opaa:", "opaa: unknown key"),
        ("opa: {urll: null}", "opa.urll: unknown key"),
        ("admission: {engine: {dialekt: v1}}", "admission.engine.dialekt: unknown key"),
        ("remediate: {guard: {max: 1}}", "remediate.guard.max: unknown key"),
        (
            "replicate: {resources: [{group: a, version: v1, resource: b, has: c}]}",
            "replicate.resources[0].has: unknown key",
        ),
        ("opa: {url: 1}", "opa.url: expected `str`, got `int`"),
        ("opa: text", "opa: expected `object`, got `str`"),
        ("policies: {static: yes}", "policies.static: expected `bool`, got `str`"),
        ("policies: {namespaces: one}", "policies.namespaces: expected `array`, got `str`"),
        ("replicate: {resources: [null]}", "replicate.resources[0]: expected `object`, got `null`"),
        (
            "replicate: {resources: [{group: a, version: v1, resource: [b]}]}",
            "replicate.resources[0].resource: expected `str`, got `array`",
        ),
        (
            "replicate: {resources: [{group: a, version: v1}]}",
            "replicate.resources[0]: object missing required field `resource`",
        ),
        ("replicate: {namespaces: ['']}", "replicate.namespaces[0]: expected `str` matching"),
        ("replicate: {ignore_namespaces: [A]}", "replicate.ignore_namespaces[0]: expected `str`"),
        (
            f"replicate: {{resources: [{_THING[:-1]}, namespaces: ['a,b']}}]}}",
            "replicate.resources[0].namespaces[0]: expected `str` matching",
        ),
        ("replicate: {root: a/b}", "replicate.root: expected `str` matching regex"),
        ("placement: {path: /io/k8s}", "placement.path: expected `str` matching regex"),
        ("placement: {path: io//k8s}", "placement.path: expected `str` matching regex"),
        (
            "remediate: {guard: {moves_per_minute: -1}}",
            "remediate.guard.moves_per_minute: expected `float` >= 0",
        ),
        (
            "remediate: {guard: {cooldown_seconds: .inf}}",
            "remediate.guard.cooldown_seconds: expected `float` <= ",
        ),
        (
            "remediate: {guard: {cooldown_seconds: .nan}}",
            "remediate.guard.cooldown_seconds: expected `float` ",
        ),
        (
            "remediate: {guard: {moves_burst: 0}}",
            "remediate.guard.moves_burst: expected `int` >= 1",
        ),
        (
            "remediate: {guard: {shrink_share: 2}}",
            "remediate.guard.shrink_share: expected `float` <= 1",
        ),
        (
            "policies: {warnings: {unknown_rules: off}}",
            "policies.warnings: invalid enum value 'unknown_rules'; known: package_not_decided, ",
        ),
        (
            "policies: {warnings: {unknown_rule: on}}",
            "policies.warnings[...]: invalid enum value 'on'; known: off",
        ),
        (
            "remediate: {guard: {placements: {a: word}}}",
            "remediate.guard.placements[...]: invalid enum value 'word'; known: preferences, ",
        ),
        (
            "remediate: {namespaces: {shop: force}}",
            "remediate.namespaces[...]: invalid enum value 'force'; known: off, dry-run, manual",
        ),
        (
            "remediate: {mode: force}",
            "remediate.mode: invalid enum value 'force'; known: off, dry-run, manual, enforce",
        ),
        (
            "remediate: {add_first: {health: {annotation: a/b}}}",
            "remediate.add_first.health.annotation: expected `str` matching regex",
        ),
        (
            f"replicate: {{resources: [{_THING[:-1]}, fields: few}}]}}",
            "replicate.resources[0].fields: invalid enum value 'few'; known: all, auto, a list of",
        ),
        (
            f"replicate: {{resources: [{_THING[:-1]}, fields: [spec, 7]}}]}}",
            "replicate.resources[0].fields[1]: expected `str | array`, got `int`",
        ),
        (
            "replicate: {fields: few}",
            "replicate.fields: invalid enum value 'few'; known: all, auto",
        ),
    ],
)
def test_a_mistake_in_the_file_begins_with_the_path_of_the_field(
    file: Path, text: str, complaint: str
) -> None:
    message = _complaint(file, text)
    assert message.startswith(complaint)
    assert message.endswith(f"(in {file})")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            (
                f"replicate: {{resources: [{_ONE_RESOURCE[1:-1]}, {{group: apps, version: v1, "
                "resource: replicasets}]}"
            ),
            (
                "replicate.resources[1]: replicasets.v1.apps and replicasets.v1 are both "
                '"replicasets" in OPA; give one of them another name with `as`'
            ),
        ),
        (
            (
                f"replicate: {{resources: [{_ONE_RESOURCE[1:-1]}, {{group: a, version: v1, "
                "resource: b, as: replicasets}]}"
            ),
            'replicate.resources[1]: b.v1.a and replicasets.v1 are both "replicasets" in OPA',
        ),
        (
            "placement: {resources: [replicasets, pods]}",
            'placement.resources[1]: "pods" is not replicated; known: clusters, replicasets',
        ),
        (
            "placement: {resources: [clusterprofiles]}",
            'placement.resources[0]: "clusterprofiles" is not replicated',
        ),
        (
            "{replicate: {resources: []}, placement: {resources: [replicasets]}}",
            'placement.resources[0]: "replicasets" is not replicated; known: none',
        ),
        (
            "replicate: {resources: [{group: apps, version: v1, resource: replicasets, as: rs}]}",
            'placement.resources[0]: "replicasets" is not replicated; known: rs',
        ),
        (
            (
                f"replicate: {{resources: [{_THING}, {_THING[:-1]}, as: b}}]}}\n"
                "placement: {resources: [things, b]}"
            ),
            'placement.resources[1]: "b" and "things" are both things.v1.g.io',
        ),
        (
            "placement: {resources: [{name: replicasets, sinks: []}]}",
            (
                "placement.resources[0].sinks: empty; name a sink, or take the resource out of the"
                " list"
            ),
        ),
        (
            "placement: {resources: [replicasets, {name: replicasets, sinks: [annotations]}]}",
            'placement.resources[1]: "replicasets" is there twice',
        ),
        (
            "placement: {resources: [{name: replicasets, sinks: [annotations, multikueue]}]}",
            (
                'placement.resources: "replicasets" has the sink multikueue, which is for'
                " workloads.v1beta1.kueue.x-k8s.io with the sink annotations"
            ),
        ),
        (
            (
                f"replicate: {{resources: [{_WORKLOADS}]}}\n"
                "placement: {resources: [{name: workloads, sinks: [multikueue]}]}"
            ),
            (
                'placement.resources: "workloads" has the sink multikueue, which is for'
                " workloads.v1beta1.kueue.x-k8s.io with the sink annotations"
            ),
        ),
        (
            "placement: {resources: [{name: pods, sinks: [annotations]}]}",
            'placement.resources[0]: "pods" is not replicated; known: clusters, replicasets',
        ),
        (
            f"replicate: {{topology: true, resources: [{_THING[:-1]}, as: topology}}]}}",
            (
                'replicate.resources[0]: things.v1.g.io is "topology" in OPA, a name that'
                " replicate.topology uses; give the resource another name with `as`"
            ),
        ),
        (
            "replicate: {topology: true}\nplacement: {resources: [replicasets, topology]}",
            (
                'placement.resources[1]: "topology" is not a resource of the API server, so'
                " no decisions can be made about it"
            ),
        ),
        (
            "replicate: {namespaces: [a, b], ignore_namespaces: [c, b]}",
            'replicate.ignore_namespaces[1]: "b" is in replicate.namespaces too',
        ),
        (
            f"replicate: {{resources: [{_THING[:-1]}, namespaces: [a], ignore_namespaces: [a]}}]}}",
            'replicate.resources[0].ignore_namespaces[0]: "a" is in replicate.resources[0].name',
        ),
        (
            f"replicate: {{resources: [{_THING[:-1]}, label_selector: ''}}]}}",
            "replicate.resources[0].label_selector: empty; remove it",
        ),
        (
            f"replicate: {{resources: [{_THING[:-1]}, field_selector: ' '}}]}}",
            "replicate.resources[0].field_selector: empty; remove it",
        ),
        *(
            (
                f"replicate: {{resources: [{_THING[:-1]}, fields: {said}}}]}}",
                f"replicate.resources[0].fields{complaint}",
            )
            for said, complaint in (
                ("[]", ": empty; name fields, or remove it"),
                ("[spec, '']", "[1]: a path consists of keys separated by dots"),
                ("[.spec.replicas]", "[0]: a path consists of keys"),
                ("[[]]", "[0]: a path consists of keys"),
                ("[[a, '']]", "[0]: a path consists of keys"),
                ("['spec.containers[].image']", '[0]: "spec.containers[].image" is not a dotted'),
                ("[/spec/replicas]", '[0]: "/spec/replicas" is not a dotted path'),
            )
        ),
        *(
            (
                f"replicate: {{resources: [{{group: '', version: v1, {said}}}]}}",
                f"replicate.resources[0].{complaint}",
            )
            for said, complaint in (
                (
                    "resource: secrets, fields: [type, data.token]",
                    "fields[1]: names values of Secrets; set replicate.resources[0].secrets: true",
                ),
                ("resource: secrets, as: hidden, fields: [[stringData]]", "fields[0]: names val"),
                (
                    "resource: secrets, secrets: false, fields: [[data, a.b]]",
                    "fields[0]: names values",
                ),
                ("resource: configmaps, secrets: true", "secrets: configmaps.v1 has no Secrets"),
            )
        ),
        ("opa: {url: localhost}", 'opa.url: "localhost" is not an http or https URL'),
        ("opa: {url: 'ftp://x'}", 'opa.url: "ftp://x" is not an http or https URL'),
        ("opa: {url: 'http://'}", 'opa.url: "http://" is not an http or https URL'),
        ("opa: {url: 'http://x:0'}", 'opa.url: "http://x:0" is not an http or https URL'),
        ("opa: {url: 'http://[::1'}", "opa.url: not a URL: its address or its port is malformed"),
        ("opa: {url: 'http://x:70000'}", "opa.url: not a URL: its address or its port"),
        ("decisions: {url: 'file:///x'}", 'decisions.url: "file:///x" is not an http'),
        (
            "decisions: {cert_file: a}",
            "decisions.key_file: needed, since the other half of the pair is set",
        ),
        ("decisions: {key_file: a}", "decisions.cert_file: needed"),
        ("admission: {cert_file: a}", "admission.key_file: needed"),
        ("admission: {key_file: a}", "admission.cert_file: needed"),
        ("admission: {client_names: [a]}", "admission.client_ca_file: needed"),
        ("decisions: {listen: '9400'}", 'decisions.listen: "9400" is not host:port'),
        ("decisions: {basis: {cert_file: a}}", "decisions.basis.key_file: needed"),
        ("decisions: {basis: {listen: '1'}}", 'decisions.basis.listen: "1" is not host:port'),
        ("admission: {listen: 'a:b'}", 'admission.listen: "a:b" is not host:port'),
        ("admission: {engine: {cert_file: a}}", "admission.engine.key_file: needed"),
        ("admission: {engine: {url: x}}", 'admission.engine.url: "x" is not an http or https URL'),
        ("admission: {engine: {path: a/b}}", 'admission.engine.path: "a/b" does not begin with /'),
        *(
            (f"EnforceSchedulingPolicy: {said}", complaint)
            for said, complaint in (
                ("{token: t}", "EnforceSchedulingPolicy.url: needed, since the token is set"),
                ("{url: opa}", 'EnforceSchedulingPolicy.url: "opa" is not an http or https URL'),
                ("{url: “http://opa/”}", "EnforceSchedulingPolicy.url: its curly quotes"),
                ("{url: 'http://a', token: “t”}", "EnforceSchedulingPolicy.token: not one word"),
                ("{url: 'http://a', token: t u}", "EnforceSchedulingPolicy.token: not one word"),
                (
                    "{“url”: 'http://a'}",
                    "EnforceSchedulingPolicy.“url”: unknown key (its curly quotes",
                ),
                (
                    "{url: 'http://a'}\nadmission: {engine: {url: 'http://b'}}",
                    "EnforceSchedulingPolicy.url: admission.engine.url is set too; keep one",
                ),
                (
                    "{url: 'http://a'}\nadmission: {engine: {path: /b}}",
                    "EnforceSchedulingPolicy.url: admission.engine.path is set too; keep one",
                ),
                (
                    "{url: 'http://a', token: t}\nadmission: {engine: {token_file: b}}",
                    "admission.engine.token_file: EnforceSchedulingPolicy.token is set too",
                ),
            )
        ),
        ("observe: {listen: 'a:99999'}", 'observe.listen: "a:99999" is not host:port'),
        ("policy_sync: {placers: []}", "policy_sync.placers: empty; name ocm, direct or both"),
        (
            "policy_sync: {placers: [ocm, direct, ocm]}",
            'policy_sync.placers[2]: "ocm" is there twice',
        ),
        (
            "topology: {roots: [Service]}",
            "topology.roots[0]: Service is part of the topology already",
        ),
        (
            "topology: {links: [{from: A.a.io, to: GatewayClass.gateway.networking.k8s.io}]}",
            "topology.links[0].from: A.a.io is a parent of GatewayClass.gateway.networking.k8s.io",
        ),
        (
            "topology: {links: [{from: A, to: B, kind: C, field: spec.a}]}",
            "topology.links[0].kind: C is neither A nor B",
        ),
        (
            "topology: {links: [{from: A, to: B, kind: A}]}",
            "topology.links[0].field: needed, since",
        ),
        ("topology: {links: [{from: A, to: B, field: a..b}]}", "topology.links[0].field: expected"),
        (
            "topology: {links: [{from: A, to: B}, {from: B, to: A}]}",
            "topology.links: the kinds form a cycle: ",
        ),
        (
            "topology: {links: [{from: Service, to: HTTPRoute.gateway.networking.k8s.io}]}",
            "topology.links: the kinds form a cycle: ",
        ),
        ("topology: {statuses: [kuadrant.io/AuthPolicy]}", "topology.statuses[0]: expected"),
        ("policy_sync: {placers: [argo]}", "policy_sync.placers[0]: invalid enum value 'argo'"),
        ("policy_sync: {namespace_prefix: -a}", "policy_sync.namespace_prefix: expected"),
        ("policy_sync: {spokes: {namespace: ''}}", "policy_sync.spokes.namespace: expected"),
        ("policy_sync: {spokes: {label: spoke}}", "policy_sync.spokes.label: expected"),
        ("policy_sync: {grace_seconds: .inf}", "policy_sync.grace_seconds: "),
        ("policy_sync: {brakes: {mass_share: 2}}", "policy_sync.brakes.mass_share: expected"),
        ("policy_sync: {brakes: {window_seconds: .inf}}", "policy_sync.brakes.window_seconds: "),
    ],
)
def test_what_types_cannot_say_is_checked_too(file: Path, text: str, complaint: str) -> None:
    assert _complaint(file, text).startswith(complaint)


@pytest.mark.parametrize("url", ["http://u:s3cret@", "http://u:s3cret@[::1", "http://u:s3cr/et@x"])
def test_a_complaint_about_a_url_does_not_tell_its_password(file: Path, url: str) -> None:
    assert "s3cr" not in _complaint(file, f"opa: {{url: '{url}'}}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"^configuration file .*/gone\.yaml: No such file"):
        load_settings(str(tmp_path / "gone.yaml"), {})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"opa: [", "not YAML: while parsing a flow node"),
        (b"when: 0b_", "not YAML: invalid literal for int()"),
        (b"1: x", "the key 1 is no text: put it into quotes (line 1)"),
        (b"opa: {1: x}", "opa: the key 1 is no text: put it into quotes (line 1)"),
        (b"opa: {}\nopa: {}", "opa: this key is here twice (line 2)"),
        (b"opa: {}\n---\nopa: {}", "a second document: a file is one configuration (line 3)"),
        (b"\xff\xfe\xff", "not YAML: "),
        (b"!!python/object:os.system {}", "python/object:os.system is not of JSON"),
        (b"[]", "expected a mapping, found list"),
        (b"text", "expected a mapping, found str"),
    ],
)
def test_a_file_that_is_no_mapping_is_named(file: Path, content: bytes, complaint: str) -> None:
    file.write_bytes(content)
    with pytest.raises(Misconfigured) as raised:
        load_settings(str(file), {})
    message = str(raised.value)
    assert message.startswith(f"configuration file {file}: {complaint}")
    assert "\n" not in message


def test_what_is_not_yaml_is_told_by_its_place_and_not_by_its_text(file: Path) -> None:
    """It is shown on the readiness page too, and there may be a password in the line."""
    complaint = _complaint(file, "opa:\n  url: http://me:s3cret@opa: x")
    assert "mapping values are not allowed in this context (line 2, column " in complaint
    assert "s3cret" not in complaint


_EXAMPLES: dict[str, tuple[str, Any]] = {
    "kubernetes.kubeconfig": ("/a", "/a"),
    "kubernetes.context": ("007", "007"),
    "opa.url": ("https://opa:1/x", "https://opa:1/x"),
    "opa.token_file": ("/a", "/a"),
    "opa.ca_file": ("/a", "/a"),
    "opa.binary": ("/a/opa", "/a/opa"),
    "opa.compile.memory_bytes": ("268435456", 268435456),
    "opa.compile.cpu_seconds": ("60", 60),
    "opa.compile.timeout_seconds": ("60", 60.0),
    "replicate.root": ("fleet", "fleet"),
    "replicate.fields": ("auto", "auto"),
    "replicate.verify": ("0.01", 0.01),
    "replicate.topology": ("true", True),
    "replicate.namespaces": ("[a, b]", ("a", "b")),
    "replicate.ignore_namespaces": ("[kube-system]", ("kube-system",)),
    "replicate.resources": (_ONE_RESOURCE, (Resource("", "v1", "replicasets"),)),
    "policies.namespaces": ("[a, b]", ("a", "b")),
    "policies.static": ("true", True),
    "policies.rego_version": ("0", 0),
    "policies.labelled.namespaces": ("['*']", ("*",)),
    "policies.labelled.policy": ("a/b=c", "a/b=c"),
    "policies.labelled.data": ("1=2", "1=2"),
    "policies.allow.packages": ("[system.log]", ("system.log",)),
    "policies.allow.builtins": ("[http.send]", ("http.send",)),
    "policies.warnings": ("{unknown_rule: off}", {"unknown_rule": "off"}),
    "placement.path": ("0123", "0123"),
    "placement.resources": ("[clusters]", ("clusters",)),
    "placement.key_file": ("/a", "/a"),
    "decisions.listen": ("127.0.0.1:1", "127.0.0.1:1"),
    "decisions.board": ("false", False),
    "decisions.url": ("http://replicator:1/", "http://replicator:1/"),
    "decisions.token_file": ("/a", "/a"),
    "decisions.cert_file": ("/a", "/a"),
    "decisions.key_file": ("/a", "/a"),
    "decisions.ca_file": ("/a", "/a"),
    "decisions.basis.listen": ("127.0.0.1:1", "127.0.0.1:1"),
    "decisions.basis.cert_file": ("/a", "/a"),
    "decisions.basis.key_file": ("/a", "/a"),
    "ledger.path": ("/a", "/a"),
    "ledger.name": ("0123", "0123"),
    "ledger.inputs": ("false", False),
    "ledger.max_age": ("60", 60.0),
    "ledger.max_size": ("100000000", 100_000_000),
    "remediate.mode": ("dry-run", "dry-run"),
    "remediate.sinks.placement_decisions.enabled": ("true", True),
    "remediate.sinks.placement_decisions.namespace": ("0123", "0123"),
    "remediate.sinks.ocm_placement_decisions.enabled": ("true", True),
    "remediate.sinks.ocm_placement_decisions.namespace": ("argocd", "argocd"),
    "remediate.argocd.listen": ("127.0.0.1:1", "127.0.0.1:1"),
    "remediate.argocd.namespace": ("0123", "0123"),
    "remediate.argocd.token_file": ("/a", "/a"),
    "remediate.argocd.cert_file": ("/a", "/a"),
    "remediate.argocd.key_file": ("/a", "/a"),
    "remediate.sinks.multikueue.enabled": ("true", True),
    "remediate.sinks.multikueue.next_cluster_seconds": ("60", 60.0),
    "remediate.openreports.enabled": ("true", True),
    "remediate.openreports.most_results": ("7", 7),
    "remediate.openreports.interval_seconds": ("7", 7.0),
    "remediate.namespaces": ("{shop: off}", {"shop": "off"}),
    "remediate.moves": ("add-first", "add-first"),
    "remediate.add_first.healthy_within_seconds": ("7", 7),
    "remediate.add_first.on_unhealthy": ("keep", "keep"),
    "remediate.add_first.health.source": ("status", "status"),
    "remediate.add_first.health.annotation": ("a.b", "a.b"),
    "remediate.add_first.health.path": ("0123", "0123"),
    "remediate.add_first.health.namespace": ("0123", "0123"),
    "remediate.add_first.health.label": ("a.b/c", "a.b/c"),
    "remediate.concurrency": ("16", 16),
    "remediate.listen": ("127.0.0.1:1", "127.0.0.1:1"),
    "remediate.token_file": ("/a", "/a"),
    **{
        f"remediate.guard.{name}": ("7", 7)
        for name in (
            "moves_per_minute",
            "moves_burst",
            "namespace_moves_per_minute",
            "namespace_moves_burst",
            "cluster_moves_per_minute",
            "cluster_moves_burst",
            "dwell_seconds",
            "cooldown_seconds",
            "oscillation_seconds",
            "stale_seconds",
            "mass_floor",
        )
    },
    "remediate.guard.shrink_share": ("0.5", 0.5),
    "remediate.guard.mass_share": ("0.5", 0.5),
    "remediate.guard.placements": ("{a/b: names}", {"a/b": "names"}),
    "remediate.guard.known_clusters": ("false", False),
    "admission.listen": (":1", ":1"),
    "admission.cert_file": ("/a", "/a"),
    "admission.key_file": ("/a", "/a"),
    "admission.client_ca_file": ("/a", "/a"),
    "admission.client_names": ("[a, b]", ("a", "b")),
    "admission.max_body_bytes": ("2048", 2048),
    "admission.workers": ("2", 2),
    "admission.drain_seconds": ("0.5", 0.5),
    "admission.owned": ("deny", "deny"),
    "admission.remediator": ("me", "me"),
    "admission.events": ("false", False),
    "admission.classes": ("verify", "verify"),
    "admission.classes_outage_seconds": ("5", 5.0),
    "admission.engine.dialect": ("v0", "v0"),
    "admission.engine.url": ("http://engine:1/", "http://engine:1/"),
    "admission.engine.path": ("/0123", "/0123"),
    "admission.engine.token_file": ("/a", "/a"),
    "admission.engine.ca_file": ("/a", "/a"),
    "admission.engine.cert_file": ("/a", "/a"),
    "admission.engine.key_file": ("/a", "/a"),
    "admission.engine.timeout_seconds": ("3", 3.0),
    "admission.engine.attempts": ("1", 1),
    "admission.engine.backoff_seconds": ("0.2", 0.2),
    "admission.registration.name": ("0123", "0123"),
    "admission.registration.ca_file": ("/a", "/a"),
    "coordination.namespace": ("0123", "0123"),
    "observe.listen": ("[::1]:1", "[::1]:1"),
    "observe.tracing.enabled": ("true", True),
    "observe.tracing.ratio": ("0.5", 0.5),
    "builtin": ("[scheduling]", ("scheduling",)),
    "scheduling.merge_option": ("3", 3),
    "scheduling.user_may_use": ("true", True),
    "scheduling.default_scheduler_is_unspecified": ("true", True),
    "scheduling.strict_affinity": ("true", True),
    "scheduling.trust_daemonset_controller": ("false", False),
    "scheduling.injected_toleration_seconds": ("60", 60),
    "scheduling.global_default_priority_class": ("0123", "0123"),
    "scheduling.plugin_tolerations": ("[{key: a.b/c}]", (Toleration("a.b/c"),)),
    "metadata.qos": ("false", False),
    "policy_sync.placers": ("[direct, ocm]", ("direct", "ocm")),
    "topology.statuses": ("[AuthPolicy.kuadrant.io]", ("AuthPolicy.kuadrant.io",)),
    "topology.paths": ("false", False),
    "topology.roots": ("[Kuadrant.kuadrant.io]", ("Kuadrant.kuadrant.io",)),
    "topology.links": (
        "[{from: Store.a.io, to: Backup.a.io, field: spec.store}]",
        (TopologyLink(parent="Store.a.io", child="Backup.a.io", field="spec.store"),),
    ),
    "policy_sync.namespace_prefix": ("0123", "0123"),
    "policy_sync.grace_seconds": ("0", 0.0),
    "policy_sync.parameters_namespace": ("0123", "0123"),
    "policy_sync.executor": ("0123/45", "0123/45"),
    "policy_sync.spokes.namespace": ("0123", "0123"),
    "policy_sync.spokes.label": ("1=2", "1=2"),
    "policy_sync.brakes.window_seconds": ("60", 60.0),
    "policy_sync.brakes.stale_seconds": ("0", 0.0),
    "policy_sync.brakes.shrink_share": ("0.5", 0.5),
    "policy_sync.brakes.mass_share": ("0.5", 0.5),
    "policy_sync.brakes.mass_floor": ("0", 0),
    "EnforceSchedulingPolicy.url": ("https://opa:1/v0/data/a", "https://opa:1/v0/data/a"),
    "EnforceSchedulingPolicy.token": ("0123", "0123"),
}
_ALL = {field.path: field for field in fields()}


def test_every_field_has_an_example_here() -> None:
    assert set(_EXAMPLES) == set(_ALL)


@pytest.mark.parametrize("path", sorted(_EXAMPLES))
def test_every_field_can_be_overridden_by_its_variable(file: Path, path: str) -> None:
    text, value = _EXAMPLES[path]
    environment = {_ALL[path].variable: text}
    # The other half of a pair, which the check asks for.
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if path.endswith(one) and (pair := _ALL.get(path.replace(one, other))) is not None:
            environment[pair.variable] = "/b"
    if path == "admission.client_names":  # of whom, it asks too
        environment[_ALL["admission.client_ca_file"].variable] = "/b"
    if path == "EnforceSchedulingPolicy.token":
        environment["KUBE_SYNC_ENFORCESCHEDULINGPOLICY_URL"] = "http://opa:1/v1/data/a"
    settings = _load(file, DOCUMENTED, **environment)
    assert _ALL[path].of(settings) == value
    assert load_settings(None, environment) == settings, "with and without a file"


def test_a_variable_is_the_path_in_capitals() -> None:
    assert Field("admission.engine.dialect", str).variable == "KUBE_SYNC_ADMISSION_ENGINE_DIALECT"


def test_no_two_fields_share_a_variable() -> None:
    variables = Counter(field.variable for field in fields())
    variables[CONFIG_ENV] += 1
    assert variables.most_common(1)[0][1] == 1


@pytest.mark.parametrize("text", ["", "null"])
def test_an_empty_variable_takes_an_optional_text_back(file: Path, text: str) -> None:
    settings = _load(file, "opa: {token_file: /a}", KUBE_SYNC_OPA_TOKEN_FILE=text)
    assert settings.opa.token_file is None


@pytest.mark.parametrize("text", ["", "null"])
def test_an_empty_variable_takes_an_optional_namespace_back(file: Path, text: str) -> None:
    variable = "KUBE_SYNC_REMEDIATE_SINKS_PLACEMENT_DECISIONS_NAMESPACE"
    document = "remediate: {sinks: {placement_decisions: {namespace: fleet}}}"
    settings = _load(file, document, **{variable: text})
    assert settings.remediate.sinks.placement_decisions.namespace is None


@pytest.mark.parametrize(
    ("document", "sinks"),
    [
        ("{}", ["annotations"]),
        (
            "remediate: {sinks: {ocm_placement_decisions: {enabled: true}}}",
            ["annotations", "ocm_placement_decisions"],
        ),
        (
            (
                "remediate: {sinks: {placement_decisions: {enabled: true}}}\n"
                "placement: {resources: [{name: replicasets}]}"
            ),
            ["annotations", "placement_decisions"],
        ),
        (
            "placement: {resources: [{name: replicasets, sinks: [placement_decisions]}]}",
            ["placement_decisions"],
        ),
        (
            "remediate: {sinks: {multikueue: {enabled: true}}}",
            ["annotations"],
        ),
        (
            (
                "remediate: {sinks: {multikueue: {enabled: true}}}\n"
                f"replicate: {{resources: [{_WORKLOADS}]}}\nplacement: {{resources: [workloads]}}"
            ),
            ["annotations", "multikueue"],
        ),
        (  # the annotations lead wherever they are
            (
                "placement: {resources: [{name: replicasets,"
                " sinks: [placement_decisions, annotations, placement_decisions]}]}"
            ),
            ["annotations", "placement_decisions"],
        ),
    ],
)
def test_the_sinks_of_a_resource_are_its_own_or_else_those_switched_on(
    file: Path, document: str, sinks: list[str]
) -> None:
    settings = _load(file, document)
    (target,) = settings.targets()
    assert list(settings.sinks_of(target)) == sinks


def test_a_sink_that_is_not_known_is_named(file: Path) -> None:
    document = "placement: {resources: [{name: replicasets, sinks: [annotation]}]}"
    assert "placement.resources[0].sinks[0]" in _complaint(file, document)


def test_the_prefix_of_namespaces_may_be_empty(file: Path) -> None:
    document = "policy_sync: {placers: [direct]}"
    settings = _load(file, document, KUBE_SYNC_POLICY_SYNC_NAMESPACE_PREFIX="")
    assert settings.policy_sync.namespace_prefix == ""


def test_the_prefix_of_namespaces_may_not_be_empty_where_an_agent_writes(file: Path) -> None:
    """On a hub that is its own spoke it would take the policy for its copy, and remove it."""
    with pytest.raises(Misconfigured, match="namespace_prefix may be empty only if direct is the"):
        _load(
            file, "policy_sync: {placers: [direct, ocm]}", KUBE_SYNC_POLICY_SYNC_NAMESPACE_PREFIX=""
        )


def test_a_section_that_is_null_in_the_file_can_be_overridden(file: Path) -> None:
    assert _load(file, "opa: null", KUBE_SYNC_OPA_URL="http://a:1").opa.url == "http://a:1"


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("KUBE_SYNC_REMEDIATE_MODE", "force", "remediate.mode: invalid enum value 'force'"),
        ("KUBE_SYNC_POLICIES_STATIC", "maybe", "policies.static: expected `bool`, got `str`"),
        ("KUBE_SYNC_POLICIES_STATIC", "", "policies.static: expected `bool`, got `null`"),
        ("KUBE_SYNC_REPLICATE_ROOT", "", "replicate.root: expected `str` matching"),
    ],
)
def test_a_mistake_in_a_variable_names_field_and_variable(
    file: Path, variable: str, text: str, complaint: str
) -> None:
    message = _complaint(file, DOCUMENTED, **{variable: text})
    assert message.startswith(complaint)
    assert message.endswith(f"(in {variable})")


def test_a_variable_that_is_no_yaml_names_field_and_variable() -> None:
    with pytest.raises(
        Misconfigured, match=r"^policies\.namespaces: KUBE_SYNC_POLICIES_NAMESPACES"
    ):
        load_settings(None, {"KUBE_SYNC_POLICIES_NAMESPACES": "[a"})


def test_a_wrong_section_is_named_even_when_a_field_of_it_is_overridden(file: Path) -> None:
    message = _complaint(file, "opa: text", KUBE_SYNC_OPA_URL="http://a:1")
    assert message.startswith("opa: expected `object`, got `str`")


def test_a_mistake_without_a_file_names_no_source() -> None:
    with pytest.raises(Misconfigured) as raised:
        load_settings(None, {"KUBE_SYNC_REPLICATE_RESOURCES": "[{group: a, version: v1}]"})
    assert str(raised.value) == ("replicate.resources[0]: object missing required field `resource`")


def test_the_effective_configuration_loads_to_the_same(file: Path) -> None:
    text = "remediate: {mode: off}\npolicies: {namespaces: ['yes', '1'], static: true}"
    settings = _load(file, text)
    assert _load(file, effective(settings)) == settings


def test_selection_survives_a_round_trip_of_the_effective_configuration(file: Path) -> None:
    text = f"""
        replicate:
          ignore_namespaces: [kube-system]
          resources:
          - {_THING[:-1]}, label_selector: "a in (b, c)", field_selector: metadata.name!=d,
             namespaces: [e, f], ignore_namespaces: [],
             fields: [metadata.labels, [metadata, annotations, 'a.b/c[0]']]}}
        placement: {{resources: []}}
    """
    settings = _load(file, text)
    assert _load(file, effective(settings)) == settings
    resource = settings.replicate.resources[0]
    assert resource.label_selector == "a in (b, c)"
    assert resource.paths == (("metadata", "labels"), ("metadata", "annotations", "a.b/c[0]"))
    assert Resource("", "v1", "pods").paths is None


@pytest.mark.parametrize(
    ("own", "chosen", "ignored"),
    [
        ("", ("a", "b"), ("c",)),
        (", namespaces: [c, d, c]", ("c", "d"), ()),
        (", ignore_namespaces: [a, a]", (), ("a",)),
        (", namespaces: []", (), ()),
        (", ignore_namespaces: []", (), ()),
    ],
)
def test_resource_that_says_where_takes_neither_list_from_all_resources(
    file: Path, own: str, chosen: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    text = f"""
        replicate:
          namespaces: [a, b]
          ignore_namespaces: [c]
          resources: [{_THING[:-1]}{own}}}]
        placement: {{resources: []}}
    """
    replicate = _load(file, text).replicate
    (resource,) = replicate.resources
    assert replicate.namespaces_of(resource) == chosen
    assert replicate.ignored_of(resource) == ignored


@pytest.mark.parametrize(
    ("of_all", "own", "auto"),
    [
        ("all", "", False),
        ("auto", "", True),
        ("auto", ", fields: null", True),
        ("auto", ", fields: all", False),
        ("auto", ", fields: [spec]", False),
        ("all", ", fields: auto", True),
    ],
)
def test_resource_that_says_which_fields_takes_no_word_from_all_resources(
    file: Path,
    of_all: str,
    own: str,
    auto: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    text = f"""
        replicate: {{fields: {of_all}, resources: [{_THING[:-1]}{own}}}]}}
        placement: {{resources: []}}
    """
    settings = _load(file, text)
    assert _load(file, effective(settings)) == settings
    replicate = settings.replicate
    assert replicate.is_auto(replicate.resources[0]) is auto


def test_passwords_in_urls_are_masked(file: Path) -> None:
    text = """
        opa: {url: "https://me:p@ss@opa:8181/x?y"}
        decisions: {url: "https://me:hidden@replicator:9400/v1/decisions"}
        admission: {engine: {url: "http://me:hidden@engine:1"}}
    """
    shown = effective(_load(file, text))
    assert yaml.safe_load(shown)["opa"]["url"] == "https://***@opa:8181/x?y"
    assert yaml.safe_load(shown)["decisions"]["url"] == "https://***@replicator:9400/v1/decisions"
    assert yaml.safe_load(shown)["admission"]["engine"]["url"] == "http://***@engine:1"
    assert "hidden" not in shown


def test_the_designs_own_configuration_is_read_and_shown_without_its_token(file: Path) -> None:
    url = "https://opa:8181/v1/data/io/k8s/federation/annotations"
    settings = _load(file, json.dumps({"EnforceSchedulingPolicy": {"url": url, "token": "s3cret"}}))
    own = settings.enforce_scheduling_policy
    assert (own.url, own.token) == (url, "s3cret")
    shown = effective(settings)
    assert yaml.safe_load(shown)["EnforceSchedulingPolicy"] == {"url": url, "token": "***"}
    assert "s3cret" not in shown


def test_a_complaint_about_the_designs_own_configuration_does_not_tell_its_token(
    file: Path,
) -> None:
    for said in (
        "{token: s3cret}",
        "{url: 'http://a', token: s3cret “}",
        "{url: 1, token: s3cret}",
    ):
        assert "s3cret" not in _complaint(file, f"EnforceSchedulingPolicy: {said}")


def test_all_namespaces_and_one_of_them_is_a_contradiction(file: Path) -> None:
    complaint = _complaint(file, "policies: {labelled: {namespaces: ['*', a]}}")
    assert complaint.startswith("policies.labelled.namespaces:")


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("", ("replicasets",)),
        ("placement: {path: a/b}", ("replicasets",)),
        (f"replicate: {{resources: [{_THING}]}}", ()),
        ("replicate: {resources: []}", ()),
        (
            f"{{replicate: {{resources: [{_THING}]}}, placement: {{resources: [things]}}}}",
            ("things",),
        ),
        (f"replicate: {{resources: [{_THING[:-1]}, as: replicasets}}]}}", ("replicasets",)),
    ],
)
def test_nothing_is_decided_on_where_nobody_says_what_and_replica_sets_are_not_replicated(
    tmp_path: Path, text: str, targets: tuple[str, ...]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_settings(str(file), {}).placement.names == targets


def test_source_knows_what_is_said_and_takes_another_value() -> None:
    source = Source(None, {"KUBE_SYNC_OPA_BINARY": "o"})
    content = b"remediate: {mode: off}"
    said = ("remediate.mode", "remediate", "opa.binary")
    assert [source.names(content, path) for path in said] == [True, True, True]
    unsaid = ("opa.url", "remediate.guard.dwell_seconds", "remediate.mode.x")
    assert [source.names(content, path) for path in unsaid] == [False, False, False]
    other = source.overridden("opa.url", "http://opa:1").load(content)
    assert (other.opa.url, other.opa.binary, other.remediate.mode) == ("http://opa:1", "o", "off")
