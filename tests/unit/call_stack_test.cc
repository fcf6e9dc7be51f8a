// Call stacks by rules that are wrong, as one that was kept of an object that is not loaded any
// more: no memory beside the stack may be read.
#include "shim/base/call_stack.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "shim/base/frame_rules.h"
#include "tests/unit/child.h"

namespace fracgpu {
namespace {

constexpr size_t kStack = 256u << 10, kBeside = 4u << 20;

FrameRules rules;
FrameRule wrong;
int taken = -1;

[[gnu::noinline]] void take() {
  rules.enter(reinterpret_cast<uint64_t>(__builtin_return_address(0)), wrong);
  uint64_t frames[32];
  taken = static_cast<int>(take_call_stack(frames, 32, &rules));
}

void run() {
  take();
  asm volatile("" ::: "memory");  // so that `take` returns to here
}

// Takes a call stack on one that the program has made for itself, between memory that cannot be
// read.
int status_with(const FrameRule& rule) {
  return status_of_child([&] {
    wrong = rule;
    void* const memory =
        mmap(nullptr, kStack + 2 * kBeside, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    char* const stack = static_cast<char*>(memory) + kBeside;
    if (mprotect(stack, kStack, PROT_READ | PROT_WRITE) != 0) return 2;
    ucontext_t before, own;
    getcontext(&own);
    own.uc_stack.ss_sp = stack;
    own.uc_stack.ss_size = kStack;
    own.uc_link = &before;
    makecontext(&own, run, 0);
    swapcontext(&before, &own);
    return taken >= 0 ? 0 : 3;
  });
}

TEST(CallStackTest, WrongRulesDoNotLeadOutOfTheStack) {
  using Form = FrameRule::Form;
  EXPECT_EQ(status_with({.form = Form::by_rsp, .cfa_offset = 16}), 0);
  EXPECT_EQ(status_with({.form = Form::by_rsp, .cfa_offset = 1 << 20}), 0) << "above";
  EXPECT_EQ(status_with({.form = Form::by_rsp, .cfa_offset = -(1 << 20)}), 0) << "below";
  EXPECT_EQ(status_with(
                {.form = Form::by_rsp, .cfa_offset = 16, .saves_rbp = true, .rbp_offset = 1 << 20}),
            0)
      << "the frame pointer is saved above";
  EXPECT_EQ(
      status_with(
          {.form = Form::by_rsp, .cfa_offset = 16, .saves_rbp = true, .rbp_offset = -(1 << 20)}),
      0)
      << "the frame pointer is saved below";
}

}  // namespace
}  // namespace fracgpu
