// A program over the real HIP runtime: hip_client LIBRARY. It does the calls that come as lines on
// its input and answers each with a line: the call's result, then what it gave. Prototypes are
// written down by hand, so that one build serves every release, with no newer C library than the
// one it was built with. Things that calls make are kept in numbered places, counted from 0.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct {
  char bytes[64];
} IpcHandle;
typedef struct {
  int bits[4];
  int kind;
} ChannelFormat;

enum { kPlaces = 256, kFloat = 2, kToDevice = 1, kToHost = 2 };

static void* library;
static void* place[kPlaces];
static u64 value[kPlaces];
static int places;
static int version;  // 502 for 5.2

static void* function(const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    printf("-1 %s is not there\n", name);
    exit(3);
  }
  return found;
}
#define CALL(name, ...) ((int (*)(__VA_ARGS__))function(#name))

static int keep(void* pointer, u64 number) {
  place[places] = pointer;
  value[places] = number;
  return places++;
}

static void answer(int result) {
  printf("%d\n", result);
}

// The place of what was made, if the call went well.
static void answer_place(int result, void* made, u64 number) {
  if (result == 0 && made != NULL)
    printf("0 %d\n", keep(made, number));
  else
    printf("%d\n", result);
}

// hipMemAllocationProp, whose fields moved after 5.2.
static void fill_properties(int properties[8]) {
  memset(properties, 0, 8 * sizeof(int));
  if (version < 503) {
    properties[1] = 1;  // location: a device, number 0
    properties[4] = 1;  // pinned
  } else {
    properties[0] = 1;                      // pinned
    properties[1] = version < 600 ? 0 : 1;  // to be exported as a descriptor, where that can be
    properties[2] = 1;                      // location: a device, number 0
  }
}

static void roundtrip(void* device, u64 bytes) {
  char* out = malloc(bytes);
  char* in = calloc(1, bytes);
  for (u64 i = 0; i < bytes; ++i) out[i] = (char)(i * 7 + 1);
  int result = CALL(hipMemcpy, void*, const void*, size_t, int)(device, out, bytes, kToDevice);
  if (result == 0)
    result = CALL(hipMemcpy, void*, const void*, size_t, int)(in, device, bytes, kToHost);
  printf("%d %d\n", result, memcmp(in, out, bytes) == 0);
  free(out);
  free(in);
}

static void memory(const char* word, u64 a, u64 b) {
  void* made = NULL;
  size_t first = 0, second = 0;
  if (strcmp(word, "malloc") == 0) {
    int result = CALL(hipMalloc, void**, size_t)(&made, a);
    answer_place(result, made, a);
  } else if (strcmp(word, "free") == 0) {
    answer(CALL(hipFree, void*)(place[a]));
  } else if (strcmp(word, "info") == 0) {
    int result = CALL(hipMemGetInfo, size_t*, size_t*)(&first, &second);
    printf("%d %zu %zu\n", result, first, second);
  } else if (strcmp(word, "managed") == 0) {
    int result = CALL(hipMallocManaged, void**, size_t, unsigned)(&made, a, 1);
    answer_place(result, made, a);
  } else if (strcmp(word, "host") == 0) {
    int result = CALL(hipHostMalloc, void**, size_t, unsigned)(&made, a, 0);
    answer_place(result, made, a);
  } else if (strcmp(word, "pitch") == 0) {
    int result = CALL(hipMallocPitch, void**, size_t*, size_t, size_t)(&made, &first, a, b);
    printf("%d %d %zu\n", result, result == 0 ? keep(made, a) : -1, first);
  } else if (strcmp(word, "array") == 0) {
    ChannelFormat format = {{32, 0, 0, 0}, kFloat};
    int result = CALL(hipMallocArray, void**, const ChannelFormat*, size_t, size_t, unsigned)(
        &made, &format, a, b, 0);
    answer_place(result, made, a);
  } else if (strcmp(word, "freearray") == 0) {
    answer(CALL(hipFreeArray, void*)(place[a]));
  } else if (strcmp(word, "roundtrip") == 0) {
    roundtrip(place[a], b);
  } else if (strcmp(word, "getipc") == 0) {
    IpcHandle handle;
    int result = CALL(hipIpcGetMemHandle, IpcHandle*, void*)(&handle, place[a]);
    printf("%d ", result);
    for (int i = 0; i < 64; ++i) printf("%02x", (unsigned char)handle.bytes[i]);
    printf("\n");
  } else if (strcmp(word, "closeipc") == 0) {
    answer(CALL(hipIpcCloseMemHandle, void*)(place[a]));
  } else {
    printf("-1 %s is no call\n", word);
  }
}

