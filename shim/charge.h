// Charging: the one way in which a hook takes and gives back device memory.
//
// Reserve, then call the driver, then keep or roll back. A hook knows its vendor's API and this
// header; it knows nothing of shared memory. The amounts are what becomes physical, rounded as
// the driver rounds, so that the ledger and the driver agree.
#pragma once

#include <cstdint>

#include "shim/process.h"

namespace fracgpu {

// Room under the cap, taken before the driver is called.
class Reservation {
 public:
  // Reserves `units` on the device row for the function `api`. When the cap has no room,
  // says so on stderr (rate-limited) and is false.
  Reservation(Process& process, int row, uint64_t units, const char* api);

  // What was not kept is given back.
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  explicit operator bool() const { return granted_; }

  // The driver took `units` of the reservation; the rest is given back now.
  void keep(uint64_t units);

 private:
  Process& process_;
  int row_;
  uint64_t units_;
  bool granted_ = false;
};

// Physical form of one linear allocation, as NVIDIA's driver makes it.
struct LinearSize {
  uint64_t units;  // to reserve
  bool shares_chunk;
};

// Pages of the driver: requests of 1 MiB and more get whole ones, smaller ones share a chunk of
// one page. (Public behaviour; cuMemGetInfo moves in these steps.)
inline constexpr uint64_t kPageBytes = 2u << 20;
inline constexpr uint64_t kSmallestWhole = 1u << 20;

LinearSize linear_size(uint64_t bytes);

// Keys of Process::allocations. Addresses are even, so the lowest bit tells chunks apart.
constexpr uint64_t chunk_key(uint64_t address) {
  return (address & ~(kPageBytes - 1)) | 1;
}

// Enters the allocation that `reservation` made room for. False when the host has no memory left
// to remember it; the caller must then undo the driver's call.
bool record_linear(Process& process, Reservation& reservation, const Context& context,
                   uint64_t address, const LinearSize& size);

// What a free is about to give back. A whole allocation is taken before the driver is called,
// since afterwards the driver may hand the same address to another thread; a part of a chunk is
// counted until the driver is done, since until then the chunk stays.
class Release {
 public:
  Release(Process& process, uint64_t address);
  // The driver freed it: give back the charge. Without this call the entry is put back.
  void done();
  ~Release();
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

 private:
  bool in_chunk() const { return (taken_.key & 1) != 0; }

  Process& process_;
  Allocation taken_;
  bool found_;
  bool done_ = false;
};

// Gives back everything that was allocated in a context that the driver has destroyed.
void release_context(Process& process, const Context& context);

// Memory of a context that is being made: reserved by the size that the last one had (or by an
// estimate), and set right from the truth afterwards.
class ContextReservation {
 public:
  ContextReservation(Process& process, int row, const char* api);
  ~ContextReservation();
  ContextReservation(const ContextReservation&) = delete;
  ContextReservation& operator=(const ContextReservation&) = delete;

  explicit operator bool() const { return granted_; }

  // The driver made the context. False when its true size does not fit under the cap: the caller
  // must destroy it and then call settle_after_destroy.
  bool made();

 private:
  Process& process_;
  int row_;
  const char* api_;
  uint64_t units_ = 0;
  bool granted_ = false;
};

// Reads the truth again if it is some time since the last reading or that one was not to be
// believed. True when the implicit memory turned out to be less than what was charged.
bool refresh_implicit(Process& process, int row);

// The driver destroyed a context: bring the implicit memory down to what is left.
void settle_after_destroy(Process& process, int row);

// Says why an allocation was refused, unless too much was said lately.
void say_refusal(Process& process, int row, const char* api, const Refusal& refusal);
void say_fault(Process& process, const char* api);

}  // namespace fracgpu
