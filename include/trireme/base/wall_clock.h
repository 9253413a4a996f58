// The time of day. Use clock.h to measure or to wait.
#pragma once

namespace trireme {

// Seconds since 1970, as files, leases and schedulers count them.
double unix_seconds();

}  // namespace trireme
