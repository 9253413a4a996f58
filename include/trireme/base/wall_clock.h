// The time of day. What measures or waits takes clock.h.
#pragma once

namespace trireme {

// Seconds since 1970, as files, leases and schedulers count them.
double unix_seconds();

}  // namespace trireme
