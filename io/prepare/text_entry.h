// What one file, or one member of an archive, gives: its bytes as they are, or a document for each
// record.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trireme/io/prepare.h"

#include "io/prepare/byte_stream.h"
#include "io/prepare/parquet_records.h"
#include "io/prepare/record_format.h"
#include "io/prepare/text_chunk.h"

namespace trireme {

// What was left out of the texts, and what is odd in them, for the user.
struct TextRemarks {
  LeftOut left_out;
  ZeroBytes zero_bytes;
  BadRecords bad_records;
  PlainRecords plain_records;
};

class TextEntry {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  virtual ~TextEntry() = default;
  // Returns false after the last chunk; a chunk of at most `most` bytes, unless it is a record.
  virtual bool next(TextChunk& chunk, std::size_t most) = 0;
};

// Whether a file was named, or was found in a folder or in an archive.
enum class Named { kAlone, kInFolder, kInArchive };

// What a beginning says before a file is read.
// kOther: text or records once it is decoded; kLacking: no record of it has the field, or it stands
// for a file that is elsewhere.
enum class TextKind { kPlain, kOther, kParquet, kBinary, kLacking };
struct TextLook {
  TextKind kind = TextKind::kOther;
  std::string words;     // kLacking: why; kPlain: what it looks like all the same, or nothing
  FoundRecords records;  // kOther: that need no decoding, or none
};
// Throws DataError for what is no text, or lacks the field, and was named.
TextLook look_at_text(const std::string& name, std::string_view beginning, Named named,
                      const PrepareOptions& options);

// Counts what is to be left out, and returns whether it is.
bool leave_out(const std::string& name, const TextLook& look, LeftOut& left_out);

// Whether a file is hidden, of version control or the summary of a Parquet dataset, or in such a
// folder.
bool is_hidden(std::string_view path);

// Throws DataError for what is no text; where it was not named it is counted as left out, and the
// result is null. Options and remarks live as long as the result. `depth`: how many archives it is
// in.
std::unique_ptr<TextEntry> open_text(const std::string& name, ByteStreamPtr stream, Named named,
                                     const PrepareOptions& options, TextRemarks& remarks,
                                     int depth = 0);

// The same for a regular file of Parquet.
std::unique_ptr<TextEntry> open_parquet(std::unique_ptr<FileBytes> file, Named named,
                                        const PrepareOptions& options, TextRemarks& remarks,
                                        const RowGroups& groups = {});

// Bytes of a file of plain text, from one that is not its first on, unless `begin` is 0. Where they
// reach the end of the file, the last chunk ends the text.
std::unique_ptr<TextEntry> open_plain_part(std::unique_ptr<FileBytes> file, std::uint64_t begin,
                                           bool reaches_end, TextRemarks& remarks);

// Whole lines of a file of JSON Lines.
std::unique_ptr<TextEntry> open_json_lines_part(std::unique_ptr<FileBytes> file,
                                                const PrepareOptions& options,
                                                TextRemarks& remarks);

}  // namespace trireme
