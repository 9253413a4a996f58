// A stretch of one document (or, before documents are cut, of one file).
#pragma once

#include <string>

namespace trireme {

struct TextChunk {
  std::string bytes;
  bool starts = false;  // the document starts here
  bool ends = false;    // the document ends here; the chunk may be empty
  bool validation = false;
  bool is_record = false;  // a document already, which no separator cuts
};

}  // namespace trireme
