// Turns the records of processes into events of a recording. It tracks live memory, so that a
// release contains the data of its allocation, and computes what chunks and shared handles take.
//
// Sums never exceed the memory that was held. So a process's end comes before its memory is given
// to others, whenever the end is noticed. If events of a process were dropped, the ledger provides
// its sums.
//
// Records come from other processes and may contain anything: senseless records are skipped.
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
  // `began_ns`: CLOCK_MONOTONIC at the start of the recording. `name_of`: a device's name for
  // people.
  Tracker(recording::Writer& writer, uint64_t began_ns,
          std::function<std::string(const std::string& key)> name_of);
  ~Tracker();

  void add(uint32_t slot, const ring::Record& record);
  void missed(uint32_t slot, uint64_t number);
  // `end`: the process of the slot is gone. `set_alive`: it was seen alive.
  void end(uint32_t slot, uint64_t now_ns) { end(slot, now_ns, nullptr); }
  void set_alive(uint32_t slot, uint64_t now_ns);
  // `living`: slots whose processes have not ended. `gone`: those among them that another process
  // reported gone. They may have written more records, which must be added before their end.
  std::vector<uint32_t> living() const;
  std::vector<uint32_t> gone() const;

  // The ledger's amounts for a process on a device, in bytes.
  struct Held {
    uint64_t now = 0, most = 0;
  };
  using HeldBy = std::function<std::optional<Held>(uint32_t slot, const ring::ProcessText& process,
                                                   const std::string& device_key)>;
  // Sets the source of sums for processes with dropped events.
  void set_ledger(HeldBy held) { held_by_ = std::move(held); }
  // `lossy`: the slots of such processes. `renew`: sets the known sums of a process to the
  // ledger's. `quiet`: the process has recorded nothing for a while, so its sums may also rise.
  std::vector<uint32_t> lossy() const;
  void renew(uint32_t slot, uint64_t now_ns, bool quiet);

  // Writes the events added since the last call, sorted by time. Events later than `until_ns` stay,
  // because other processes may still report earlier ones.
  void write(uint64_t until_ns = UINT64_MAX);

  // Adds a remark that the report prints unchanged.
  void add_remark(const std::string& text, uint64_t now_ns);

  // The device's cap is now `cap` bytes. Adds an event if it changed.
  void set_cap(const std::string& device_key, uint64_t cap, uint64_t now_ns);

  // The most memory needed on each device so far, in bytes, by device key.
  std::map<std::string, uint64_t> needed() const;

  uint64_t events() const { return events_; }
  uint64_t dropped() const { return dropped_; }
  size_t processes() const { return process_count_; }

 private:
  struct Process;

  void add_text(uint32_t slot, const ring::Record& record);
  void describe(uint32_t slot, ring::Type type, uint32_t number, const std::string& text);
  void end(uint32_t slot, uint64_t now_ns, const Process* next);  // `next`: the slot's next process
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
  std::map<uint32_t, std::unique_ptr<Process>> processes_;  // by slot
  std::map<uint32_t, std::string> first_texts_;  // parts of texts, while a slot has no process yet
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
