#include "comm/mpi/library_task.h"

#include <utility>

#include "comm/mpi/mpi_util.h"

namespace trireme {
namespace {

class LibraryTask final : public Task {
 public:
  LibraryTask(std::function<int(MPI_Request*)> start, Tensors tensors)
      : start_(std::move(start)), tensors_(std::move(tensors)) {}
  // MPI's collectives cannot be cancelled.
  ~LibraryTask() override {
    if (request_ == MPI_REQUEST_NULL) return;
    keep_until_done({request_}, std::make_shared<Tensors>(std::move(tensors_)));
  }
  LibraryTask(const LibraryTask&) = delete;
  LibraryTask& operator=(const LibraryTask&) = delete;

  Step advance() override {
    if (start_) {
      check_mpi(start_(&request_), "start a collective operation");
      start_ = nullptr;
    }
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "finish a collective operation");
    return done != 0 ? Step::kDone : Step::kIdle;
  }

 private:
  std::function<int(MPI_Request*)> start_;
  Tensors tensors_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Task> make_library_task(std::function<int(MPI_Request*)> start, Tensors tensors) {
  return std::make_unique<LibraryTask>(std::move(start), std::move(tensors));
}

}  // namespace trireme
