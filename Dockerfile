# The project's own image. `python -m tools.servers project-image` prepares what is copied here
# (build/: wheels after requirements.lock, the project's wheel, the pinned OPA) and builds it, so
# the build itself needs no network and gives the same image everywhere.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INDEX=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/kube-sync
COPY requirements.lock /src/
COPY build/wheels /wheels
RUN /opt/kube-sync/bin/pip install --find-links /wheels --require-hashes --no-compile \
        -r /src/requirements.lock
COPY build/project /project
# Compiled here and never checked again: the image runs with a read-only root.
RUN /opt/kube-sync/bin/pip install --no-deps --no-compile /project/*.whl \
    && /opt/kube-sync/bin/pip uninstall --yes --quiet pip setuptools \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kube-sync/lib

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="kube-sync" \
      org.opencontainers.image.description="Makes Open Policy Agent the placement brain of a Kubernetes fleet" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/kube-sync/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LANG=C.UTF-8
COPY build/bin/opa /usr/local/bin/opa
COPY --from=build /opt/kube-sync /opt/kube-sync
USER 65532:65532
WORKDIR /
# Of `replicate`; whoever runs another command names that one's port.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["kube-sync", "healthcheck", "--url", "http://127.0.0.1:9401/readyz"]
ENTRYPOINT ["kube-sync"]
