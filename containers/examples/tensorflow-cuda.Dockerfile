# TensorFlow on CUDA takes nearly all that it sees, which is 8 GiB here, unless it is told to grow.
ARG BASE=tensorflow/tensorflow:2.18.0-gpu
FROM ${BASE}
COPY --from=fracgpu:library /usr/lib/libfracgpu.so /usr/lib/
ENV LD_PRELOAD=libfracgpu.so \
    FRACGPU_MEMORY_LIMIT=8GiB \
    TF_FORCE_GPU_ALLOW_GROWTH=true
CMD ["python", "-c", "import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))"]
