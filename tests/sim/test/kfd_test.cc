// Tests of the kernel driver's files, through a program that is started with the preload library:
// the topology, what each process holds as its account moves, death, and that nothing else is
// touched.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "sim/node/account.h"
#include "sim/test/support.h"

using namespace simtest;
using sim::Vendor;

namespace {

using Lines = std::vector<std::string>;
const std::string kKfd = "/sys/class/kfd/kfd/";

// Each order's answer from one run of the reader.
Lines read(const Lines& orders, const std::string& environment = "LD_PRELOAD=" SIM_KFD) {
  std::string command = "env " + environment + " " SIM_KFD_READER;
  for (const std::string& order : orders) command += " '" + order + "'";
  Lines answers;
  FILE* out = popen(command.c_str(), "r");
  char line[8192];
  while (std::fgets(line, sizeof line, out) != nullptr) {
    std::string text = line;
    text.pop_back();
    answers.push_back(text);
  }
  EXPECT_EQ(pclose(out), 0) << command;
  answers.resize(orders.size());
  return answers;
}

std::string read(const std::string& order) {
  return read(Lines{order})[0];
}

std::map<std::string, std::string> properties(const std::string& text) {
  std::map<std::string, std::string> all;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line, ';');) {
    const size_t space = line.find(' ');
    EXPECT_NE(space, std::string::npos) << line;
    all[line.substr(0, space)] = line.substr(space + 1);
  }
  return all;
}

std::string vram(TestNode& node, int dev, int pid) {
  return kKfd + "proc/" + std::to_string(pid) + "/vram_" +
         std::to_string(node->device(dev).kfd_gpu_id);
}

std::string used_file(TestNode& node, int dev) {
  return "/sys/bus/pci/devices/" + node->bus_id(dev) + "/mem_info_vram_used";
}

TEST(SimKfd, TopologyIsTheNodes) {
  for (const char* profile :
       {"tiny+mi300x-cpx-nps4", "mi300x-qpx-fn", "2xmi210", "mi300x-dpx-xcp"}) {
    SCOPED_TRACE(profile);
    TestNode node(profile);
    std::string numbers;
    for (int n = 0; n <= node->device_count(Vendor::kAmd); ++n) numbers += std::to_string(n) + " ";
    EXPECT_EQ(read("list=" + kKfd + "topology/nodes"), numbers);
    for (const int dev : node->devices(Vendor::kAmd)) {
      const sim::DeviceRow& row = node->device(dev);
      const std::string folder = kKfd + "topology/nodes/" + std::to_string(row.kfd_node) + "/";
      const Lines text =
          read({"open=" + folder + "gpu_id", "fopen=" + folder + "properties",
                "stream=" + folder + "mem_banks/0/properties", "list=" + folder + "io_links"});
      EXPECT_EQ(text[0], std::to_string(row.kfd_gpu_id) + ";");
      auto of = properties(text[1]);
      EXPECT_EQ(of["location_id"], std::to_string(row.location_id));
      EXPECT_EQ(of["unique_id"], std::to_string(row.unique_id));
      EXPECT_EQ(of["gfx_target_version"], std::to_string(row.gfx_target_version));
      EXPECT_EQ(of["simd_count"], std::to_string(4 * row.multiprocessors));
      EXPECT_EQ(of["vendor_id"], "4098");
      EXPECT_EQ(of["device_id"], row.gfx_target_version == 90010 ? "29711" : "29857");
      EXPECT_EQ(of["cpu_cores_count"], "0");
      EXPECT_EQ(of["drm_render_minor"], std::to_string(127 + row.kfd_node));
      const std::string xccs =
          std::to_string(row.gfx_target_version == 90010 ? 1 : 8 / row.partitions);
      EXPECT_EQ(of["num_xcc"], xccs);
      const auto links = std::count(text[3].begin(), text[3].end(), ' ');
      EXPECT_EQ(of["io_links_count"], std::to_string(links));
      auto memory = properties(text[2]);
      EXPECT_EQ(memory["heap_type"], "1");
      EXPECT_EQ(memory["size_in_bytes"], std::to_string(row.total));
    }
  }
}

TEST(SimKfd, EveryWayOfLookingFindsTheSame) {
  TestNode node("tiny-amd");
  const std::string id = std::to_string(node->device(0).kfd_gpu_id) + ";";
  const std::string folder = kKfd + "topology/nodes/1";
  const Lines text =
      read({"open=" + folder + "/gpu_id", "fopen=" + folder + "/gpu_id",
            "stream=/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id",
            "below=" + folder + ":gpu_id", "open=" + folder + "//./../1/gpu_id", "stat=" + folder,
            "stat=" + folder + "/gpu_id", "access=" + folder, "scan=" + folder,
            "link=/sys/class/kfd/kfd", "open=/sys/module/amdgpu/initstate",
            "open=" + folder + "/none", "stat=" + folder + "/gpu_id/"});
  EXPECT_EQ(text, (Lines{id, id, id, id, id, "folder", "file", "yes", "10",
                         "../../devices/virtual/kfd/kfd", "live;", "error 2", "error 20"}));
  EXPECT_EQ(properties(read("open=" + kKfd + "topology/nodes/0/properties"))["simd_count"], "0");
}

