// The one call that a stub makes, apart from the vendor's headers, whose prototypes stubs do not
// have.
#ifndef FRACGPU_TESTS_SIM_HSA_STUB_ENTRY_H_
#define FRACGPU_TESTS_SIM_HSA_STUB_ENTRY_H_

namespace sim {

inline constexpr int kStubError = 0x1000;  // HSA_STATUS_ERROR

// The status to return: an ordered failure, the refusal of every call, or what the stub says.
int enter_stub(const char* function, int status);

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_HSA_STUB_ENTRY_H_
