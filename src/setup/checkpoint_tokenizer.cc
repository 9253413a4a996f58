#include "trireme/setup/checkpoint_tokenizer.h"

#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tasks/texts.h"

namespace trireme {
namespace {

constexpr const char* kKindAttribute = "tokenizer_kind";
constexpr const char* kModelAttribute = "tokenizer_model";  // the name of its text
constexpr const char* kModelName = "model";
constexpr std::string_view kFiles = "files/";

std::optional<std::int32_t> begin_of_text(const CheckpointAttributes& attributes) {
  const auto found = attributes.find(kBeginOfTextAttribute);
  if (found == attributes.end() || found->second == kNoToken) return {};
  return std::stoi(found->second);
}

std::map<std::string, std::string> brought_files(const CheckpointTexts& texts) {
  std::map<std::string, std::string> files;
  for (const auto& [name, text] : texts) {
    if (name.starts_with(kFiles)) files.emplace(name.substr(kFiles.size()), text);
  }
  return files;
}

}  // namespace

void add_tokenizer(const TokenizerFiles& files, CheckpointInfo& info, CheckpointTexts& texts) {
  for (const auto& [name, text] : files.brought)
    texts.emplace(fmt::format("{}{}", kFiles, name), text);
  if (!files.tokenizer) return;
  const std::string& model = files.tokenizer->model();
  std::string name = kModelName;
  for (const auto& [brought, text] : files.brought) {
    if (text == model) name = fmt::format("{}{}", kFiles, brought);
  }
  if (name == kModelName) texts.emplace(name, model);
  info.extra[kKindAttribute] = files.tokenizer->kind();
  info.extra[kModelAttribute] = name;
}

std::map<std::string, std::string> brought_files(const std::string& path) {
  return brought_files(read_checkpoint_texts(path));
}

TokenizerFiles read_tokenizer_files(const std::string& path,
                                    const CheckpointAttributes& attributes) {
  const CheckpointTexts texts = read_checkpoint_texts(path);
  TokenizerFiles files{.tokenizer = nullptr, .brought = brought_files(texts)};
  if (!attributes.contains(kKindAttribute)) return files;
  try {
    files.tokenizer =
        make_tokenizer(attributes.at(kKindAttribute), texts.at(attributes.at(kModelAttribute)),
                       begin_of_text(attributes));
  } catch (const DataError& error) {
    throw CheckpointError(fmt::format("{}: its tokenizer: {}", path, error.what()));
  } catch (const std::logic_error&) {  // no such text, no number
    throw CheckpointError(fmt::format("{}: its tokenizer is not there", path));
  }
  return files;
}

TokenizerPtr checkpoint_tokenizer(Communicator& comm, const std::string& path,
                                  const CheckpointAttributes& attributes) {
  if (!attributes.contains(kKindAttribute)) return nullptr;
  return tokenizer_of_first(comm, [&] { return read_tokenizer_files(path, attributes).tokenizer; });
}

TokenizerPtr tokenizer_of_first(Communicator& comm, const std::function<TokenizerPtr()>& load) {
  TokenizerPtr first;
  const std::string sent = comm.read_once([&] {
    first = load();
    return packed(*first);
  });
  return first ? first : unpacked_tokenizer(sent);
}

}  // namespace trireme