// A device cgroup lets the files be opened, and not be read. Without one, a missing render node is
// all that tells.
TEST(SimKfd, WhatAContainerHidesCannotBeRead) {
  TestNode node("2xtiny-amd");
  const Lines orders = {"open=" + kKfd + "topology/nodes/1/gpu_id",
                        "fopen=" + kKfd + "topology/nodes/1/name",
                        "below=" + kKfd + "topology/nodes/1:properties",
                        "open=" + kKfd + "topology/nodes/1/mem_banks/0/properties",
                        "stat=" + kKfd + "topology/nodes/1/gpu_id",
                        "list=" + kKfd + "topology/nodes/1/mem_banks",
                        "open=" + kKfd + "topology/nodes/2/gpu_id",
                        "access=/dev/dri/renderD128",
                        "access=/dev/dri/renderD129",
                        "open=/dev/dri/renderD128"};
  const auto id = [&](int dev) { return std::to_string(node->device(dev).kfd_gpu_id) + ";"; };
  const std::string preload = "LD_PRELOAD=" SIM_KFD " FRACGPU_SIM_HIDDEN=";
  EXPECT_EQ(read(orders, preload + "0"), (Lines{"error 1", "error 1", "error 1", "error 1", "file",
                                                "0 ", id(1), "error 2", "yes", "error 2"}));
  const Lines rootless = read(orders, preload + "0:render");
  EXPECT_EQ(rootless[0], id(0));
  EXPECT_EQ(rootless[1], "aldebaran;");
  EXPECT_EQ(rootless[7], "error 2");
  EXPECT_EQ(rootless[8], "yes");
}

TEST(SimKfd, VramFollowsTheAccount) {
  TestNode node("tiny-cpx");
  const std::string first = std::to_string(node->device(0).kfd_gpu_id);
  const std::string last = std::to_string(node->device(7).kfd_gpu_id);
  const Lines text =
      read({"self=" + first, "reserve=0:4096", "self=" + first, "self=" + last, "reserve=0:8192",
            "reserve=7:1048576", "self=" + first, "self=" + last, "release=0:4096", "self=" + first,
            "release=0:8192", "self=" + first, "reserve=0:2147483648", "self=" + first, "self=1"});
  // A process that has not opened the driver is not there; one that has, with nothing, is.
  EXPECT_EQ(text, (Lines{"error 2", "good", "4096;", "0;", "good", "good", "12288;", "1048576;",
                         "good", "8192;", "good", "0;", "full", "0;", "error 2"}));
}

TEST(SimKfd, OthersSeeAProcessUntilItIsKilled) {
  TestNode node("tiny+tiny-amd");
  Child child([](Child& parent) {
    std::string error;
    const auto account = sim::Account::open(&error, Vendor::kAmd);
    ASSERT_NE(account, nullptr) << error;
    for (uint64_t bytes = parent.hear(); bytes != 0; bytes = parent.hear()) {
      EXPECT_TRUE(account->reserve(1, bytes, sim::Kind::kAllocation));
      parent.say(account->node().used_by_pid(1, getpid()));
    }
  });
  const std::string path = vram(node, 1, child.pid());
  const std::string folder = path.substr(0, path.rfind('/'));
  uint64_t sum = 0;
  for (const uint64_t bytes : {uint64_t{4096}, 5 * kMiB, uint64_t{12288}}) {
    child.say(bytes);
    sum += bytes;
    EXPECT_EQ(child.hear(), sum);
    const std::string text = std::to_string(sum) + ";";
    EXPECT_EQ(read({"open=" + path, "fopen=" + path, "stream=" + path, "stat=" + path,
                    "access=" + path, "below=" + folder + ":" + path.substr(folder.size() + 1)}),
              (Lines{text, text, text, "file", "yes", text}));
    EXPECT_EQ(node->used_by_pid(1, child.pid()), sum);
  }
  const std::string id = std::to_string(node->device(1).kfd_gpu_id);
  EXPECT_EQ(read("list=" + kKfd + "proc"), std::to_string(child.pid()) + " ");
  EXPECT_EQ(read("list=" + folder),
            "pasid queues sdma_" + id + " stats_" + id + " vram_" + id + " ");
  child.kill();
  EXPECT_EQ(read({"open=" + path, "fopen=" + path, "stat=" + path, "access=" + path,
                  "list=" + folder, "list=" + kKfd + "proc"}),
            (Lines{"error 2", "error 2", "error 2", "error 2", "error 2", ""}));
}

