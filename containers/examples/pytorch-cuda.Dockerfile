# PyTorch on CUDA sees a GPU of 8 GiB; what does not fit is its ordinary torch.cuda.OutOfMemoryError.
ARG BASE=pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
FROM ${BASE}
COPY --from=fracgpu:library /usr/lib/libfracgpu.so /usr/lib/
ENV LD_PRELOAD=libfracgpu.so \
    FRACGPU_MEMORY_LIMIT=8GiB
CMD ["python", "-c", "import torch; print(torch.cuda.mem_get_info())"]
