// Requests to RM as NVIDIA's libraries make them, by the stub of such a library.
//
// Each structure lies in a block of the heap of exactly its size, so that an address sanitizer
// finds what reads or writes beyond it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>

#include "tests/clients/rm/abi.h"

namespace rm {

// Opens the stub and RM. False if that fails.
bool start_requests();

int request_of_stub(unsigned long request, void* argument);

// RM's status, or kNotServed if the ioctl returned -1.
inline constexpr uint32_t kNotServed = ~0u;

template <typename Request>
uint32_t send(uint8_t escape, Request& wanted) {
  const auto block = std::make_unique<Request>(wanted);
  const int result = request_of_stub(request(escape, sizeof wanted), block.get());
  wanted = *block;
  return result == 0 ? wanted.status : kNotServed;
}

// The forms in which memory can be requested.
enum class Form { nvos21, nvos64_before_535, nvos64, nvos32 };
inline constexpr int kForms = 4;

struct Wanted {
  uint32_t client = 0, parent = 0, object = 0, object_class = 0;
  Form form = Form::nvos64;
  uint32_t parameters_size = 0;  // as the request says
  uint32_t flags = 0;
};
// kAlloc. RM chooses `object` if it is 0, and writes it.
uint32_t allocate(Wanted& wanted, void* parameters);

uint32_t make_client(uint32_t& client);
// `number` < 0: without parameters, which means the first device.
uint32_t make_device(uint32_t client, int number, uint32_t& device, Form form = Form::nvos64);
uint32_t make_subdevice(uint32_t client, uint32_t device, uint32_t& subdevice,
                        Form form = Form::nvos64);

struct Memory {
  Form form = Form::nvos64;
  uint32_t object_class = kLocalMemory;
  uint64_t size = 0;
  uint32_t attributes = 0, flags = 0;
  uint32_t parameters_size = sizeof(MemoryParameters);
};
uint32_t make_memory(uint32_t client, uint32_t parent, uint32_t& object, const Memory& memory);

uint32_t free_object(uint32_t client, uint32_t object);
uint32_t free_by_heap(uint32_t client, uint32_t device, uint32_t object);

// One value of the memory's description, in either form of the control.
uint32_t ask_fb(uint32_t client, uint32_t subdevice, bool second_form, uint32_t index,
                uint32_t& kib);
// The last address of the device's memory.
uint32_t ask_limit(uint32_t client, uint32_t device, uint64_t& limit);

// A request that no library should make.
void make_hostile_request(std::mt19937_64& random, uint32_t client, uint32_t device,
                          uint32_t subdevice);

}  // namespace rm
