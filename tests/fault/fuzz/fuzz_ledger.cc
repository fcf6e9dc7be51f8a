// Hostile bytes in the ledger's file. The input changes a file that dead processes left, and then,
// while a process is in it, the bytes under its feet. What must come out: a refusal with a line
// that says why, or a ledger that counts exactly; never a crash, and never an endless wait.
//
// Input: one byte for the file's size, one for how many of the changes are made live; then changes
// of 11 bytes each: where to (3), what to combine there with exclusive or (8).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "shim/ledger/ledger.h"
#include "tests/unit/scratch_tenant.h"

namespace {

using namespace fracgpu;

constexpr uint64_t kCap = 100000;
constexpr char kKey[] = "GPU-test";
constexpr size_t kChange = 11;
// What is changed: all up to the cells of the first device's first slots. Behind those is nothing.
constexpr size_t kWritten = offsetof(layout::Ledger, cells) + 4096;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  abort();
}

int device_of(Ledger& ledger, Message& error) {
  return ledger.device(kKey, kCap * layout::kUnit, uint64_t{1} << 40, error);
}

// What three processes left that were killed at work.
std::string left_by_the_dead(const ScratchTenant& tenant) {
  const pid_t child = fork();
  if (child == 0) {
    Ledger dead[3];
    Message error;
    Refusal refusal;
    for (Ledger& ledger : dead) {
      ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error);
      const int device = device_of(ledger, error);
      ledger.reserve(device, 5000, refusal);
      ledger.record(device, "cuMemAlloc", refusal);
      ledger.add_exported(device, 100);
      ledger.add_imported(device, 50);
      ledger.list_export(device, 100);
      ledger.add_import(1);
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  std::string bytes(kWritten, '\0');
  std::ifstream file(tenant.path(), std::ios::binary);
  file.read(bytes.data(), kWritten);
  require(file.good(), "the ledger can be read");
  return bytes;
}

void change(char* bytes, size_t size, const uint8_t* at) {
  uint32_t offset = 0;
  uint64_t flip = 0, now = 0;
  memcpy(&offset, at, 3);
  memcpy(&flip, at + 3, sizeof flip);
  offset = offset % static_cast<uint32_t>(size / 8) * 8;
  memcpy(&now, bytes + offset, sizeof now);
  now ^= flip;
  memcpy(bytes + offset, &now, sizeof now);
}

void write_file(const ScratchTenant& tenant, const std::string& bytes, size_t size) {
  tenant.remove();
  const int fd = open(tenant.path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  require(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
              ftruncate(fd, static_cast<off_t>(size)) == 0,
          "the file can be written");
  close(fd);
}

void look(const ScratchTenant& tenant) {
  Ledger observer;
  Message error;
  const LedgerFile::Result result = observer.observe(tenant.name(), error);
  require(result != LedgerFile::Result::failed || !error.empty(), "a refusal says why");
  if (result != LedgerFile::Result::ok) return;
  observer.find_device(kKey);
  observer.any_alive();
  layout::for_each_device(*observer.map(), [&](uint32_t row) {
    const int device = static_cast<int>(row);
    observer.held(device);
    observer.held(device, true);
    observer.within_cap(device);
  });
  layout::RefusalRecord record;
  for (const auto& place : observer.map()->refused) layout::read_refusal(place, record);
}

// Every operation once, on a ledger that may say anything.
void operate(Ledger& ledger, const ScratchTenant& tenant, int device) {
  Refusal refusal;
  Message error;
  const bool granted = ledger.reserve(device, 100, refusal);
  if (granted) ledger.release(device, 100);
  ledger.reserve(device, 40000, refusal);
  ledger.charge_taken(device, 10);
  ledger.release(device, 10);
  ledger.set_overhead(device, 7);
  Ledger second;
  if (second.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) {
    const int other = device_of(second, error);
    if (other >= 0) second.reserve(other, 60000, refusal);
    second.reap_dead();
  }
  ledger.set_cap(device, kCap * layout::kUnit, error);
  ledger.reserve(device, kCap, refusal);
  ledger.record(device, "cuMemAlloc", refusal);
  look(tenant);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchTenant tenant;
  static const std::string original = left_by_the_dead(tenant);
  if (size < 2) return 0;
  std::string bytes = original;
  const size_t changes = (size - 2) / kChange, live = changes == 0 ? 0 : data[1] % (changes + 1);
  for (size_t i = 0; i < changes - live; ++i) {
    change(bytes.data(), bytes.size(), data + 2 + i * kChange);
  }
  size_t length = sizeof(layout::Ledger);
  if (data[0] >= 248) {
    length = length * (data[0] - 248) / 8 + (data[0] == 255);
  } else if (data[0] >= 240) {
    length = bytes.size() * (data[0] - 240) / 8;
  }
  write_file(tenant, bytes, length);
  look(tenant);

  Ledger ledger;
  Message error;
  if (!ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) {
    require(!error.empty() && error.view().find('\n') == error.view().npos, "one line says why");
    return 0;
  }
  // Nobody else lives, so whatever the bytes said, the ledger is made anew.
  const int device = device_of(ledger, error);
  require(device >= 0, "the device gets its row");
  require(ledger.cap(device) == kCap, "the cap is the one configured");
  Refusal refusal;
  require(ledger.reserve(device, kCap, refusal), "all of the cap is there");
  require(!ledger.reserve(device, 1, refusal) && refusal.fault.empty(), "and no more");
  ledger.release(device, kCap - 1000);

  const int fd = open(tenant.path().c_str(), O_RDWR | O_CLOEXEC);
  void* map = mmap(nullptr, sizeof(layout::Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  require(map != MAP_FAILED, "the file can be mapped");
  for (size_t i = changes - live; i < changes; ++i) {
    change(static_cast<char*>(map), kWritten, data + 2 + i * kChange);
    operate(ledger, tenant, device);
  }
  munmap(map, sizeof(layout::Ledger));
  return 0;
}