// What a process has mapped, by its own descriptors of a render node: with imports, and without
// what it has let go of.
TEST(SimKfd, FdinfoTellsWhatIsMapped) {
  TestNode node("tiny-amd");
  in_child([&] {
    std::string error;
    const auto account = sim::Account::open(&error, Vendor::kAmd);
    sim::Physical memory;
    const uint32_t location[2] = {};
    EXPECT_TRUE(account->take(0, 3 * 4096, &memory));
    EXPECT_EQ(account->node().mapped_by_self(0), 3 * 4096u);
    EXPECT_TRUE(account->share(&memory, sim::ObjectKind::kMemory, location));
    EXPECT_EQ(account->node().mapped_by_self(0), 3 * 4096u);
    const int holder = account->descriptor(memory);
    account->drop(&memory);
    EXPECT_EQ(account->node().mapped_by_self(0), 0u);
    EXPECT_EQ(node->used(0), 3 * 4096u);
    close(holder);
  });
  const Lines text = read({"reserve=0:1048576", "fdinfo=/dev/dri/renderD128", "fdinfo=/dev/null"});
  EXPECT_NE(text[1].find(";drm-driver:\tamdgpu;"), std::string::npos) << text[1];
  EXPECT_NE(text[1].find(";drm-memory-vram:\t1024 KiB;"), std::string::npos) << text[1];
  EXPECT_EQ(text[1].find("/dev/dri/renderD128 "), 0u) << text[1];
  EXPECT_EQ(text[2].find("drm"), std::string::npos) << text[2];
}

// In a child: has a MiB of the first GPU until it is let go on.
void hold_a_mib(Child& parent) {
  std::string error;
  const auto account = sim::Account::open(&error, Vendor::kAmd);
  ASSERT_NE(account, nullptr) << error;
  EXPECT_TRUE(account->reserve(0, kMiB, sim::Kind::kAllocation));
  parent.say(1);
  parent.hear();
}

// Kernels differ in which of the two comes first.
TEST(SimKfd, OneThatHasEndedIsListedUntilItsMemoryIsFreed) {
  for (const bool unlists_first : {false, true}) {
    sim::NodeOptions options;
    options.linger_ms = 24ULL * 3600 * 1000;
    TestNode node(unlists_first ? "tiny-amd@unlists-first" : "tiny-amd", options);
    Child child(hold_a_mib);
    child.hear();
    const std::string path = vram(node, 0, child.pid());
    child.kill();
    EXPECT_EQ(node->used(0), kMiB);
    EXPECT_EQ(read("open=" + path), unlists_first ? "error 2" : std::to_string(kMiB) + ";");
    node->file()->process[0].linger_ns = 1;
    EXPECT_EQ(node->used(0), 0u);
    EXPECT_EQ(read("open=" + path), "error 2");
  }
}

TEST(SimKfd, OneThatHasEndedMayBeListedWhenItsMemoryIsFree) {
  sim::NodeOptions options;
  options.linger_ms = 24ULL * 3600 * 1000;
  TestNode node("tiny-amd@unlists-late", options);
  Child child(hold_a_mib);
  child.hear();
  const Lines both{"open=" + vram(node, 0, child.pid()), "open=" + used_file(node, 0)};
  EXPECT_EQ(read(both), (Lines{std::to_string(kMiB) + ";", std::to_string(kMiB) + ";"}));
  child.kill();
  EXPECT_EQ(read(both), (Lines{std::to_string(kMiB) + ";", "0;"}));
}

// The GPU's own sum has what the dead still hold, and is all partitions'.
TEST(SimKfd, AGpusSumHasTheDeadAndAllPartitions) {
  for (const char* profile : {"tiny-amd@unlists-first", "tiny-cpx@unlists-first"}) {
    sim::NodeOptions options;
    options.linger_ms = 24ULL * 3600 * 1000;
    TestNode node(profile, options);
    const int last = node->device_count() - 1;
    Child child([&](Child& parent) {
      std::string error;
      const auto account = sim::Account::open(&error, Vendor::kAmd);
      ASSERT_NE(account, nullptr) << error;
      EXPECT_TRUE(account->reserve(last, kMiB, sim::Kind::kAllocation));
      parent.say(1);
      parent.hear();
    });
    child.hear();
    child.kill();
    const std::string file = used_file(node, 0);
    EXPECT_EQ(read(Lines{"open=" + vram(node, last, child.pid()), "open=" + file}),
              (Lines{"error 2", std::to_string(kMiB) + ";"}));
    EXPECT_EQ(read("write=" + file), "error 13");
  }
}

