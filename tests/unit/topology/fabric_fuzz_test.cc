// Gives the readers of topology texts that nobody should give them.
//
//     fabric_fuzz_test [INPUTS [SEED [FIRST]]]
//
// An input follows from the seed and its number alone. A reader must take it or refuse it with one
// line, and need no more memory than kMostBytes. With a number of inputs, what follows a reader
// gets all that it takes, not one result of four.
#include "fabric_fuzz.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

namespace {

// What kMostNames hosts of one short list need is far below it.
constexpr std::size_t kMostBytes = std::size_t{192} << 20;
constexpr unsigned kMostSeconds = 100;  // of an input; a hang, however busy the machine is

std::size_t used = 0, most_used = 0;
std::uint64_t seed = 1, number = 0;

void say(const char* what) {
  char line[200];
  const int size = std::snprintf(
      line, sizeof line, "fabric_fuzz_test: %s; again: fabric_fuzz_test 1 %llu %llu\n", what,
      static_cast<unsigned long long>(seed), static_cast<unsigned long long>(number));
  if (size > 0 && ::write(2, line, static_cast<std::size_t>(size)) < 0) std::_Exit(1);
}

void on_signal(int signal) {
  say(signal == SIGALRM ? "an input takes too long" : "a crash");
  std::_Exit(1);
}

}  // namespace

// Counts the memory of all readers.
void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  used += ::malloc_usable_size(memory);
  if (used > most_used) most_used = used;
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) used -= ::malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  ::operator delete(memory);
}

int main(int argc, char** argv) {
  namespace fuzz = trireme::fabric_fuzz;
  const auto argument = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  const std::uint64_t inputs = argument(1, 30'000);
  const bool use_all = argc > 1;
  seed = argument(2, 1);
  const std::uint64_t first = argument(3, 0);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGALRM})
    std::signal(signal, on_signal);
  const auto& readers = fuzz::readers();
  for (const fuzz::Failed& failed : fuzz::corpus()) {
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (readers[i].name == failed.reader) fuzz::read(i, failed.text, true);
    }
  }
  std::uint64_t taken = 0;
  std::vector<std::uint64_t> tried(readers.size());
  for (number = first; number < first + inputs; ++number) {
    if (number % 1024 == 0) ::alarm(kMostSeconds);
    const std::size_t reader = fuzz::reader_of(number);
    ++tried[reader];
    taken += fuzz::read(reader, fuzz::make_text(readers[reader], seed, number), use_all) ? 1 : 0;
    if (most_used > kMostBytes) {
      say("an input needs too much memory");
      return 1;
    }
  }
  std::cout << fmt::format("{} inputs, {} taken, at most {} MiB, seed {}\n", inputs, taken,
                           most_used >> 20, seed);
  for (std::size_t i = 0; i < readers.size(); ++i) {
    std::cout << fmt::format("  {}: {}\n", readers[i].name, tried[i]);
  }
  // Both answers occur, or the texts test nothing.
  return inputs < 1000 || (taken > inputs / 10 && taken < inputs - inputs / 10) ? 0 : 1;
}
