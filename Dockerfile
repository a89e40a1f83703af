# The project's own image: `docker build .` on a machine with Docker and the internet.
#
# Where no registry is reached, `make image` makes the same layers: it passes another base image, and
# the wheels of both locks, downloaded before, which the build then installs without a network.
ARG BASE_IMAGE=python:3.11-slim-bookworm@sha256:528257d48c1da0dcecc2e725d1ae34498d60c965f1241e39cd6a85a8859bdf84
ARG OPA_IMAGE=openpolicyagent/opa:1.22.0-static

FROM ${OPA_IMAGE} AS opa

FROM ${BASE_IMAGE} AS build
# pip reads these: another index (behind a proxy with a certificate of its own, its host as trusted:
# the hashes hold), or none and a folder of wheels (build/wheels lies in /src/wheels).
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=0
RUN python3 -m venv --without-pip /opt/kube-sync && python3 -m venv /opt/pip
WORKDIR /src
COPY requirements.lock requirements-build.lock build* ./
RUN /opt/pip/bin/pip --python /opt/kube-sync/bin/python3 install --require-hashes \
        --only-binary=:all: --no-compile -r requirements.lock \
    && /opt/pip/bin/pip install --require-hashes --only-binary=:all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY kube_sync kube_sync
COPY rego rego
RUN /opt/pip/bin/pip wheel --no-deps --no-build-isolation -w /project . \
    && /opt/pip/bin/pip --python /opt/kube-sync/bin/python3 install --no-index --no-deps \
        --no-compile /project/*.whl
COPY --from=opa /opa /opt/kube-sync/bin/opa
COPY tools/image/assemble.py ./
# Nothing of the base goes on but what Python itself loads: see there.
RUN python3 assemble.py /opt/kube-sync /rootfs

FROM scratch
COPY --from=build /rootfs /
ENV PATH=/opt/kube-sync/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LANG=C.UTF-8
USER 65532:65532
WORKDIR /
# Finds the port of whichever command runs, unless KUBE_SYNC_OBSERVE_LISTEN tells it.
HEALTHCHECK --interval=10s --timeout=8s --start-period=60s CMD ["kube-sync", "healthcheck"]
ENTRYPOINT ["kube-sync"]
# Last, so that a new commit of the same sources makes no new layer.
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="kube-sync" \
      org.opencontainers.image.description="Makes Open Policy Agent the placement brain of a Kubernetes fleet" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
