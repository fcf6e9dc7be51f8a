// The structures of arrays, sparse arrays and external memory, in the simulator's own words.
// Sizes and numbers are those of the vendor's headers; fields that nothing here reads are kept only
// for their place.
#pragma once

#include "sim/cuda/abi.h"

enum : unsigned {
  CUDA_ARRAY3D_LAYERED = 0x01,
  CUDA_ARRAY3D_SURFACE_LDST = 0x02,
  CUDA_ARRAY3D_CUBEMAP = 0x04,
  CUDA_ARRAY3D_SPARSE = 0x40,
  CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
  kKnownArrayFlags = 0x1ff,
};

struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned Width, Height;
  int Format;
  unsigned NumChannels;
};
struct CUDA_ARRAY_DESCRIPTOR {
  size_t Width, Height;
  int Format;
  unsigned NumChannels;
};
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24);

struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned Width, Height, Depth;
  int Format;
  unsigned NumChannels, Flags;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t Width, Height, Depth;
  int Format;
  unsigned NumChannels, Flags;
};
static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40);

struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  size_t size;
  size_t alignment;
  unsigned reserved[4];
};
static_assert(sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS) == 32);

struct CUDA_ARRAY_SPARSE_PROPERTIES {
  struct {
    unsigned width, height, depth;
  } tileExtent;
  unsigned miptailFirstLevel;
  unsigned long long miptailSize;
  unsigned flags;
  unsigned reserved[4];
};
static_assert(sizeof(CUDA_ARRAY_SPARSE_PROPERTIES) == 48);

struct CUarrayMapInfo {
  int resourceType;  // 0: array, 1: mipmapped array
  union {
    CUmipmappedArray mipmap;
    CUarray array;
  } resource;
  int subresourceType;  // 0: part of a level, 1: part of the mip tail
  union {
    struct {
      unsigned level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
    } sparseLevel;
    struct {
      unsigned layer;
      unsigned long long offset, size;
    } miptail;
  } subresource;
  int memOperationType;  // 1: map, 2: unmap
  int memHandleType;
  union {
    CUmemGenericAllocationHandle memHandle;
  } memHandle;
  unsigned long long offset;
  unsigned deviceBitMask;
  unsigned flags;
  unsigned reserved[2];
};
static_assert(sizeof(CUarrayMapInfo) == 96);

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;  // 1: opaque file descriptor
  union {
    int fd;
    void* win32[2];
  } handle;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104);

struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
  unsigned long long offset, size;
  unsigned flags;
  unsigned reserved[16];
};
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) == 88);

struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
  unsigned long long offset;
  CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
  unsigned numLevels;
  unsigned reserved[16];
};
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) == 120);
