// How MPICH's UCX sends long messages over TCP.
#pragma once

#include <filesystem>

namespace trireme {

// Has UCX send messages of every length at once over TCP, before MPI starts, unless UCX_RNDV_THRESH
// is set. UCX would ask the receiver first. On a connection the answer waits until the message of
// the other direction has gone out, so two ranks that exchange long messages often send one after
// the other and take twice the time. The price is a copy by the receiver, and its memory for what
// arrives before it is asked for.
void send_eagerly_over_tcp();

// Whether nothing but TCP can carry messages between nodes: `adapters` (/sys/class/infiniband) is
// empty or missing, or UCX_TLS names `transports` (nullptr: it is not set) with tcp and none of
// InfiniBand's.
bool tcp_alone(const std::filesystem::path& adapters, const char* transports);

}  // namespace trireme
