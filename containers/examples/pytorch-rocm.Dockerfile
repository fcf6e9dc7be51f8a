# PyTorch on ROCm sees a GPU of 8 GiB; what does not fit is its ordinary torch.OutOfMemoryError.
ARG BASE=rocm/pytorch:latest
FROM ${BASE}
COPY --from=fracgpu:library /usr/lib/libfracgpu.so /usr/lib/
ENV LD_PRELOAD=libfracgpu.so \
    FRACGPU_MEMORY_LIMIT=8GiB
CMD ["python", "-c", "import torch; print(torch.cuda.mem_get_info())"]
