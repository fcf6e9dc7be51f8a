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
          "usage: rmsim create FOLDER MIB [DRIVER [GPUS]]   GPUs with so much memory each, in a "
          "folder that "
          "is made\n"
          "       rmsim show FOLDER                  of each GPU total, used and peak in bytes, "
          "and of each process, as JSON\n"
          "       rmsim reset FOLDER                 each peak becomes what is used now\n"
          "       rmsim hold FOLDER                  keeps the accounting locked until it is "
          "killed\n");
  return 2;
}

bool write(const std::string& path, const std::string& text) {
  FILE* file = fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  fputs(text.c_str(), file);
  return fclose(file) == 0;
}

bool write_gpu(const std::string& folder, int gpu, const std::string& driver) {
  const std::string bus = "0000:0" + std::to_string(gpu + 1) + ":00.0";
  const bool is_470 = driver.starts_with("470.");
  return mkdir((folder + "/" + bus).c_str(), 0777) == 0 &&
         write(folder + "/" + bus + "/information",
               std::string("Model: \t\t NVIDIA GeForce RTX ") + (is_470 ? "3090" : "4090") +
                   "\nIRQ:   \t\t 16\nGPU UUID: \t GPU-511e8b52-093a-4c1f-9a77-2011c0de000" +
                   std::to_string(gpu + 1) +
                   "\nVideo BIOS: \t 95.02.18.80.86\nBus Type: \t PCIe\nDMA Size: \t 47 bits\n"
                   "DMA Mask: \t 0x7fffffffffff\nBus Location: \t " +
                   bus + "\nDevice Minor: \t " + std::to_string(gpu) + "\nGPU Firmware: \t " +
                   driver + "\nGPU Excluded:\t No\n");
}

// What the driver's libraries read of /proc. The words are those of the kernel modules.
bool write_proc(const std::string& folder, const std::string& driver, int gpus) {
  const std::string proc = folder + "/proc", vendor = proc + "/driver/nvidia";
  for (const std::string& path : {proc, proc + "/driver", vendor, vendor + "/gpus"}) {
    if (mkdir(path.c_str(), 0777) != 0) return false;
  }
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if (!write_gpu(vendor + "/gpus", gpu, driver)) return false;
  }
  return write(vendor + "/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " +
                                        driver +
                                        "  Release Build  (rmsim)  Mon Jun  9 00:00:00 UTC 2025\n"
                                        "GCC version:  gcc version 12.2.0\n") &&
         write(vendor + "/params",
               "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
               "InitializeSystemMemoryAllocations: 1\nEnableStreamMemOPs: 0\n"
               "EnableUserNUMAManagement: 1\nPreserveVideoMemoryAllocations: 0\n"
               "DynamicPowerManagement: 3\nEnableGpuFirmware: 18\nRegistryDwords: \"\"\n"
               "RegistryDwordsPerDevice: \"\"\nRmMsg: \"\"\nTemporaryFilePath: \"\"\n"
               "ExcludedGpus: \"\"\n") &&
         write(proc + "/devices",
               "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n136 pts\n195 "
               "nvidia-frontend\n240 nvidia-uvm\n\nBlock devices:\n254 virtblk\n");
}

int create(const std::string& folder, const char* mib, const std::string& driver,
           const char* count) {
  char *end = nullptr, *end_of_count = nullptr;
  const unsigned long long size = strtoull(mib, &end, 10);
  const long gpus = strtol(count, &end_of_count, 10);
  if (*end != '\0' || size == 0) return usage();
  if (*end_of_count != '\0' || gpus < 1 || gpus > rmsim::kMostGpus) return usage();
  const int number = static_cast<int>(gpus);
  if ((mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) ||
      !write_proc(folder, driver, number)) {
    fprintf(stderr, "rmsim: cannot make %s: %s\n", folder.c_str(), strerror(errno));
    return 1;
  }
  return Accounting::create(folder, size << 20, driver, number) ? 0 : 1;
}

int show(Accounting& accounting) {
  const Accounting::Summary summary = accounting.summary();
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  const char* separator = "";
  printf("[");
  for (size_t gpu = 0; gpu < summary.gpus.size(); ++gpu) {
    const rmsim::Use& all = summary.gpus[gpu];
    printf("%s{\"total\": %llu, \"used\": %llu, \"peak\": %llu, \"processes\": [", separator,
           number(summary.total), number(all.used), number(all.peak));
    separator = "";
    for (const rmsim::Process& process : summary.processes) {
      const rmsim::Use& own = process.use[gpu];
      printf("%s{\"pid\": %d, \"alive\": %s, \"used\": %llu, \"peak\": %llu}", separator,
             process.pid, process.alive ? "true" : "false", number(own.used), number(own.peak));
      separator = ", ";
    }
    printf("]}");
    separator = ", ";
  }
  printf("]\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return usage();
  const std::string command = argv[1];
  if (command == "create" && argc >= 4 && argc <= 6) {
    return create(argv[2], argv[3], argc >= 5 ? argv[4] : "535.261.03", argc == 6 ? argv[5] : "1");
  }
  if (argc != 3 || (command != "show" && command != "reset" && command != "hold")) return usage();
  Accounting accounting;
  if (!accounting.open(argv[2])) return 1;
  if (command == "show") return show(accounting);
  if (command == "hold") accounting.hold_for_ever();
  accounting.reset_peaks();
  return 0;
}
