#include "trireme/io/picture_files.h"

#include <iostream>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

#include "io/files/input_files.h"
#include "io/pictures/fitted_picture.h"

namespace trireme {

class PictureFiles::Impl {
 public:
  Impl(std::vector<std::string> inputs, PictureSize size, bool skips_bad)
      : inputs_(std::move(inputs)), size_(size), skips_bad_(skips_bad) {}

  bool next(NamedPicture& picture) {
    PictureFile file;
    while (next_file(file)) {
      try {
        picture = {file.name, fitted(decode_file(file, size_), size_)};
        return true;
      } catch (const DataError& error) {
        if (!skips_bad_) refuse_bad_picture(error.what());
        skipped_.emplace_back(error.what());
      }
    }
    return false;
  }

  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  bool next_file(PictureFile& file) {
    for (; next_input_ < inputs_.size(); ++next_input_) {
      const std::string& input = inputs_[next_input_];
      if (input == "-") {
        std::string line;
        while (std::getline(std::cin, line)) {
          if (line.empty()) continue;
          file = read_picture_file(input_file(line));
          return true;
        }
        continue;
      }
      if (has_picture_name(input) && !look_ahead(input, ExitStatus::kData).is_folder()) {
        ++next_input_;
        file = read_picture_file(input_file(input));
        return true;
      }
      if (!source_) source_.emplace(std::vector{input}, -1);
      if (source_->next(file)) return true;
      source_.reset();
    }
    return false;
  }

  std::vector<std::string> inputs_;
  PictureSize size_;
  bool skips_bad_;
  std::size_t next_input_ = 0;
  std::optional<PictureSource> source_;  // of the input that is being read
  std::vector<std::string> skipped_;
};

PictureFiles::PictureFiles(std::vector<std::string> inputs, PictureSize size, bool skips_bad)
    : impl_(std::make_unique<Impl>(std::move(inputs), size, skips_bad)) {}

PictureFiles::~PictureFiles() = default;

bool PictureFiles::next(NamedPicture& picture) {
  return impl_->next(picture);
}

const std::vector<std::string>& PictureFiles::skipped() const {
  return impl_->skipped();
}

}  // namespace trireme