static void open_ipc(const char* digits) {
  IpcHandle handle;
  for (int i = 0; i < 64; ++i) {
    unsigned byte = 0;
    sscanf(digits + 2 * i, "%2x", &byte);
    handle.bytes[i] = (char)byte;
  }
  void* made = NULL;
  // Before 6.0 the only flag there is was 0.
  unsigned flags = version < 600 ? 0 : 1;
  int result = CALL(hipIpcOpenMemHandle, void**, IpcHandle, unsigned)(&made, handle, flags);
  answer_place(result, made, 0);
}

// Handles and addresses are kept in one place each; a handle's value is its size.
static void virtual_memory(const char* word, u64 a, u64 b) {
  int properties[8];
  fill_properties(properties);
  void* made = NULL;
  if (strcmp(word, "vmm-create") == 0) {
    int result = CALL(hipMemCreate, void**, size_t, const int*, u64)(&made, a, properties, 0);
    answer_place(result, made, a);
  } else if (strcmp(word, "vmm-release") == 0) {
    answer(CALL(hipMemRelease, void*)(place[a]));
  } else if (strcmp(word, "vmm-reserve") == 0) {
    int result =
        CALL(hipMemAddressReserve, void**, size_t, size_t, void*, u64)(&made, a, 0, NULL, 0);
    answer_place(result, made, a);
  } else if (strcmp(word, "vmm-unreserve") == 0) {
    answer(CALL(hipMemAddressFree, void*, size_t)(place[a], value[a]));
  } else if (strcmp(word, "vmm-map") == 0) {
    answer(CALL(hipMemMap, void*, size_t, size_t, void*, u64)(place[a], value[b], 0, place[b], 0));
  } else if (strcmp(word, "vmm-access") == 0) {
    int description[3] = {1, 0, 3};  // device 0 reads and writes
    answer(CALL(hipMemSetAccess, void*, size_t, const int*, size_t)(place[a], b, description, 1));
  } else if (strcmp(word, "vmm-unmap") == 0) {
    answer(CALL(hipMemUnmap, void*, size_t)(place[a], b));
  } else if (strcmp(word, "vmm-granularity") == 0) {
    size_t bytes = 0;
    int result =
        CALL(hipMemGetAllocationGranularity, size_t*, const int*, int)(&bytes, properties, 0);
    printf("%d %zu\n", result, bytes);
  } else {
    printf("-1 %s is no call\n", word);
  }
}

static void streams(const char* word, u64 a, u64 b) {
  void* made = NULL;
  if (strcmp(word, "stream-create") == 0) {
    int result = CALL(hipStreamCreate, void**)(&made);
    answer_place(result, made, 0);
  } else if (strcmp(word, "stream-destroy") == 0) {
    answer(CALL(hipStreamDestroy, void*)(place[a]));
  } else if (strcmp(word, "stream-sync") == 0) {
    answer(CALL(hipStreamSynchronize, void*)(place[a]));
  } else if (strcmp(word, "stream-event") == 0) {
    int result = CALL(hipEventCreate, void**)(&made);
    if (result == 0) result = CALL(hipEventRecord, void*, void*)(made, place[a]);
    if (result == 0) result = CALL(hipEventSynchronize, void*)(made);
    if (result == 0) result = CALL(hipEventDestroy, void*)(made);
    answer(result);
  } else if (strcmp(word, "stream-malloc") == 0) {
    int result = CALL(hipMallocAsync, void**, size_t, void*)(&made, b, place[a]);
    answer_place(result, made, b);
  } else if (strcmp(word, "stream-free") == 0) {
    answer(CALL(hipFreeAsync, void*, void*)(place[b], place[a]));
  } else if (strcmp(word, "stream-memset") == 0) {
    answer(CALL(hipMemsetAsync, void*, int, size_t, void*)(place[b], 1, value[b], place[a]));
  } else {
    printf("-1 %s is no call\n", word);
  }
}

