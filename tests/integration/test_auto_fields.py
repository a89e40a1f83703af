"""The policies say which fields go into OPA, on a real API server and a real OPA."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_pair import eventually
from tests.integration.test_selection import data
from tools.demo.components import start_service
from tools.servers.http import get, request
from tools.servers.secured_opa import RunningOpa
from tools.servers.stack import RunningStack

LABELS = """
package io.k8s.federation.admission

annotations["team"] := input.metadata.labels.team
annotations["maps"] := concat(",", sort([m.data.zone |
	some m in data.kubernetes.configmaps[input.metadata.namespace]
	m.data.zone
]))
"""
MORE = LABELS + '\nannotations["image"] := input.spec.template.spec.containers[_].image\n'
MORE += '\nannotations["size"] := concat(",", [m.data.size | some m in data.kubernetes.configmaps[_]])\n'
MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
SETS = {"group": "apps", "version": "v1", "resource": "replicasets"}
