// Makes events of a recording out of what processes tell: it knows what lives where, so that a
// release says what it releases, and what chunks and handles take by being shared.
//
// Sums never are more than what was held. So a process has ended before others were given what it
// had, whenever its end is noticed; and where events of a process were dropped, the ledger says
// what it has.
//
// Records come from other processes and may be anything: what makes no sense is passed over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "fracgpu/recording_ring.h"
#include "tools/record/needed_meter.h"
#include "tools/recording/writer.h"

namespace fracgpu::tools {

class Tracker {
 public:
  // `began_ns`: CLOCK_MONOTONIC when the recording began. `name_of`: a device's name for people.
  Tracker(recording::Writer& writer, uint64_t began_ns,
          std::function<std::string(const std::string& key)> name_of);
  ~Tracker();

  void add(uint32_t slot, const ring::Record& record);
  void missed(uint32_t slot, uint64_t number);
  // The process of the slot is gone; or was seen alive.
  void end(uint32_t slot, uint64_t now_ns);
  void set_alive(uint32_t slot, uint64_t now_ns);
  // Slots whose processes have not ended, and of these those that another process says are gone:
  // they may have told more, which is to be added before they are ended.
  std::vector<uint32_t> living() const;
  std::vector<uint32_t> gone() const;

  // What the ledger says of a process on a device, in bytes.
  struct Held {
    uint64_t now = 0, most = 0;
  };
  using HeldBy = std::function<std::optional<Held>(uint32_t slot, const ring::ProcessText& process,
                                                   const std::string& device_key)>;
  // By what is told when events of a process were dropped.
  void set_ledger(HeldBy held) { held_by_ = std::move(held); }
  // Slots of such processes. What one is known to have becomes what the ledger says that it has;
  // `quiet`: it has told nothing for a while, so that it may also be more than is known.
  std::vector<uint32_t> lossy() const;
  void renew(uint32_t slot, uint64_t now_ns, bool quiet);

  // Writes what was added since the last time, by time; what is later than `until_ns` stays, since
  // other processes may yet tell what precedes it.
  void write(uint64_t until_ns = UINT64_MAX);

  // Something that the report says as it is.
  void add_remark(const std::string& text, uint64_t now_ns);

  // The device's cap is `cap` bytes now: an event where it has changed.
  void set_cap(const std::string& device_key, uint64_t cap, uint64_t now_ns);

  // The most that was needed of each device so far, in bytes, by its key.
  std::map<std::string, uint64_t> needed() const;

  uint64_t events() const { return events_; }
  uint64_t dropped() const { return dropped_; }
  size_t processes() const { return process_count_; }

 private:
  struct Process;

  void add_text(uint32_t slot, const ring::Record& record);
  void describe(uint32_t slot, ring::Type type, uint32_t number, const std::string& text);
  void begin_process(uint32_t slot, const std::string& text);
  void change_cap(uint32_t device, uint64_t cap, uint64_t time_ns);
  void set_level(Process& process, recording::Event event);
  void set_chunks(Process& process, recording::Event event, uint32_t device, uint64_t bytes);
  void release(Process& process, uint64_t key, const ring::Record& record);
  uint32_t add_module(const std::string& text);
  uint32_t add_device(const std::string& text);
  uint32_t add_stack(Process& process, const std::string& text);
  recording::Event event_of(const Process& process, const ring::Record& record) const;
  void emit(const recording::Event& event);
  void emit(Process& process, const recording::Event& event);
  uint64_t since_beginning(uint64_t ns) const { return ns > began_ns_ ? ns - began_ns_ : 0; }
  void set_unknown(Process& process, uint32_t device, uint64_t bytes, uint64_t time_ns);
  void lower(Process& process, uint32_t device, uint64_t excess, uint64_t time_ns);
  void keep_within_peak(uint32_t slot, Process& process, const recording::Event& event);

  recording::Writer& writer_;
  const uint64_t began_ns_;
  const std::function<std::string(const std::string&)> name_of_;
  std::map<uint32_t, std::unique_ptr<Process>> processes_;  // by the slot
  std::map<uint32_t, std::string> first_texts_;  // parts of texts, where a slot has no process yet
  std::map<std::string, uint32_t> modules_, devices_;
  std::map<uint32_t, uint64_t> caps_;                 // by the device's number
  std::unordered_map<std::string, uint32_t> stacks_;  // by their frames, as bytes
  NeededMeter meter_;
  HeldBy held_by_;
  std::vector<recording::Event> batch_;
  uint64_t events_ = 0, dropped_ = 0;
  size_t process_count_ = 0;
};

}  // namespace fracgpu::tools
