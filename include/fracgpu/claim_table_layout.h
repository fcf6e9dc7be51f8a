// The claim table's layout: the bytes of `/dev/shm/fracgpu.book`.
//
// One file per machine records which launch has which share of which GPU, and which launches wait.
// Other tools may read it: check `magic`, `version` and `file_bytes`. A row counts only while its
// launch lives: while a process holds a lock on the row's byte, or a process of the launch's tenant
// has a slot in the tenant's ledger. Rows are written as a whole, and only under the table's lock.
//
// Shares of a GPU are counted in eighths, also called parts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fracgpu/ledger_layout.h"

namespace fracgpu::claim_table_layout {

inline constexpr char kPath[] = "/dev/shm/fracgpu.book";
inline constexpr uint64_t kMagic = 0x314b4f4f42434152;  // "RACBOOK1" in memory
// Version of the layout and of the protocol. Programs with different versions must not share a
// file.
inline constexpr uint32_t kVersion = 2;

inline constexpr uint32_t kEighths = 8;  // of one GPU
inline constexpr uint32_t kMaxGpus = 64;
inline constexpr uint32_t kMaxClaims = 2048;

// Written once, before the file gets its name; never changes afterwards.
struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t file_bytes;
  uint32_t max_gpus;
  uint32_t max_claims;
  uint32_t eighths;
  uint32_t reserved;
  uint64_t created_unix_s;
  uint64_t reserved_too[3];
};
static_assert(sizeof(Header) == 64);

// The state beside the rows.
struct Counters {
  uint64_t next_ticket;    // of the next launch
  uint64_t scheduled_ms;   // since boot: last pass over the waiting launches
  uint32_t claims_in_use;  // no row from this one on was ever used
  uint32_t reserved[11];
};
static_assert(sizeof(Counters) == 64);

// A GPU that a launch asked for. A row is used again only when no launch has or awaits its GPU.
struct Gpu {
  char key[layout::kNameBytes];  // as in the ledger; empty: row unused
};
static_assert(sizeof(Gpu) == 64);

// Abandoned: the launch has ended, and the MIG instance that was made for it still exists. The row
// keeps its place until a process with the permission has destroyed the instance. That process
// holds a lock on the row's byte meanwhile.
enum class State : uint32_t { free = 0, waiting = 1, held = 2, abandoned = 3 };

// What a launch requests of a GPU in MIG mode: nothing, or an instance of at least so many MiB, of
// at least so many eighths of the GPU, or of a named profile.
enum class MigWish : uint8_t { none = 0, memory = 1, share = 2, profile = 3 };

// The state of a MIG instance: promised to the launch, then made. A place is a range of memory
// slices.
enum class MigPhase : uint8_t { none = 0, promised = 1, made = 2 };
struct MigGrant {
  uint8_t gpu;  // row of `gpus`
  uint8_t start, slices;
  MigPhase phase;
  uint32_t profile;   // as NVML numbers them
  uint32_t instance;  // the GPU instance's number, once it is made
  uint32_t reserved;
};
static_assert(sizeof(MigGrant) == 16);

// A launch, with what it has or waits for.
struct Claim {
  State state;
  uint32_t pid;  // of `fracgpu run`, in its own PID namespace
  uint32_t uid;
  int32_t priority;  // higher is served first, then older
  uint64_t ticket;   // grows from launch to launch; no two launches have the same
  uint64_t since_unix_s;
  // The request: `each` parts on `count` of the GPUs in the bit set `allowed`. With `count` 0, the
  // request is exactly `eighths`.
  uint64_t allowed;
  uint32_t each;
  uint32_t count;
  uint8_t eighths[kMaxGpus];  // of each row of `gpus`: what the launch has, or requests exactly
  char tenant[layout::kNameBytes];
  char command[32];
  char asked[240];  // caps and GPUs in a canonical form, to compare the requests of two launches
  // A waiting launch renews this time again and again. A stopped launch must not keep others
  // waiting: it loses what it was given and has not taken. 0: an older program, which does not
  // renew it.
  uint64_t seen_ms;      // since boot
  uint32_t taken;        // 1: the launch knows that it has its share
  uint32_t mig_amount;   // MiB or eighths, depending on mig_wish
  uint64_t mig_allowed;  // bits of `gpus` in MIG mode that may serve it, in addition to `allowed`
  char mig_profile[15];  // profile name, such as "2g.20gb"
  MigWish mig_wish;
  MigGrant mig;
  uint64_t reserved;
};
static_assert(sizeof(Claim) == 512);
static_assert(offsetof(Claim, eighths) == 48);

struct ClaimTable {
  Header header;
  Counters counters;
  Gpu gpus[kMaxGpus];
  uint8_t padding[4096 - 128];  // so that no row of `claims` lies on two pages
  Claim claims[kMaxClaims];
};
static_assert(offsetof(ClaimTable, gpus) == 128);
static_assert(offsetof(ClaimTable, claims) == 8192);
static_assert(sizeof(ClaimTable) == 8192 + 512 * kMaxClaims);

// Bytes of the file that carry locks, past its end.
inline constexpr int64_t kClaimTableLock = 0x40000000;  // held while rows change
constexpr int64_t claim_lock(uint32_t row) {
  return kClaimTableLock + 1 + row;
}
// Held while instances of this GPU are made or destroyed, which takes seconds.
constexpr int64_t mig_lock(uint32_t gpu) {
  return claim_lock(kMaxClaims) + gpu;
}

}  // namespace fracgpu::claim_table_layout
