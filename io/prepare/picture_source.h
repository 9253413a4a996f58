// The files of pictures in folders and archives, one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/files/input_files.h"
#include "io/prepare/tar_reader.h"

namespace trireme {

struct PictureFile {
  std::string name;    // for messages: "pets/cat/1.jpg", "pets.tar: cat/1.jpg"
  std::string folder;  // where it lies, from the input on: "pets/cat", "cat"
  std::vector<std::uint8_t> bytes;
  std::string problem;  // a line that says why the file was not read; else empty
};

// Reads a whole file. `problem` says why one that is too large, or cannot be read, was not.
PictureFile read_picture_file(const InputFile& file, std::string folder = {});

class PictureSource {
 public:
  // Inputs are folders, tar archives (tar_reader.h) and "-", an archive from the file descriptor
  // standard_input. Throws DataError naming the input.
  PictureSource(const std::vector<std::string>& inputs, int standard_input);

  // Returns false after the last picture. Folders are read in alphabetical order of paths, archives
  // in their own.
  bool next(PictureFile& file);
  std::uint64_t bytes_read() const { return bytes_read_ + (archive_ ? archive_->bytes_read() : 0); }
  std::uint64_t bytes_total() const { return bytes_total_; }  // 0: not known
  // Files so far that are no pictures by their names, are hidden, or are links in archives.
  std::int64_t left_out() const { return left_out_; }

 private:
  struct Input {
    InputFile file;
    bool is_folder = false;
    std::vector<InputFile> files;  // of a folder
  };
  bool next_of_folder(const Input& input, PictureFile& file);
  bool next_of_archive(const Input& input, PictureFile& file);

  std::vector<Input> inputs_;
  int standard_input_;
  std::uint64_t bytes_total_ = 0, bytes_read_ = 0;
  std::int64_t left_out_ = 0;
  std::size_t next_input_ = 0, next_file_ = 0;
  std::optional<TarReader> archive_;  // that is being read
};

}  // namespace trireme
