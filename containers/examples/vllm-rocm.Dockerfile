# vLLM on ROCm plans with 0.9 of the 8 GiB that it sees; the rest is for ROCm itself.
ARG BASE=rocm/vllm:latest
FROM ${BASE}
COPY --from=fracgpu:library /usr/lib/libfracgpu.so /usr/lib/
ENV LD_PRELOAD=libfracgpu.so \
    FRACGPU_MEMORY_LIMIT=8GiB
CMD ["vllm", "serve", "facebook/opt-125m", "--gpu-memory-utilization", "0.9"]
