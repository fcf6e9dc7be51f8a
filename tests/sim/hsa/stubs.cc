// The rest of the exported names, so that every release of libamdhip64 and other clients find all
// they are linked with. Callers pass what each function really takes; on these calling conventions
// an answer that ignores its arguments is safe. The headers are left out here for that reason.
#include "sim/hsa/stub_entry.h"

#define SIM_STUB(name) SIM_STUB_ANSWERING(name, sim::kStubError)
#define SIM_ACCEPTED(name) SIM_STUB_ANSWERING(name, 0)
#define SIM_STUB_ANSWERING(name, status)                         \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return sim::enter_stub(#name, status);                       \
  }
#include "sim/hsa/stubs.inc"
