// The parts of the driver for Kubernetes that need neither gRPC nor an API server: amounts, claims,
// slices, and the files of claims, whose making is ended at every system call.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "tools/dra/claim.h"
#include "tools/dra/claim_status.h"
#include "tools/dra/credentials.h"
#include "tools/dra/prepared_claims.h"
#include "tools/dra/quantity.h"
#include "tools/dra/slices.h"

namespace fracgpu::tools::dra {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(QuantityTest, ReadsWhatKubernetesWrites) {
  EXPECT_EQ(bytes_of("4Gi"), 4 * kGiB);
  EXPECT_EQ(bytes_of("40536Mi"), uint64_t{40536} << 20);
  EXPECT_EQ(bytes_of("0.5Gi"), kGiB / 2);
  EXPECT_EQ(bytes_of("4294967296"), 4 * kGiB);
  EXPECT_EQ(bytes_of("4G"), 4000000000u);
  EXPECT_EQ(bytes_of("4e9"), 4000000000u);
  EXPECT_EQ(bytes_of("1500m"), 1u);
  EXPECT_EQ(bytes_of("0"), 0u);
  for (const char* const text :
       {"", "Gi", "-1", "4GB", "4 Gi", "4gi", "4e99", "99999999999Gi", "."}) {
    EXPECT_FALSE(bytes_of(text)) << text;
  }
}

TEST(QuantityTest, WritesTheShortestBinaryForm) {
  EXPECT_EQ(quantity_of(40 * kGiB), "40Gi");
  EXPECT_EQ(quantity_of(uint64_t{40536} << 20), "40536Mi");
  EXPECT_EQ(quantity_of(1000), "1000");
  EXPECT_EQ(quantity_of(0), "0");
}

std::vector<Device> two_gpus() {
  std::vector<Device> all;
  for (const char* const key : {"GPU-aa", "GPU-bb"}) {
    Device device;
    device.key = device.uuid = key;
    device.name = device.key == "GPU-aa" ? "gpu-aa" : "gpu-bb";
    device.type = "gpu";
    device.cdi = "nvidia.com/gpu=" + device.key;
    device.memory = 40 * kGiB;
    all.push_back(device);
  }
  return all;
}

Json allocated(const std::string& results, const std::string& more = "",
               const std::string& requests = "") {
  return Json::parse(R"({"metadata": {"namespace": "team", "name": "share", "uid": "u-1"},
    "spec": {"devices": {"requests": [)" +
                     requests + R"(]}},
    "status": {"allocation": {"devices": {"results": [)" +
                     results + "]" + more + "}}}}");
}

std::string result(const std::string& device, const std::string& memory,
                   const std::string& request = "gpu") {
  return R"({"driver": "fracgpu.dev", "pool": "node", "device": ")" + device +
         R"(", "request": ")" + request + R"(", "shareID": "s", "consumedCapacity": {"memory": ")" +
         memory + "\"}}";
}

std::string refusal(const Json& object) {
  try {
    read_claim(object, "u-1", two_gpus());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(ClaimTest, IsWhatTheSchedulerGave) {
  const Claim claim =
      read_claim(allocated(result("gpu-aa", "4Gi") + "," + result("gpu-bb", "1Gi", "other/small") +
                           R"(,{"driver": "nic.example", "device": "eth0"})"),
                 "u-1", two_gpus());
  EXPECT_EQ(claim.label(), "team/share");
  ASSERT_EQ(claim.devices.size(), 2u);
  EXPECT_EQ(claim.devices[0].cdi, "nvidia.com/gpu=GPU-aa");
  EXPECT_EQ(claim.devices[0].share_id, "s");
  EXPECT_EQ(claim.devices[1].request, "other");
  EXPECT_EQ(claim.caps.at("GPU-aa"), 4 * kGiB);
  EXPECT_EQ(claim.caps.at("GPU-bb"), kGiB);
}

TEST(ClaimTest, PartsOfOneDeviceAreOneCap) {
  const Claim claim =
      read_claim(allocated(result("gpu-aa", "4Gi", "a") + "," + result("gpu-aa", "3Gi", "b")),
                 "u-1", two_gpus());
  EXPECT_EQ(claim.devices.size(), 2u);
  EXPECT_EQ(claim.caps.at("GPU-aa"), 7 * kGiB);
}

TEST(ClaimTest, HasNoMoreDevicesThanATenant) {
  std::vector<Device> devices;
  std::string results;
  for (int i = 0; i < 129; ++i) {
    devices.push_back(two_gpus()[0]);
    devices.back().key += std::to_string(i);
    devices.back().name += std::to_string(i);
    results += (i == 0 ? "" : ",") + result(devices.back().name, "1Gi");
  }
  try {
    read_claim(allocated(results), "u-1", devices);
    ADD_FAILURE() << "129 devices";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("129 devices, and a tenant may use 128"),
              std::string::npos)
        << error.what();
  }
}

TEST(ClaimTest, WhatCannotBePreparedIsRefusedInOneLine) {
  const std::pair<Json, const char*> bad[] = {
      {Json::parse(R"({"metadata": {"uid": "u-1"}})"), "not allocated"},
      {Json::parse(R"({"metadata": {"uid": "u-2"}})"), "another claim"},
      {allocated(""), "no device of fracgpu.dev"},
      {allocated(result("gpu-cc", "4Gi")), "does not have any more"},
      {allocated(result("gpu-aa", "0")), "cannot be had"},
      {allocated(result("gpu-aa", "41Gi")), "cannot be had of device gpu-aa, which has 40Gi"},
      {allocated(R"({"driver": "fracgpu.dev", "device": "gpu-aa"})"), "without an amount"},
      {allocated(R"({"driver": "fracgpu.dev", "device": "gpu-aa", "adminAccess": true})"),
       "adminAccess"},
      {allocated(result("gpu-aa", "256Mi"), "",
                 R"({"name": "r", "exactly": {"capacity": {"requests": {"memory": "0"}}}})"),
       "request 'r' asks for '0' of memory"},
  };
  for (const auto& [object, why] : bad) {
    const std::string said = refusal(object);
    EXPECT_NE(said.find(why), said.npos) << why << ": " << said;
    EXPECT_EQ(said.find('\n'), said.npos) << said;
  }
  EXPECT_EQ(refusal(allocated(result("gpu-aa", "4Gi"),
                              R"(,"config": [{"opaque": {"driver": "another.example"}}])")),
            "");
}

// A claim of one device of each request, with these configurations.
Json configured(const std::string& configurations) {
  return allocated(result("gpu-aa", "4Gi", "a") + "," + result("gpu-bb", "4Gi", "b/small"),
                   R"(,"config": [)" + configurations + "]");
}

std::string configuration(const std::string& parameters, const std::string& source = "FromClaim",
                          const std::string& requests = "") {
  return R"({"source": ")" + source + R"(", "requests": [)" + requests +
         R"(], "opaque": {"driver": "fracgpu.dev", "parameters": )" + parameters + "}}";
}

std::string parameters(const std::string& more) {
  return R"({"apiVersion": "fracgpu.dev/v1", "kind": "ClaimParameters")" + more + "}";
}

TEST(ParametersTest, BecomeTheEnvironmentOfTheContainers) {
  using Environment = std::map<std::string, std::string>;
  const auto environment = [](const std::string& configurations) {
    return read_claim(configured(configurations), "u-1", two_gpus()).environment;
  };
  EXPECT_EQ(environment(""), Environment{});
  EXPECT_EQ(environment(configuration(parameters(""))), Environment{});
  EXPECT_EQ(environment(configuration(parameters(R"(, "log": "info", "nvml": false)"))),
            (Environment{{"FRACGPU_LOG", "info"}, {"FRACGPU_NVML", "off"}}));
  // The claim's word counts more than its class's, wherever it stands.
  const std::string of_class =
      configuration(parameters(R"(, "log": "debug", "nvml": true)"), "FromClass", R"("a")");
  const std::string of_claim =
      configuration(parameters(R"(, "log": "off")"), "FromClaim", R"("a", "b")");
  for (const std::string& both : {of_class + "," + of_claim, of_claim + "," + of_class}) {
    EXPECT_EQ(environment(both), (Environment{{"FRACGPU_LOG", "off"}, {"FRACGPU_NVML", "on"}}));
  }
}

TEST(ParametersTest, WhatIsNotUnderstoodIsRefusedWithWhatIs) {
  const std::pair<std::string, const char*> bad[] = {
      {configuration("null"), "is not an object"},
      {configuration("[]"), "is not an object"},
      {configuration(R"({"kind": "ClaimParameters"})"), "has apiVersion: 'null'"},
      {configuration(R"({"apiVersion": "fracgpu.dev/v2", "kind": "ClaimParameters"})"),
       "fracgpu.dev/v2"},
      {configuration(R"({"apiVersion": "fracgpu.dev/v1", "kind": "X"})"), "has kind:"},
      {configuration(parameters(R"(, "priority": 3)")), "priority"},
      {configuration(parameters(R"(, "Log": "info")")), "Log"},
      {configuration(parameters(R"(, "log": "loud")")), "loud"},
      {configuration(parameters(R"(, "log": false)")), "has log: 'false'"},
      {configuration(parameters(R"(, "nvml": "off")")), "neither true nor false"},
      {configuration(parameters(R"(, "log": "info")"), "FromClaim", R"("a")"),
       "is not for request"},
      {configuration(parameters(R"(, "log": "info")")) + "," +
           configuration(parameters(R"(, "log": "warn")")),
       "gives FRACGPU_LOG two values, info and warn"},
      {configuration(parameters(R"(, "nvml": 0)"), "FromClass"), "neither true nor false"},
  };
  for (const auto& [configurations, why] : bad) {
    const std::string said = refusal(configured(configurations));
    EXPECT_NE(said.find(why), said.npos) << why << ": " << said;
    EXPECT_NE(said.find("accepted: apiVersion: fracgpu.dev/v1, kind: ClaimParameters, log: "),
              said.npos)
        << said;
    EXPECT_EQ(said.find('\n'), said.npos) << said;
  }
}

TEST(ClaimStatusTest, SaysWhatIsCappedOrWhyNot) {
  Json object =
      allocated(result("gpu-aa", "4Gi") + R"(,{"driver": "nic.example", "device": "eth0"})");
  const auto good = status_of(object, "");
  ASSERT_TRUE(good);
  EXPECT_EQ((*good)["metadata"].dump_ascii(-1),
            R"({"name":"share","namespace":"team","uid":"u-1"})");
  ASSERT_EQ((*good)["status"]["devices"].items().size(), 1u) << "the others are not ours";
  const Json& device = (*good)["status"]["devices"].items()[0];
  EXPECT_EQ(device["device"].text() + " " + device["pool"].text() + " " + device["shareID"].text(),
            "gpu-aa node s");
  EXPECT_EQ(device["data"].dump_ascii(-1), R"({"memory":"4Gi","tenant":"claim-u-1"})");
  const Json& condition = device["conditions"].items().at(0);
  EXPECT_EQ(condition["type"].text() + " " + condition["status"].text(), "Ready True");
  EXPECT_EQ(condition["message"].text(), "capped at 4Gi of memory, as tenant claim-u-1");
  // Kubelet has claims prepared again and again.
  object["status"]["devices"] = (*good)["status"]["devices"];
  EXPECT_FALSE(status_of(object, ""));
  const auto bad = status_of(object, "it is broken");
  ASSERT_TRUE(bad);
  const Json& fault = (*bad)["status"]["devices"].items().at(0);
  EXPECT_FALSE(fault.contains("data"));
  EXPECT_EQ(fault["conditions"].items().at(0)["status"].text(), "False");
  EXPECT_EQ(fault["conditions"].items().at(0)["message"].text(), "it is broken");
  EXPECT_FALSE(status_of(allocated(R"({"driver": "nic.example", "device": "eth0"})"), ""));
}

TEST(ClaimStatusTest, AnEventSaysTheSameOnce) {
  const Json object = allocated(result("gpu-aa", "4Gi") + "," + result("gpu-bb", "2Gi"));
  const Json event = event_of(object, *status_of(object, ""), "node-a");
  EXPECT_EQ(event["message"].text(),
            "gpu-aa: capped at 4Gi of memory, as tenant claim-u-1; "
            "gpu-bb: capped at 2Gi of memory, as tenant claim-u-1");
  EXPECT_EQ(event["type"].text() + " " + event["reason"].text(), "Normal Capped");
  EXPECT_EQ(event["involvedObject"].dump_ascii(-1),
            R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim",)"
            R"("name":"share","namespace":"team","uid":"u-1"})");
  const Json bad = event_of(object, *status_of(object, "it is broken"), "node-a");
  EXPECT_EQ(bad["type"].text() + " " + bad["reason"].text() + " " + bad["message"].text(),
            "Warning Refused it is broken");
  const auto name = [](const Json& of) { return of["metadata"]["name"].text(); };
  EXPECT_EQ(name(event), name(event_of(object, *status_of(object, ""), "node-a")));
  EXPECT_NE(name(event), name(event_of(object, *status_of(object, ""), "node-b")));
  EXPECT_NE(name(event), name(bad));
  EXPECT_EQ(name(event).rfind("share.", 0), 0u);
}

const Json kOwner = {{"kind", "Node"}, {"name", "node"}, {"uid", "n-1"}};

// What the server keeps of what is made: a name, and defaults of its own.
std::vector<Json> stored(const std::vector<Json>& made) {
  std::vector<Json> all;
  for (Json slice : made) {
    if (slice["metadata"].value("name", "").empty()) {
      slice["metadata"]["name"] = "fracgpu-" + std::to_string(all.size());
    }
    slice["spec"]["added"] = "by the server";
    all.insert(all.begin(), slice);  // in no order
  }
  return all;
}

TEST(SlicesTest, ADeviceSaysWhatItIsAndWhatCanBeAskedOfIt) {
  const Json spec = slices_of(two_gpus(), "node", 7).at(0);
  EXPECT_EQ(spec["pool"].dump_ascii(-1),
            R"({"name":"node","generation":7,"resourceSliceCount":1})");
  const Json& first = spec["devices"].items()[0];
  EXPECT_EQ(first["name"].text(), "gpu-aa");
  EXPECT_TRUE(first.value("allowMultipleAllocations", false));
  EXPECT_EQ(first["attributes"]["uuid"].dump_ascii(-1), R"({"string":"GPU-aa"})");
  EXPECT_FALSE(first["attributes"].contains("productName")) << "it is not known";
  EXPECT_EQ(
      first["capacity"]["memory"].dump_ascii(-1),
      R"({"value":"40Gi","requestPolicy":{"default":"40Gi","validRange":{"min":"256Mi","max":"40Gi","step":"1Mi"}}})");
}

TEST(SlicesTest, NothingIsChangedWhereNothingChanged) {
  const SliceChanges made = changes_to({}, two_gpus(), "node", kOwner);
  ASSERT_EQ(made.create.size(), 1u);
  EXPECT_EQ(made.create[0]["metadata"]["ownerReferences"].items().size(), 1u);
  EXPECT_TRUE(changes_to(stored(made.create), two_gpus(), "node", kOwner).empty());
}

std::vector<Device> many_gpus(size_t count) {
  std::vector<Device> all;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(two_gpus()[0]);
    all.back().name = "gpu-" + std::to_string(1000 + i);
  }
  return all;
}

TEST(SlicesTest, AChangeIsANewGenerationOfTheWholePool) {
  std::vector<Json> there = stored(changes_to({}, many_gpus(150), "node", kOwner).create);
  ASSERT_EQ(there.size(), 3u);
  EXPECT_TRUE(changes_to(there, many_gpus(150), "node", kOwner).empty());
  const SliceChanges fewer = changes_to(there, many_gpus(100), "node", kOwner);
  EXPECT_EQ(fewer.create.size(), 0u);
  ASSERT_EQ(fewer.replace.size(), 2u);
  EXPECT_EQ(fewer.remove.size(), 1u);
  size_t devices = 0;
  for (const Json& slice : fewer.replace) {
    EXPECT_EQ(slice["spec"]["pool"].dump_ascii(-1),
              R"({"name":"node","generation":2,"resourceSliceCount":2})");
    EXPECT_FALSE(slice["metadata"].value("name", "").empty());
    devices += slice["spec"]["devices"].items().size();
  }
  EXPECT_EQ(devices, 100u);
  // One that somebody has deleted, or that was never made.
  there.pop_back();
  const SliceChanges repaired = changes_to(there, many_gpus(150), "node", kOwner);
  EXPECT_EQ(repaired.create.size(), 1u);
  EXPECT_EQ(repaired.replace.size(), 2u);
  // All of them gone.
  EXPECT_EQ(changes_to(there, {}, "node", kOwner).remove.size(), 2u);
}

TEST(CredentialsTest, AreReadFromWhatKubectlWrites) {
  char folder[] = "/tmp/dra-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/config";
  std::ofstream(std::string(folder) + "/ca") << "PEM";
  std::ofstream(path) << R"({"current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://h:1", "certificate-authority": "ca"}}],
    "users": [{"name": "u", "user": {"token": "t", "client-key-data": "a2V5IQ=="}}]})";
  const Credentials found = find_credentials(path);
  EXPECT_EQ(found.server, "https://h:1");
  EXPECT_EQ(found.authority, "PEM");
  EXPECT_EQ(found.key, "key!");
  EXPECT_EQ(found.token, "t");
  std::ofstream(path) << "apiVersion: v1\n";
  try {
    find_credentials(path);
    ADD_FAILURE() << "it is YAML";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("kubectl config view"), std::string::npos);
  }
  fs::remove_all(folder);
}

std::string whole(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class PreparedClaimsTest : public testing::Test {
 protected:
  PreparedClaimsTest() {
    char folder[] = "/tmp/dra-test-XXXXXX";
    folder_ = mkdtemp(folder);
    claim_.space = "team";
    claim_.name = "share";
    claim_.uid = "unit-test-" + std::to_string(getpid());
    claim_.caps = {{"GPU-aa", 4 * kGiB}, {"GPU-bb", kGiB}};
    paths_.node = {.library = "/lib/libfracgpu.so", .command = "/bin/fracgpu", .files = "/files"};
    paths_.cdi = folder_ + "/cdi";
    paths_.run = folder_ + "/run";
  }
  ~PreparedClaimsTest() override {
    fs::remove_all(folder_);
    unlink(ledger().c_str());
  }

  std::string ledger() const { return "/dev/shm/fracgpu-claim-" + claim_.uid; }

  // What lies on the node, with what stands in it, but for the lock.
  std::string state() const {
    std::vector<std::string> lines;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().filename() == "claims.lock") continue;
      lines.push_back(entry.path().string() +
                      (entry.is_regular_file() ? ": " + whole(entry.path().string()) : ""));
    }
    std::sort(lines.begin(), lines.end());
    std::ostringstream all;
    for (const std::string& line : lines) all << line << "\n";
    all << (fs::exists(ledger()) ? "ledger" : "no ledger");
    return all.str();
  }

  // An engine that finds a device finds all that it mounts, whole.
  void check_devices() const {
    for (const auto& entry : fs::directory_iterator(paths_.cdi)) {
      if (entry.path().extension() != ".json") continue;
      const Json spec = Json::parse(whole(entry.path().string()));
      for (const Json& mount : spec["devices"].items().at(0)["containerEdits"]["mounts"].items()) {
        const std::string path = mount.value("hostPath", "");
        ASSERT_TRUE(fs::exists(path)) << path;
        ASSERT_NE(fs::file_size(path), 0u) << path;
      }
    }
  }

  // Ends a child that does this at its `number`-th system call; false when it ended before.
  template <typename Body>
  static bool ended_at(int number, Body body) {
    fflush(stdout);  // a sanitizer writes at _exit what stdio still holds
    const pid_t child = fork();
    if (child == 0) {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      raise(SIGSTOP);
      body();
      _exit(0);
    }
    int status = 0;
    for (int stops = 0;; ++stops) {
      if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
        return false;
      }
      if (stops == number) break;
      ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return true;
  }

  std::string folder_;
  Claim claim_;
  ClaimPaths paths_;
};

TEST_F(PreparedClaimsTest, ADeviceMountsTheCapTheTenantAndTheLedger) {
  PreparedClaims claims(paths_);
  const std::string empty = state();
  EXPECT_EQ(claims.prepare(claim_), "fracgpu.dev/claim=" + claim_.uid);
  const std::string here = paths_.run + "/claims/" + claim_.uid;
  const std::string ceiling = whole(here + "/limit.conf");
  EXPECT_NE(ceiling.find("\nGPU-aa=4294967296B\nGPU-bb=1073741824B\n512B\n"), ceiling.npos)
      << ceiling;
  EXPECT_EQ(whole(here + "/tenant"), "claim-" + claim_.uid + "\n");
  EXPECT_EQ(whole(here + "/name"), "team/share\n");
  const std::string path = paths_.cdi + "/fracgpu.dev-claim-" + claim_.uid + ".json";
  const Json spec = Json::parse(whole(path));
  EXPECT_EQ(spec["kind"].text(), "fracgpu.dev/claim");
  std::string mounts;
  for (const Json& mount : spec["devices"].items().at(0)["containerEdits"]["mounts"].items()) {
    mounts += mount["hostPath"].text() + " " + mount["containerPath"].text() + " " +
              mount["options"].items().at(0).text() + "\n";
  }
  EXPECT_EQ(mounts, here + "/limit.conf /etc/fracgpu/limit.conf ro\n" + here +
                        "/tenant /etc/fracgpu/tenant ro\n" + ledger() + " " + ledger() + " rw\n");
  EXPECT_EQ(claims.uids(), std::vector<std::string>{claim_.uid});
  EXPECT_FALSE(spec["devices"].items().at(0)["containerEdits"].contains("env"));
  claims.unprepare(claim_.uid);
  EXPECT_EQ(state(), empty);
  claims.unprepare(claim_.uid);
  EXPECT_EQ(state(), empty);
  claim_.environment = {{"FRACGPU_LOG", "info"}, {"FRACGPU_NVML", "off"}};
  claims.prepare(claim_);
  EXPECT_EQ(
      Json::parse(whole(path))["devices"].items().at(0)["containerEdits"]["env"].dump_ascii(-1),
      R"(["FRACGPU_LOG=info","FRACGPU_NVML=off"])");
}

TEST_F(PreparedClaimsTest, AgainItChangesNothingButWhatDiffers) {
  PreparedClaims claims(paths_);
  claims.prepare(claim_);
  const std::string before = state();
  const std::string path = paths_.cdi + "/fracgpu.dev-claim-" + claim_.uid + ".json";
  const auto written = fs::last_write_time(path);
  PreparedClaims(paths_).prepare(claim_);
  EXPECT_EQ(state(), before);
  EXPECT_EQ(fs::last_write_time(path), written);
  claim_.caps["GPU-bb"] = 2 * kGiB;
  claims.prepare(claim_);
  EXPECT_NE(state(), before);
}

TEST_F(PreparedClaimsTest, WhoeverIsKilledAnywhereIsRepairedByTheNext) {
  PreparedClaims claims(paths_);
  const std::string empty = state();
  claims.prepare(claim_);
  const std::string prepared = state();
  claims.unprepare(claim_.uid);
  const auto prepare = [&] { PreparedClaims(paths_).prepare(claim_); };
  const auto unprepare = [&] { PreparedClaims(paths_).unprepare(claim_.uid); };
  int ended = 0;
  for (int number = 1; ended_at(number, prepare); ++number, ++ended) {
    check_devices();
    if (number % 2 == 0) {
      claims.prepare(claim_);
      ASSERT_EQ(state(), prepared) << "after " << number << " stops";
    }
    claims.unprepare(claim_.uid);
    ASSERT_EQ(state(), empty) << "after " << number << " stops";
  }
  EXPECT_GT(ended, 40) << "prepare makes so few system calls?";
  ended = 0;
  for (int number = 1;; ++number, ++ended) {
    claims.prepare(claim_);
    if (!ended_at(number, unprepare)) break;
    check_devices();
    if (number % 2 == 0) {
      claims.prepare(claim_);
      ASSERT_EQ(state(), prepared) << "after " << number << " stops";
    }
    claims.unprepare(claim_.uid);
    ASSERT_EQ(state(), empty) << "after " << number << " stops";
  }
  EXPECT_GT(ended, 10) << "unprepare makes so few system calls?";
}

TEST_F(PreparedClaimsTest, ManyAtOnceDoNotDisturbEachOther) {
  PreparedClaims claims(paths_);
  const std::string empty = state();
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      Claim own = claim_;
      own.uid += i % 2 == 0 ? "" : "-" + std::to_string(i);  // the same one, and others
      try {
        for (int round = 0; round < 50; ++round) {
          PreparedClaims mine(paths_);
          mine.prepare(own);
          mine.unprepare(own.uid);
        }
      } catch (const std::exception& error) {
        ++failed;
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(state(), empty);
}

TEST_F(PreparedClaimsTest, WhatIsNoUidLeadsNowhere) {
  PreparedClaims claims(paths_);
  for (const char* const uid : {"", "../x", "a/b", "a b"}) {
    claim_.uid = uid;
    EXPECT_THROW(claims.prepare(claim_), std::runtime_error) << uid;
    EXPECT_THROW(claims.unprepare(uid), std::runtime_error) << uid;
  }
  claim_.uid = "unit-test-" + std::to_string(getpid());
}

}  // namespace
}  // namespace fracgpu::tools::dra
