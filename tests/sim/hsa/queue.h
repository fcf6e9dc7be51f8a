// Queues end before the memory that their packets name.
#pragma once

namespace sim {

void end_all_queues();

}  // namespace sim
