# NVIDIA's base image of a CUDA on an Ubuntu that it was not published for. The driver comes from the host, as ever.
ARG UBUNTU=ubuntu:24.04
ARG CUDA=nvidia/cuda:12.3.2-base-ubuntu22.04

FROM ${CUDA} AS cuda

FROM ${UBUNTU}
COPY --from=cuda /usr/local/ /usr/local/
RUN for folder in /usr/local/nvidia/lib /usr/local/nvidia/lib64 /usr/local/cuda/lib64; do echo "$folder"; done \
      >/etc/ld.so.conf.d/cuda.conf && ldconfig
ENV PATH=/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
