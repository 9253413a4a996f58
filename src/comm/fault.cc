#include "fault.h"

#include <algorithm>
#include <new>

#include "trireme/base/error.h"

namespace trireme {

const Fault& cause_of(const std::vector<Fault>& known) {
  const auto cause = std::ranges::find_if_not(known, &Fault::lost_rank);
  return cause == known.end() ? known.front() : *cause;
}

Fault describe_exception(const std::exception_ptr& exception, int rank) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {rank, static_cast<int>(error.status()), error.what()};
  } catch (const std::bad_alloc&) {
    return {rank, static_cast<int>(ExitStatus::kDevice), "out of memory"};
  } catch (const std::exception& error) {
    return {rank, static_cast<int>(ExitStatus::kInternal), error.what()};
  } catch (...) {
    return {rank, static_cast<int>(ExitStatus::kInternal), "an exception of unknown type"};
  }
}

}  // namespace trireme
