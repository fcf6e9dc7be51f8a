// Judges a ledger after an interruption; see world.h.
#include "tests/fault/world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace fracgpu::fault {
namespace {

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

bool World::join(Ledger& ledger, int& device) {
  Message error;
  if (!ledger.join(tenant_.name(), identity_, nullptr, error)) return false;
  device = ledger.device(kKey, kCap * layout::kUnit, 1ull << 40, error);
  return device >= 0;
}

void World::settle(uint64_t survivor_holds) {
  survivor_.emplace();
  Refusal refusal;
  holds_ = survivor_holds;
  if (!join(*survivor_, device_) || !survivor_->reserve(device_, holds_, refusal)) _exit(99);
}

void World::crowd(uint32_t slots) {
  for (uint32_t i = 0; i < slots; ++i) {
    int device = -1;
    crowd_.push_back(std::make_unique<Ledger>());
    if (!join(*crowd_.back(), device)) _exit(99);
  }
}

void World::die(int slots, const std::function<void(Ledger&, int)>& body) {
  const pid_t child = fork();
  if (child == 0) {
    // All at once: a second one would reap the first.
    std::vector<std::unique_ptr<Ledger>> ledgers;
    for (int i = 0; i < slots; ++i) {
      int device = -1;
      ledgers.push_back(std::make_unique<Ledger>());
      if (!join(*ledgers.back(), device)) _exit(1);
      body(*ledgers.back(), device);
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

bool World::victim_joins() {
  return join(*victim_, device_);
}

World::Claims World::claims() const {
  const layout::Ledger& map = *survivor_->map();
  const int fd = open(tenant_.path().c_str(), O_RDWR | O_CLOEXEC);
  Claims claims;
  layout::for_each_live(map, [&](uint32_t slot) {
    const uint64_t word = map.cells[device_][slot].held_and_lease.load();
    if (!LedgerFile::slot_is_alive(fd, slot)) {
      claims.dead += layout::held_of(word);
      return;
    }
    claims.living += layout::claim_of(word);
    claims.unspent = claims.unspent || layout::lease_of(word) > layout::held_of(word);
  });
  close(fd);
  return claims;
}

std::string World::judge_leases() const {
  const Claims now = claims();
  const uint64_t cap = survivor_->cap(device_);
  if (now.living <= cap || !now.unspent) return {};
  return fmt::format("the living claim {} of {} units and may take more unasked", now.living, cap);
}

// What must be true whenever nobody is inside an operation.
std::string World::judge_books(bool reaped, uint64_t orphaned) const {
  if (std::string wrong = judge_leases(); !wrong.empty()) return wrong;
  const Claims now = claims();
  const uint64_t cap = survivor_->cap(device_);
  // Only a lowered cap may be below what is held.
  if (now.living > std::max(cap, holds_)) {
    return fmt::format("the living claim {} units, above the cap of {}", now.living, cap);
  }
  if (reaped && now.dead != orphaned)
    return fmt::format("{} units are still charged to the dead", now.dead);
  return {};
}

// Whatever was done to the victim, its record is whole or none, and the survivor's comes after it.
std::string World::judge_records() const {
  const layout::Ledger& map = *survivor_->map();
  survivor_->record(device_, kRefusedApi, {.asked = 7});
  uint64_t last = 0, asked = 0;
  layout::RefusalRecord record;
  for (const auto& place : map.refused) {
    if (!layout::read_refusal(place, record)) continue;
    if (strcmp(record.api, kRefusedApi) != 0 || strcmp(record.key, kKey) != 0 ||
        (record.asked != 7 && record.asked != kCap)) {
      return "a refusal was recorded that never was";
    }
    if (record.number > last) asked = record.asked;
    last = std::max(last, record.number);
  }
  return asked == 7 ? std::string() : "the survivor's refusal is not the last one recorded";
}

std::string World::judge_standstill(uint64_t& longest_ns) {
  if (!survivor_.has_value()) return {};
  const layout::Ledger& map = *survivor_->map();
  uint64_t held = 0;
  layout::for_each_live(map, [&](uint32_t slot) {
    held += layout::held_of(map.cells[device_][slot].held_and_lease.load());
  });
  const uint64_t cap = survivor_->cap(device_);
  if (held >= cap) return {};
  Refusal refusal;
  const uint64_t before = now_ns();
  const bool granted = survivor_->reserve(device_, cap - held, refusal);
  longest_ns = std::max(longest_ns, now_ns() - before);
  if (granted) {
    holds_ += cap - held;
    return {};
  }
  return fmt::format("{} free units were refused: {}", cap - held,
                     refusal.fault.empty() ? "not enough" : refusal.fault.view());
}

std::string World::judge_death(uint64_t orphaned) {
  if (!survivor_.has_value()) settle(0);
  Ledger& survivor = *survivor_;
  if (std::string wrong = judge_books(false, orphaned); !wrong.empty()) return wrong;
  if (std::string wrong = judge_records(); !wrong.empty()) return wrong;
  if (survivor.held_by_self(device_) != holds_) return "the survivor's own holding changed";

  const uint64_t cap = survivor.cap(device_);
  Refusal refusal;
  const auto refused = [&](Ledger& ledger) {
    refusal = {};
    return !ledger.reserve(device_, 1, refusal) && refusal.fault.empty();
  };
  if (holds_ > cap) {
    // A lowered cap: nothing new until the use has drained below it, then exactly what fits.
    if (!refused(survivor)) return "a unit was granted above the lowered cap";
    survivor.release(device_, 5);
    if (!refused(survivor)) return "what was freed above the lowered cap was granted again";
    survivor.release(device_, holds_ - 5 - cap + 5);
    if (!survivor.reserve(device_, 5, refusal)) return "room under the lowered cap was refused";
    holds_ = cap;
  } else if (const uint64_t rest = cap - holds_ - orphaned; rest > 0) {
    if (!survivor.reserve(device_, rest, refusal)) {
      return fmt::format("{} units are lost: {}", rest,
                         refusal.fault.empty() ? "not enough" : refusal.fault.view());
    }
    holds_ += rest;
  }
  if (!refused(survivor)) return "a unit above the cap was granted, or the ledger failed";
  if (survivor.held(device_) != cap) {
    return fmt::format("the slots' sum is {} and not the cap", survivor.held(device_));
  }

  Ledger newcomer;
  int device = -1;
  if (!join(newcomer, device) || device != device_) return "a newcomer cannot join";
  if (!refused(newcomer)) return "a newcomer was granted a unit above the cap";
  survivor.release(device_, 10);
  if (!newcomer.reserve(device_, 10, refusal)) return "a newcomer was refused what was free";
  if (!refused(survivor)) return "the survivor was granted what the newcomer has";
  return judge_books(true, orphaned);
}

}  // namespace fracgpu::fault
