// The root-owned ceiling: the environment can lower it and never raise it, and a ceiling that
// cannot be trusted refuses.
#include <unistd.h>

#include <utility>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class CeilingTest : public Rig {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace";
  }
  // Runs the client with /etc/fracgpu/limit.conf holding `content`, made by `more` shell commands.
  Outcome with_ceiling(const std::string& content, const Environment& environment,
                       const std::string& more = "true") {
    const std::string script = "mount -t tmpfs none /etc && mkdir /etc/fracgpu && printf '%b' '" +
                               content + "' > /etc/fracgpu/limit.conf && " + more +
                               " && exec " TEST_CLIENT " init retain total";
    return run({"unshare", "-m", "sh", "-c", script}, environment);
  }
  long long total(const Outcome& outcome) { return field(line_of(outcome.out, "total"), "bytes="); }
  Environment without_limit() {
    Environment environment = capped("");
    environment.erase("FRACGPU_MEMORY_LIMIT");
    return environment;
  }
};

TEST_F(CeilingTest, HoldsWithoutAnyEnvironment) {
  EXPECT_EQ(total(with_ceiling("4GiB\\n", without_limit())), 4 * kGiB);
  EXPECT_EQ(total(with_ceiling("# the image of 4 GB\\n\\n  4gb  # cap\\n", without_limit())),
            4 * kGiB);
  EXPECT_EQ(total(with_ceiling("1=2GiB\\n0=3GiB", without_limit())), 3 * kGiB);
}

TEST_F(CeilingTest, EnvironmentLowersAndNeverRaises) {
  EXPECT_EQ(total(with_ceiling("4GiB\\n", capped("2GiB"))), 2 * kGiB);
  EXPECT_EQ(total(with_ceiling("4GiB\\n", capped("8GiB"))), 4 * kGiB);
  EXPECT_EQ(total(with_ceiling("4GiB\\n", capped("100%"))), 4 * kGiB);
  EXPECT_EQ(total(with_ceiling("4GiB\\n", capped(uuid() + "=8GiB"))), 4 * kGiB);
}

