// The one call that a stub makes, apart from the vendor's headers, whose prototypes stubs do not
// have.
#pragma once

namespace sim {

inline constexpr int kStubError = 0x1000;  // HSA_STATUS_ERROR

// The status to return: an ordered failure, the refusal of every call, or what the stub says.
int enter_stub(const char* function, int status);

}  // namespace sim
