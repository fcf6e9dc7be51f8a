# JAX on CUDA reserves this share of the 8 GiB that it sees when it starts.
ARG BASE=nvcr.io/nvidia/jax:24.10-py3
FROM ${BASE}
COPY --from=fracgpu:library /usr/lib/libfracgpu.so /usr/lib/
ENV LD_PRELOAD=libfracgpu.so \
    FRACGPU_MEMORY_LIMIT=8GiB \
    XLA_PYTHON_CLIENT_MEM_FRACTION=0.75
CMD ["python3", "-c", "import jax; print(jax.devices()[0].memory_stats())"]
