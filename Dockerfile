# One image for every command: worker, migrate, exporter, console, mcp, enqueue, dlq, purge ...
#
#   docker build --tag redrive:0.2.0 .
#   docker run --rm --env REDRIVE_DATABASE_URL=postgresql://... redrive:0.2.0 queue ls
#
# Your handlers, one of:
#   an image of yours    FROM redrive:0.2.0
#                        COPY --chown=0:0 billing /app/billing     (REDRIVE_HANDLERS=billing.jobs:jobs)
#                        Needs packages?  USER 0, RUN pip install --no-cache-dir ..., USER 65532
#   mounted              docker run --volume ./billing:/app/billing:ro ...; in the chart workers.<name>.handlersConfigMap
#
# Valid for BuildKit and for the classic builder. Both stages must have the same Python at the same path, hence one ARG.
# By digest (of the index of all platforms): a tag can be moved to other contents. Dependabot proposes newer ones.
ARG PYTHON_IMAGE=docker.io/library/python:3.13.14-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8

# Byte code holds a hash of its source, not a time: two builds of one commit are equal. For the same reason, nothing
# else writes byte code.
FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN python3 -m venv --without-pip /opt/redrive && python3 -m venv /opt/build \
    && apt-get update -q && apt-get install -q --yes --no-install-recommends binutils
WORKDIR /src
# sqs: the image can also read SQS, and is 30 MB larger.
ARG REQUIREMENTS=runtime
# Dependencies first: they change less often than the code, so this layer is mostly cached.
COPY requirements/runtime.txt requirements/sqs.txt requirements/build.txt requirements/
RUN /opt/build/bin/pip --python /opt/redrive/bin/python install --no-compile --require-hashes --only-binary=:all: \
        --requirement requirements/${REQUIREMENTS}.txt \
    && /opt/build/bin/pip install --require-hashes --only-binary=:all: --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY sql sql
COPY alerts alerts
COPY service service
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/redrive/bin/python install --no-compile --no-deps /wheels/*.whl \
    # 12 MB that nothing here imports: rich draws tables without pygments and Markdown. Uninstalled, so that pip brings
    # them back with a package of yours that needs them. Then tests and type stubs of packages, and 5 MB of names in
    # compiled code that only a debugger reads.
    && /opt/build/bin/pip --python /opt/redrive/bin/python uninstall --yes \
        pygments markdown-it-py mdurl googleapis-common-protos pycparser \
    && find /opt/redrive/lib/python3*/site-packages -depth \( -path '*/site-packages/*/tests' -o -name benchmarks -o -name '*.pyi' \) \
        -exec rm -r {} + \
    && find /opt/redrive/lib \( -name '_rust*.so' -o -name '_yaml*.so' -o -name 'rpds*.so' \) -exec strip --strip-unneeded {} + \
    && /opt/redrive/bin/redrive --version \
    && /opt/redrive/bin/python -B -m compileall -q -f --invalidation-mode unchecked-hash /opt/redrive/lib

FROM ${PYTHON_IMAGE}
ARG VERSION=0.2.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="redrive" \
      org.opencontainers.image.description="Runs background jobs from Postgres on Kubernetes, and gets the failed ones back to work safely." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# The base image leaves out the standard library's byte code, which every process would compile anew: 9 MB of disk for
# half the CPU of a command, and 5 MiB of each worker.
RUN python3 -B -m compileall -q -f --invalidation-mode unchecked-hash \
    -x '/(site-packages|dist-packages|distutils|ensurepip|idlelib|lib2to3|pydoc_data|test|tkinter|turtledemo|unittest|xmlrpc)/|/(_pydecimal|_pyio|doctest|mailbox|pdb|pydoc|turtle)\.py$' \
    "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')"
COPY --from=build /opt/redrive /opt/redrive
# No byte code is written at run time: the root file system may be read-only. PIP_PYTHON: the pip of the base image
# installs beside redrive, which has no pip of its own.
ENV PIP_PYTHON=/opt/redrive/bin/python
ENV PATH=/opt/redrive/bin:$PATH PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app
# A number, so that Kubernetes can see that it is not root. It has no home and owns nothing.
USER 65532:65532
EXPOSE 9808 9809
STOPSIGNAL SIGTERM
# No shell and no init in between: redrive is process 1, gets SIGTERM itself and waits for its own runners.
ENTRYPOINT ["redrive"]
CMD ["--help"]
