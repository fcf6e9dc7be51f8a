// What NVML's process lists mean under each driver.
#include "hooks/smi/nvml/list_meaning.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace fracgpu::nvml {
namespace {

using Pids = ListMeaning::Pids;

ListMeaning on_host(const char* version, Modules modules) {
  return meaning_of_lists(version_in(version), modules, true);
}
ListMeaning inside(const char* version, Modules modules) {
  return meaning_of_lists(version_in(version), modules, false);
}

TEST(ListMeaning, TheFlavourIsInTheFirstLine) {
  EXPECT_EQ(modules_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n"),
            Modules::closed);
  EXPECT_EQ(modules_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  \n"),
            Modules::open);
  EXPECT_EQ(modules_in("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06"),
            Modules::open);
  EXPECT_EQ(modules_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  1\nOpen Kernel Module\n"),
            Modules::closed);
  EXPECT_EQ(modules_in(""), Modules::unknown);
  EXPECT_EQ(modules_in("Open Kernel Module"), Modules::unknown);
}

TEST(ListMeaning, OnTheHostPidsAreOurs) {
  for (const char* version : {"", "470.82.01", "535.104.05", "550.163.01", "580.65.06"}) {
    for (const Modules modules : {Modules::unknown, Modules::closed, Modules::open}) {
      EXPECT_EQ(on_host(version, modules).pids, Pids::callers) << version;
      EXPECT_TRUE(on_host(version, modules).amounts) << version;
    }
  }
}

TEST(ListMeaning, ThreadsAreListedInTwoRangesOfTheOpenModules) {
  for (const char* version : {"535.113.01", "535.288.01", "545.23.06", "550.163.01", "560.35.03",
                              "565.57.01", "570.86.15", "570.144", "575.51.02", "575.51.03"}) {
    EXPECT_TRUE(on_host(version, Modules::open).threads) << version;
    EXPECT_TRUE(inside(version, Modules::open).threads) << version;
    EXPECT_TRUE(on_host(version, Modules::unknown).threads) << version << ": it may be so";
    EXPECT_FALSE(on_host(version, Modules::closed).threads) << version;
  }
  for (const char* version : {"525.60.13", "535.104.05", "570.148.08", "570.211.01", "575.57.08",
                              "580.65.06", "595.45.04"}) {
    EXPECT_FALSE(on_host(version, Modules::open).threads) << version;
  }
  EXPECT_FALSE(on_host("560.35.03", Modules::open).amounts_of_threads);
  EXPECT_TRUE(on_host("565.57.01", Modules::open).amounts_of_threads);
}

TEST(ListMeaning, InAPrivateNamespaceItDepends) {
  for (const char* version : {"525.60.13", "550.163.01", "580.65.06", "595.45.04"}) {
    EXPECT_EQ(inside(version, Modules::closed).pids, Pids::host) << version;
  }
  EXPECT_EQ(inside("535.104.05", Modules::open).pids, Pids::host);
  EXPECT_EQ(inside("535.104.05", Modules::unknown).pids, Pids::host);
  for (const char* version : {"535.113.01", "550.163.01", "560.35.03"}) {
    EXPECT_EQ(inside(version, Modules::open).pids, Pids::callers) << version;
    EXPECT_FALSE(inside(version, Modules::open).amounts) << version;
  }
  for (const char* version : {"565.57.01", "570.124.06", "580.65.06"}) {
    EXPECT_EQ(inside(version, Modules::open).pids, Pids::callers) << version;
    EXPECT_TRUE(inside(version, Modules::open).amounts) << version;
    EXPECT_EQ(inside(version, Modules::unknown).pids, Pids::unknown) << version;
  }
  EXPECT_EQ(inside("", Modules::open).pids, Pids::unknown);
}

TEST(ListMeaning, AThreadIsRememberedWhenItIsGone) {
  const ListMeaning threads = on_host("570.124.06", Modules::open);
  const ListMeaning processes = on_host("580.65.06", Modules::open);
  EXPECT_TRUE(stands_for_self(static_cast<uint32_t>(getpid()), processes));
  EXPECT_FALSE(stands_for_self(static_cast<uint32_t>(getppid()), threads));
  uint32_t seen = 0, not_seen = 0;
  std::thread([&] {
    seen = static_cast<uint32_t>(syscall(SYS_gettid));
    EXPECT_FALSE(stands_for_self(seen, processes));
    EXPECT_TRUE(stands_for_self(seen, threads));
  }).join();
  std::thread([&] { not_seen = static_cast<uint32_t>(syscall(SYS_gettid)); }).join();
  // The kernel takes a thread's number back a moment after it was joined.
  while (stands_for_self(not_seen, processes)) {
  }
  EXPECT_TRUE(stands_for_self(seen, threads));
  EXPECT_FALSE(stands_for_self(seen, processes)) << "another driver never lists it";
}

uint64_t sum_of(const ListedBytes& listed) {
  uint64_t bytes = 0;
  return listed.sum(bytes) ? bytes : UINT64_MAX;
}

TEST(ListedBytes, RepeatedEntriesAreTheSameMemory) {
  const ListMeaning meaning = inside("580.65.06", Modules::open);
  ListedBytes listed;
  EXPECT_EQ(sum_of(listed), 0u);
  EXPECT_FALSE(listed.any());
  listed.add({.pid = 7, .bytes = 100}, true, meaning);
  listed.add({.pid = 7, .bytes = 300}, true, meaning);
  listed.add({.pid = 7, .bytes = 200}, true, meaning);
  EXPECT_EQ(sum_of(listed), 300u);
  listed.add({.pid = 7, .gpu_instance = 1, .bytes = 50}, true, meaning);
  EXPECT_EQ(sum_of(listed), 350u) << "another instance has a part of its own";
}

TEST(ListedBytes, ThreadsHaveAPartEach) {
  const ListMeaning meaning = on_host("570.124.06", Modules::open);
  ListedBytes listed;
  listed.add({.pid = 8, .bytes = 100}, false, meaning);
  listed.add({.pid = 9, .bytes = 10}, false, meaning);
  listed.add({.pid = 9, .bytes = 10}, false, meaning);
  EXPECT_EQ(sum_of(listed), 110u);
}

TEST(ListedBytes, WhatADriverCannotTellIsNotToldAsNothing) {
  const ListMeaning by_process = on_host("550.163.01", Modules::open);
  ListedBytes listed;
  listed.add({.pid = 8, .bytes = 0}, false, by_process);
  EXPECT_TRUE(listed.any());
  EXPECT_EQ(sum_of(listed), UINT64_MAX);
  listed.add({.pid = 7, .bytes = 500}, true, by_process);
  EXPECT_EQ(sum_of(listed), 500u) << "the process's own number has all of it";
  ListedBytes hidden;
  hidden.add({.pid = 7, .bytes = 0}, true, inside("550.163.01", Modules::open));
  EXPECT_EQ(sum_of(hidden), UINT64_MAX);
}

}  // namespace
}  // namespace fracgpu::nvml