// Allocates in a child that was forked from a process with the runtime in use, and ends it as
// programs end: what it says is the child's result and its status.
static void fork_and_malloc(u64 bytes) {
  int ends[2], result = -1, status = -1;
  if (pipe(ends) != 0) exit(3);
  pid_t child = fork();
  if (child == 0) {
    void* made = NULL;
    result = CALL(hipMalloc, void**, size_t)(&made, bytes);
    exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  if (read(ends[0], &result, sizeof result) != sizeof result) result = -1;
  waitpid(child, &status, 0);
  close(ends[0]);
  close(ends[1]);
  printf("%d %d\n", result, status);
}

static void device(const char* word, u64 a) {
  int count = 0;
  if (strcmp(word, "device-count") == 0) {
    int result = CALL(hipGetDeviceCount, int*)(&count);
    printf("%d %d\n", result, count);
  } else if (strcmp(word, "device-set") == 0) {
    answer(CALL(hipSetDevice, int)((int)a));
  } else if (strcmp(word, "device-sync") == 0) {
    answer(CALL(hipDeviceSynchronize, void)());
  } else if (strcmp(word, "device-total") == 0) {
    size_t bytes = 0;
    int result = CALL(hipDeviceTotalMem, size_t*, int)(&bytes, (int)a);
    printf("%d %zu\n", result, bytes);
  } else if (strcmp(word, "device-bus") == 0) {
    char text[64] = "";
    int result = CALL(hipDeviceGetPCIBusId, char*, int, int)(text, sizeof text, (int)a);
    printf("%d %s\n", result, text);
  } else if (strcmp(word, "device-uuid") == 0) {
    char text[17] = "";
    int result = CALL(hipDeviceGetUuid, char*, int)(text, (int)a);
    printf("%d %s\n", result, text);
  } else if (strcmp(word, "device-properties") == 0) {
    // hipDeviceProp_t of the plain symbol, in the oldest layout.
    static char properties[4096];
    int result = CALL(hipGetDeviceProperties, void*, int)(properties, (int)a);
    size_t bytes = 0;
    memcpy(&bytes, properties + 256, sizeof bytes);
    printf("%d %zu %.31s %s\n", result, bytes, properties + 396, properties);
  } else {
    printf("-1 %s is no call\n", word);
  }
}

int main(int count, char** arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  library = dlopen(count > 1 ? arguments[1] : "libamdhip64.so.5", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  char line[512], word[32], text[256];
  while (places < kPlaces && fgets(line, sizeof line, stdin) != NULL) {
    u64 a = 0, b = 0;
    word[0] = text[0] = '\0';
    sscanf(line, "%31s %llu %llu", word, &a, &b);
    sscanf(line, "%*s %255s", text);
    if (strcmp(word, "init") == 0) {
      int result = CALL(hipInit, unsigned)(0), number = 0;
      if (result == 0) result = CALL(hipRuntimeGetVersion, int*)(&number);
      version = number / 100000;
      printf("%d %d\n", result, version);
    } else if (strncmp(word, "vmm-", 4) == 0) {
      virtual_memory(word, a, b);
    } else if (strncmp(word, "stream-", 7) == 0) {
      streams(word, a, b);
    } else if (strncmp(word, "device-", 7) == 0) {
      device(word, a);
    } else if (strcmp(word, "fork-malloc") == 0) {
      fork_and_malloc(a);
    } else if (strcmp(word, "openipc") == 0) {
      open_ipc(text);
    } else {
      memory(word, a, b);
    }
  }
  return 0;
}
