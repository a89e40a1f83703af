# The project's own image. `python -m tools.servers project-image` prepares what is copied here
# (build/: wheels after requirements.lock, the project's wheel, the pinned OPA) and builds it, so
# the build itself needs no network and gives the same image everywhere.
ARG BASE_IMAGE=python:3.11-slim-bookworm@sha256:528257d48c1da0dcecc2e725d1ae34498d60c965f1241e39cd6a85a8859bdf84

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INDEX=1 PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=0
RUN python3 -m venv --without-pip /opt/kube-sync && python3 -m venv /opt/pip
COPY requirements.lock /src/
COPY build/wheels /wheels
RUN /opt/pip/bin/pip --python /opt/kube-sync/bin/python3 install --find-links /wheels \
        --require-hashes --no-compile -r /src/requirements.lock
COPY build/project /project
RUN /opt/pip/bin/pip --python /opt/kube-sync/bin/python3 install --no-deps --no-compile \
        /project/*.whl
COPY build/bin/opa /opt/kube-sync/bin/opa
COPY tools/image/assemble.py /src/
# Nothing of the base goes on but what Python itself loads: see there.
RUN python3 /src/assemble.py /opt/kube-sync /rootfs

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
