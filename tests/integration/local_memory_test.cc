// Kernels' local memory (FRACGPU_RESERVE_LOCAL): room for it is kept from when a program gets the
// function, or what a launch took is charged at the next call.
#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

// A function of 16,384 bytes takes 15 KiB more than the context has for each of 108 times 2,048
// threads.
constexpr uint64_t kLocal = 3240 * kMiB;

class LocalMemory : public Rig {
 protected:
  std::unique_ptr<Program> start(const std::vector<std::string>& commands, const Environment& extra,
                                 const char* limit = "8GiB") {
    std::vector<std::string> args = {TEST_REPEAT_CLIENT, "load", "2"};
    args.insert(args.end(), commands.begin(), commands.end());
    args.push_back("wait");
    return std::make_unique<Program>(args, capped(limit) + extra);
  }
  static int64_t last_rc(Program& program) {
    const auto lines = program.read_until_ready();
    return lines.empty() ? -1 : field(lines.back(), "rc=");
  }
};

TEST_F(LocalMemory, IsChargedWithTheFunction) {
  for (const char* got : {"function", "kernel"}) {
    for (const Environment& extra : {Environment{}, Environment{{"FRACGPU_NVML", "off"}}}) {
      auto program = start({"wait", got, "local 16384", "wait", "go"}, extra);
      EXPECT_EQ(last_rc(*program), 0);
      const uint64_t before = ledger().held(key(), program->pid());
      program->go_on();
      EXPECT_EQ(last_rc(*program), 0) << got;
      const uint64_t after = ledger().held(key(), program->pid());
      EXPECT_GE(after, before + kLocal) << got;
      program->go_on();
      EXPECT_EQ(last_rc(*program), 0) << got;
      EXPECT_GE(after, node_->used_by_pid(0, program->pid()))
          << got << ": the launch takes nothing";
    }
  }
}

TEST_F(LocalMemory, ThatDoesNotFitIsRefusedWithTheFunction) {
  for (const char* got : {"function", "kernel"}) {
    auto program = start({got, "local 16384"}, {{"FRACGPU_RESERVE_LOCAL", "on"}}, "3GiB");
    EXPECT_EQ(last_rc(*program), 2) << got;
    EXPECT_LE(node_->tenant_high_water(0, tenant_), 3072 * kMiB) << got;
    program->go_on();
    EXPECT_NE(program->finish().err.find("refused on"), std::string::npos) << got;
  }
}

// Within the lease, where nothing else would look.
TEST_F(LocalMemory, ThatALaunchTookIsSeenByTheNextCall) {
  for (const char* next : {"alloc", "looks"}) {
    auto program = start({"alloc", "1", "function", "local 16384", "alloc", "1", "go", next, "1"},
                         {{"FRACGPU_RESERVE_LOCAL", "off"}});
    EXPECT_EQ(last_rc(*program), 0) << next;
    EXPECT_GE(ledger().held(key(), program->pid()), node_->used_by_pid(0, program->pid())) << next;
    EXPECT_GE(node_->used_by_pid(0, program->pid()), kLocal) << next;
  }
}

TEST_F(LocalMemory, ComesAtTheLaunchWhereCodeIsLoadedEagerly) {
  auto program = start({"function", "local 16384"}, {{"CUDA_MODULE_LOADING", "EAGER"}});
  EXPECT_EQ(last_rc(*program), 0);
  EXPECT_LT(node_->used_by_pid(0, program->pid()), kLocal);
}

}  // namespace
}  // namespace fracgpu::test
