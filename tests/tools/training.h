// A made-up program that allocates as a training does, on a made-up clock: steps of threads that
// allocate at the same places again and again, and release most of it soon.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "tools/recording/writer.h"

namespace fracgpu::tests {

class Training {
 public:
  explicit Training(recording::Writer& writer, uint32_t seed = 1, uint32_t sites = 400)
      : writer_(writer), random_(seed) {
    using recording::kNone;
    process_ = writer.add_process({100, 4711, "trainer", 0});
    device_ = writer.add_device({"GPU-1", "GPU 0 (Made-up 80GB)", 80ULL << 30, 64ULL << 30});
    const uint32_t module = writer.add_module({"/usr/bin/trainer", "00ff"});
    allocate_ = writer.add_text("cuMemAlloc_v2");
    free_ = writer.add_text("cuMemFree_v2");
    for (uint32_t i = 0; i < sites; ++i) {
      recording::Stack stack;
      for (uint32_t depth = 0; depth < 16; ++depth) {
        stack.push_back({module, 0x1000ULL * depth + (depth < 4 ? i * 16 : i % 7 * 16), 0});
      }
      // From 512 bytes to 128 MiB, each size as likely as its double.
      const uint64_t bytes = (512ULL << random_() % 18) + random_() % 8 * 256;
      sites_.push_back({writer.add_stack(stack), bytes});
    }
  }

  // Adds so many events; allocations and releases in equal parts, but for what lives at the end.
  void run(uint64_t events) {
    for (uint64_t i = 0; i < events; ++i) {
      const uint32_t thread = static_cast<uint32_t>(random_() % kThreads);
      auto& living = living_[thread];
      now_ns_ += 500 + random_() % 4096 * (random_() % 16);
      if (living.size() < 8 || (living.size() < 256 && random_() % 2 == 0)) {
        allocate(thread, living);
      } else {
        release(thread, living);
      }
    }
  }

  uint64_t now_ns() const { return now_ns_; }
  uint32_t process() const { return process_; }
  uint32_t device() const { return device_; }

 private:
  static constexpr uint32_t kThreads = 4;
  struct Site {
    uint32_t stack;
    uint64_t bytes;
  };

  void allocate(uint32_t thread, std::vector<recording::Event>& living) {
    // Some places are busier than others.
    const Site& site = sites_[std::min(random_() % sites_.size(), random_() % sites_.size())];
    recording::Event event;
    event.type = recording::EventType::allocated;
    event.process = process_;
    event.device = device_;
    event.thread = 1000 + thread;
    event.api = allocate_;
    event.stack = site.stack;
    event.bytes = site.bytes;
    event.taken = (site.bytes + 511) / 512 * 512;
    // As a driver does: what was freed last is given again.
    auto& freed = freed_[event.taken];
    if (freed.empty()) {
      event.address = next_address_;
      next_address_ += (event.taken + (2 << 20) - 1) >> 21 << 21;
    } else {
      event.address = freed.back();
      freed.pop_back();
    }
    event.time_ns = now_ns_;
    writer_.add(event);
    living.push_back(event);
  }

  void release(uint32_t thread, std::vector<recording::Event>& living) {
    // The last ones are released first, as a rule.
    const size_t back = std::min<size_t>(random_() % living.size(), random_() % 16);
    const auto which = living.end() - 1 - static_cast<ptrdiff_t>(back);
    recording::Event event = *which;
    living.erase(which);
    freed_[event.taken].push_back(event.address);
    event.type = recording::EventType::released;
    event.thread = 1000 + thread;
    event.api = free_;
    event.time_ns = now_ns_;
    writer_.add(event);
  }

  recording::Writer& writer_;
  std::mt19937 random_;
  uint32_t process_, device_, allocate_, free_;
  std::vector<Site> sites_;
  std::vector<recording::Event> living_[kThreads];
  std::map<uint64_t, std::vector<uint64_t>> freed_;
  uint64_t next_address_ = 0x7f0000000000, now_ns_ = 0;
};

}  // namespace fracgpu::tests
