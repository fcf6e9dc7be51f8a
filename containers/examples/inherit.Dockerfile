# Over an image that is capped already: nothing is to be done. The cap can be lowered here and not raised.
ARG BASE=fracgpu:u22-cu12.3-8gb
FROM ${BASE}
ENV FRACGPU_MEMORY_LIMIT=6GiB
CMD ["nvidia-smi"]