TEST(SimKfd, SharedMemoryIsItsMakers) {
  TestNode node("tiny-amd");
  Channel channel;
  const auto open = [] {
    std::string error;
    return sim::Account::open(&error, Vendor::kAmd);
  };
  Child importer([&](Child& parent) {
    const auto account = open();
    sim::Physical memory;
    const int fd = channel.receive();
    EXPECT_TRUE(account->import(fd, sim::ObjectKind::kMemory, &memory));
    close(fd);
    parent.say(1);
    parent.hear();
  });
  Child maker([&](Child& parent) {
    const auto account = open();
    sim::Physical memory;
    const uint32_t location[2] = {};
    EXPECT_TRUE(account->take(0, 3 * 4096, &memory));
    EXPECT_TRUE(account->share(&memory, sim::ObjectKind::kMemory, location));
    channel.send(account->descriptor(memory));
    parent.hear();
    account->drop(&memory);
    parent.say(1);
    parent.hear();
  });
  importer.hear();
  const Lines both{"open=" + vram(node, 0, maker.pid()), "open=" + vram(node, 0, importer.pid())};
  EXPECT_EQ(read(both), (Lines{"12288;", "0;"}));
  maker.say(1);
  maker.hear();
  EXPECT_EQ(read(both), (Lines{"0;", "0;"})) << "what its maker has freed counts for nobody";
  importer.kill();
  EXPECT_EQ(read(both), (Lines{"0;", "error 2"}));
}

TEST(SimKfd, DescriptorsAreAsAsked) {
  TestNode node("tiny-amd");
  Child child([](Child& parent) {
    std::string error;
    const auto account = sim::Account::open(&error, Vendor::kAmd);
    parent.say(1);
    parent.hear();
  });
  child.hear();
  const std::string path = vram(node, 0, child.pid());
  const std::string fixed = kKfd + "topology/generation_id";
  EXPECT_EQ(read({"plain=" + path, "cloexec=" + path, "write=" + path, "plain=" + fixed,
                  "cloexec=" + fixed}),
            (Lines{"4321 0", "4321 1", "error 13", "4321 0", "4321 1"}));
}

TEST(SimKfd, NothingElseIsTouched) {
  const Lines orders{"open=/etc/hostname", "stat=/sys/class",          "list=/sys/class",
                     "stat=/sys",          "open=/sys/class/kfdx/kfd", "stat=/sys/module",
                     "link=/proc/self/cwd"};
  const Lines plain = read(orders, "NONE=1");
  TestNode node("tiny-amd");
  EXPECT_EQ(read(orders), plain);
  // A node without such devices, or none at all: not even the driver's own names are.
  const Lines own{"open=/sys/class/kfd/kfd/topology/generation_id", "list=/sys/module/amdgpu"};
  const Lines real = read(own, "NONE=1");
  EXPECT_EQ(read(own, "-u FRACGPU_SIM_NODE LD_PRELOAD=" SIM_KFD), real);
  TestNode other("tiny");
  EXPECT_EQ(read(own), real);
  EXPECT_NE(access((other.path() + ".sys").c_str(), F_OK), 0);
}

TEST(SimKfd, TheTreeLivesAndDiesWithItsNode) {
  std::string path;
  {
    TestNode node("tiny-amd");
    path = node.path();
    EXPECT_EQ(access((path + ".sys/identity").c_str(), F_OK), 0);
    unlink(path.c_str());
    // One that was left behind is not taken for the next node's.
    std::string error;
    ASSERT_TRUE(sim::Node::create(path, "2xtiny-amd", {}, &error)) << error;
    EXPECT_EQ(read("list=" + kKfd + "topology/nodes"), "0 1 2 ");
    // A reader makes what is missing.
    ASSERT_EQ(rename((path + ".sys").c_str(), (path + ".gone").c_str()), 0);
    EXPECT_EQ(read("list=" + kKfd + "topology/nodes"), "0 1 2 ");
    std::filesystem::remove_all(path + ".gone");
  }
  EXPECT_NE(access((path + ".sys").c_str(), F_OK), 0);
}

TEST(SimKfd, ANodeMadeByItsFirstReader) {
  std::string path;
  {
    TestNode node("tiny");
    path = node.path();
  }
  const std::string environment =
      "FRACGPU_SIM_NODE=" + path + " FRACGPU_SIM_PROFILE=mi210 LD_PRELOAD=" SIM_KFD;
  EXPECT_EQ(read({"list=" + kKfd + "topology/nodes"}, environment), (Lines{"0 1 "}));
  EXPECT_TRUE(sim::Node::remove(path));
}

}  // namespace