TEST_F(CeilingTest, MalformedOrUntrustedRefuses) {
  for (const char* content : {"", "lots\\n", "4GiB 5GiB", "# nothing\\n", "4GiB\\n4GiB\\n"}) {
    const Outcome outcome = with_ceiling(content, capped("2GiB"));
    EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << content;
    EXPECT_NE(outcome.err.find("/etc/fracgpu/limit.conf"), std::string::npos) << outcome.err;
  }
  for (const char* spoil :
       {"chmod 666 /etc/fracgpu/limit.conf", "chown 1000 /etc/fracgpu/limit.conf",
        "mv /etc/fracgpu/limit.conf /etc/x && ln -s /etc/x /etc/fracgpu/limit.conf",
        "rm /etc/fracgpu/limit.conf && mkdir /etc/fracgpu/limit.conf"}) {
    const Outcome outcome = with_ceiling("4GiB\\n", capped("2GiB"), spoil);
    EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << spoil << outcome.err;
    EXPECT_NE(outcome.err.find("/etc/fracgpu/limit.conf"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 0u);
}

// Kubernetes shows a ConfigMap as links to links, which it exchanges when the map changes.
constexpr char kConfigMap[] =
    "mkdir /etc/fracgpu/..2026_01_01 && mv /etc/fracgpu/limit.conf /etc/fracgpu/..2026_01_01 && "
    "ln -s ..2026_01_01 /etc/fracgpu/..data && ln -s ..data/limit.conf /etc/fracgpu/limit.conf";

TEST_F(CeilingTest, AConfigMapsLinksAreFollowed) {
  EXPECT_EQ(total(with_ceiling("4GiB\\n", without_limit(), kConfigMap)), 4 * kGiB);
  EXPECT_EQ(total(with_ceiling("4GiB\\n", capped("8GiB"), kConfigMap)), 4 * kGiB);
  // A folder that is a link is what it leads to.
  EXPECT_EQ(total(with_ceiling("4GiB\\n", without_limit(),
                               "mv /etc/fracgpu /etc/f && ln -s f /etc/fracgpu")),
            4 * kGiB);
}

TEST_F(CeilingTest, WhatLeadsNowhereOrCannotBeReadIsClosedAndNotOpen) {
  const std::string configmap = std::string(kConfigMap) + " && ";
  const std::pair<std::string, const char*> spoilt[] = {
      {"rm /etc/fracgpu/limit.conf && ln -s gone /etc/fracgpu/limit.conf", "leads nowhere"},
      {configmap + "rm -r /etc/fracgpu/..2026_01_01", "leads nowhere"},
      {configmap + "rm /etc/fracgpu/..data", "leads nowhere"},
      {"rm -r /etc/fracgpu && ln -s gone /etc/fracgpu", "leads nowhere"},
      {"rm /etc/fracgpu/limit.conf && ln -s limit.conf /etc/fracgpu/limit.conf", "too many links"},
      {"mv /etc/fracgpu/limit.conf /etc/x && ln -s ../x /etc/fracgpu/limit.conf",
       "leads out of its folder"},
      {configmap + "mv /etc/fracgpu/..2026_01_01 /etc/d && rm /etc/fracgpu/..data && "
                   "ln -s /etc/d /etc/fracgpu/..data",
       "leads out of its folder"},
      {"rm -r /etc/fracgpu && echo 4GiB > /etc/fracgpu", "not a folder"},
  };
  for (const auto& [spoil, why] : spoilt) {
    const Outcome outcome = with_ceiling("4GiB\\n", without_limit(), spoil);
    EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << spoil << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << spoil << outcome.err;
  }
  // For a user whom permissions hold off.
  for (const char* const spoil : {"chmod 700 /etc/fracgpu", "chmod 600 /etc/fracgpu/limit.conf"}) {
    const Outcome outcome =
        with_ceiling("4GiB\\n", without_limit(),
                     std::string(spoil) + " && exec setpriv --reuid 4711 --clear-groups " +
                         TEST_CLIENT + " init retain total");
    EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << spoil << outcome.err;
    EXPECT_NE(outcome.err.find("permission denied"), std::string::npos) << spoil << outcome.err;
  }
  EXPECT_EQ(node_->tenant_high_water(0, tenant_), 0u);
}

// The tenant's name, likewise.
std::string tenant_file(const std::string& text) {
  return "printf '%b' '" + text + "' >/etc/fracgpu/tenant";
}

TEST_F(CeilingTest, ATenantFileNamesTheTenantWhateverTheEnvironmentSays) {
  Environment environment = without_limit();
  environment["FRACGPU_TENANT"] = "another";
  environment["FRACGPU_LOG"] = "info";
  for (const std::string& text : {tenant_ + "\\n", tenant_}) {
    const Outcome outcome = with_ceiling("4GiB\\n", environment, tenant_file(text));
    EXPECT_EQ(total(outcome), 4 * kGiB);
    EXPECT_NE(outcome.err.find("joined tenant " + tenant_ + " "), std::string::npos) << outcome.err;
  }
  // In a container as well, in which all processes would be one tenant without it.
  const Outcome inside = with_ceiling(
      "4GiB\\n", environment,
      tenant_file(tenant_) + " && exec unshare --uts " TEST_CLIENT " init retain total");
  EXPECT_NE(inside.err.find("joined tenant " + tenant_ + " "), std::string::npos) << inside.err;
}

TEST_F(CeilingTest, ATenantFileThatIsMalformedOrUntrustedRefuses) {
  const std::string spoilt[] = {
      tenant_file(""),
      tenant_file("two names"),
      tenant_file("one\\ntwo\\n"),
      tenant_file("../x"),
      tenant_file("x") + " && chmod 666 /etc/fracgpu/tenant",
      tenant_file("x") + " && chown 1000 /etc/fracgpu/tenant",
      "ln -s gone /etc/fracgpu/tenant",
      "mkdir /etc/fracgpu/tenant",
  };
  for (const std::string& spoil : spoilt) {
    const Outcome outcome = with_ceiling("4GiB\\n", without_limit(), spoil);
    EXPECT_EQ(field(line_of(outcome.out, "retain"), "rc="), 2) << spoil << outcome.err;
    EXPECT_NE(outcome.err.find("/etc/fracgpu/tenant"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace fracgpu::test
