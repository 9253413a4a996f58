// The time of day. Use clock.h to measure or to wait.
#pragma once

namespace trireme {

// Seconds since 1970, as files, leases and schedulers count them.
double unix_seconds();
// The same in whole milliseconds, for records that people read.
double unix_seconds_for_records();

}  // namespace trireme
