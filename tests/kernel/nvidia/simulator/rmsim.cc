// rmsim: makes the state of a simulated NVIDIA GPU, shows it and resets its peaks.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "accounting.h"

namespace {

using rmsim::Accounting;

int usage() {
  fprintf(stderr,
          "usage: rmsim create FOLDER MIB [DRIVER]   a GPU with so much memory, in a folder that "
          "is made\n"
          "       rmsim show FOLDER                  total, used and peak in bytes, and of each "
          "process, as JSON\n"
          "       rmsim reset FOLDER                 each peak becomes what is used now\n");
  return 2;
}

// What the driver's libraries read of /proc. The words are those of the kernel modules.
bool write_proc(const std::string& folder, const std::string& driver) {
  const std::string proc = folder + "/proc", vendor = proc + "/driver/nvidia",
                    gpu = vendor + "/gpus/0000:01:00.0";
  for (const std::string& path : {proc, proc + "/driver", vendor, vendor + "/gpus", gpu}) {
    if (mkdir(path.c_str(), 0777) != 0) return false;
  }
  const auto write = [](const std::string& path, const std::string& text) {
    FILE* file = fopen(path.c_str(), "we");
    if (file == nullptr) return false;
    fputs(text.c_str(), file);
    return fclose(file) == 0;
  };
  return write(vendor + "/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " +
                                        driver +
                                        "  Release Build  (rmsim)  Mon Jun  9 00:00:00 UTC 2025\n"
                                        "GCC version:  gcc version 12.2.0\n") &&
         write(
             vendor + "/params",
             "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
             "InitializeSystemMemoryAllocations: 1\nEnableStreamMemOPs: "
             "0\nEnableUserNUMAManagement: 1\n"
             "PreserveVideoMemoryAllocations: 0\nDynamicPowerManagement: 3\nEnableGpuFirmware: 18\n"
             "RegistryDwords: \"\"\nRegistryDwordsPerDevice: \"\"\nRmMsg: \"\"\nTemporaryFilePath: "
             "\"\"\nExcludedGpus: \"\"\n") &&
         write(gpu + "/information",
               "Model: \t\t NVIDIA GeForce RTX " +
                   std::string(driver.starts_with("470.") ? "3090" : "4090") +
                   "\nIRQ:   \t\t 16\nGPU UUID: \t GPU-511e8b52-093a-4c1f-9a77-2011c0de0001\n"
                   "Video BIOS: \t 95.02.18.80.86\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA "
                   "Mask: "
                   "\t 0x7fffffffffff\n"
                   "Bus Location: \t 0000:01:00.0\nDevice Minor: \t 0\nGPU Firmware: \t " +
                   driver + "\nGPU Excluded:\t No\n") &&
         write(proc + "/devices",
               "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n136 pts\n195 "
               "nvidia-frontend\n240 nvidia-uvm\n\n"
               "Block devices:\n254 virtblk\n");
}

int create(const std::string& folder, const char* mib, const std::string& driver) {
  char* end = nullptr;
  const unsigned long long size = strtoull(mib, &end, 10);
  if (*end != '\0' || size == 0) return usage();
  if ((mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) || !write_proc(folder, driver)) {
    fprintf(stderr, "rmsim: cannot make %s: %s\n", folder.c_str(), strerror(errno));
    return 1;
  }
  return Accounting::create(folder, size << 20, driver) ? 0 : 1;
}

int show(Accounting& accounting) {
  const Accounting::Summary summary = accounting.summary();
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  printf("{\"total\": %llu, \"used\": %llu, \"peak\": %llu, \"processes\": [",
         number(summary.total), number(summary.used), number(summary.peak));
  const char* separator = "";
  for (const rmsim::Process& process : summary.processes) {
    printf("%s{\"pid\": %d, \"alive\": %s, \"used\": %llu, \"peak\": %llu}", separator, process.pid,
           process.alive ? "true" : "false", number(process.used), number(process.peak));
    separator = ", ";
  }
  printf("]}\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return usage();
  const std::string command = argv[1];
  if (command == "create" && (argc == 4 || argc == 5))
    return create(argv[2], argv[3], argc == 5 ? argv[4] : "535.261.03");
  if (argc != 3 || (command != "show" && command != "reset")) return usage();
  Accounting accounting;
  if (!accounting.open(argv[2])) return 1;
  if (command == "show") return show(accounting);
  accounting.reset_peaks();
  return 0;
}
