// Pictures for a model that is trained: from files, one after the other, all made to be of one
// size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/io/picture_size.h"

namespace trireme {

struct NamedPicture {
  std::string name;                  // of the file: "cat.jpg", "pets.tar: cat/1.jpg"
  std::vector<std::uint8_t> pixels;  // (height, width, 3)
};

class PictureFiles {
 public:
  // `inputs` are JPEG and PNG files, folders of them, and tar archives (also compressed ones, as
  // trireme prepare reads them). "-" stands for the files that the lines of standard input name.
  // The largest part in the middle of a picture that has the shape of `size` is brought to that
  // size, as trireme prepare does. `skips_bad`: pictures that cannot be read are left out.
  PictureFiles(std::vector<std::string> inputs, PictureSize size, bool skips_bad);
  ~PictureFiles();

  // Returns false after the last picture. Throws DataError, which names the file or the input.
  bool next(NamedPicture& picture);
  // Why pictures were left out, a line for each so far.
  const std::vector<std::string>& skipped() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
