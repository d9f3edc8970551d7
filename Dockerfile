# One image for the operator, the proxy, the preflight and the command line.
#   BASE   any image with Python 3.11 or later as `python3`, its venv module, and CA certificates
#   BUILD  the same with a C compiler and Python's headers: what a request passes in the proxy is compiled
# A private package index or certificate authority comes as build secrets, which stay out of the image:
#   --secret id=pip,src=pip.conf --secret id=ca,src=ca-certificates.crt
ARG BASE=python:3.11-slim-bookworm
ARG BUILD=python:3.11-bookworm

FROM ${BUILD} AS build
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    python3 -m venv /build && python3 -m venv --without-pip /opt/epd \
    && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/runtime.txt \
    && /build/bin/pip --python /opt/epd/bin/python install --no-cache-dir --no-compile --require-hashes -r requirements/runtime.txt \
    && /opt/epd/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/epd

FROM build AS code
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
# --prefix: the code lies in a layer of its own, so that a change of it leaves the dependencies' layer alone
RUN HATCH_BUILD_HOOK_ENABLE_MYPYC=1 /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /build/bin/pip --python /opt/epd/bin/python install --no-compile --no-deps --no-index --prefix /app /wheel/*.whl \
    && /opt/epd/bin/python -m compileall -q --invalidation-mode unchecked-hash /app

FROM ${BASE}
COPY --from=build /opt/epd /opt/epd
COPY --from=code /app /opt/epd
# USER: kopf asks for the user's name (kopf/_core/engines/peering.py), and a uid chosen by the platform has none
ENV PATH=/opt/epd/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp USER=epd PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["epd-operator"]
