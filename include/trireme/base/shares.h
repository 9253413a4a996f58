// Whole pieces of work, dealt to workers of unequal speed.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme {

// Returns how many of the pieces each worker gets, so that the slowest to end ends as early as it
// can, where a worker takes pieces / speed: each gets one at least and `most` at most, and each
// further one goes to who would end first with it. Between equals the later one gets it, but equal
// speeds give the shares of even_shares. `speeds` are above 0, in any unit; there must be as many
// pieces as workers, and no more than `most` for each.
std::vector<int> shares_by_speed(int pieces, std::span<const double> speeds, int most);
// The same without a most.
std::vector<int> shares_by_speed(int pieces, std::span<const double> speeds);

// Returns shares that differ by one at most.
std::vector<int> even_shares(int pieces, int workers);

// The time of the slowest to end: the most that share / speed is.
double longest_share(std::span<const int> shares, std::span<const double> speeds);

// "4, 2, 2"; of more than 16 "1 to 4".
std::string shares_text(std::span<const int> shares);

}  // namespace trireme
