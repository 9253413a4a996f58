#include "io/prepare/picture_folders.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;
using Split = FolderMeaning::Split;

// Names of folders, in small letters.
constexpr std::array<std::string_view, 2> kToTrainOn = {"train", "training"};
constexpr std::array<std::string_view, 10> kHeldOut = {
    "test",       "testing", "val",        "valid", "validate",
    "validation", "eval",    "evaluation", "dev",   "develop"};
constexpr std::size_t kLongestClass = 255;  // bytes, as of a file's name

Names names_on(const std::string& path) {
  Names names;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) names.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

Split split_called(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const auto among = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (among(kToTrainOn)) return Split::kTrain;
  return among(kHeldOut) ? Split::kTest : Split::kNone;
}

// The number of names that all paths begin with.
std::size_t common_names(const std::vector<Names>& all) {
  std::size_t common = all.front().size();
  for (const Names& names : all) {
    const auto [mine, other] =
        std::mismatch(names.begin(), names.end(), all.front().begin(), all.front().end());
    common = std::min(common, static_cast<std::size_t>(mine - names.begin()));
  }
  return common;
}

// The place of the first split among the names from `first` on; their count if there is none. The
// last name is that of a class.
std::size_t split_among(const Names& names, std::size_t first) {
  for (std::size_t i = first; i + 1 < names.size(); ++i) {
    if (split_called(names[i]) != Split::kNone) return i;
  }
  return names.size();
}

// Returns from which name on splits are looked for: where the paths part, since a whole set may lie
// below "dev" or "test"; else the last split that all are below. Nothing if there is no split.
std::optional<std::size_t> first_split(const std::vector<Names>& all) {
  const auto any_from = [&](std::size_t first) {
    return std::any_of(all.begin(), all.end(), [&](const Names& names) {
      return split_among(names, first) < names.size();
    });
  };
  for (std::size_t first = common_names(all) + 1; first-- > 0;) {
    if (any_from(first)) return first;
  }
  return {};
}

void check_class_name(const std::string& name) {
  bool text = printable(name) == name && name != ".." && name.size() <= kLongestClass;
  for (std::size_t at = 0; text && at < name.size();) {
    const std::size_t length = utf8_length(std::string_view(name).substr(at));
    text = length > 0;
    at += length;
  }
  if (!text) {
    throw DataError(
        fmt::format("the folder '{}' gives no name of a class; expected UTF-8 without "
                    "control characters, of at most {} bytes",
                    shown(name), kLongestClass));
  }
}

std::string shown_folder(const std::string& folder) {
  return folder.empty() ? "the input itself" : "the folder " + folder;
}

// The place of the name of the class.
std::size_t class_place(const Names& names, std::size_t outer, ClassFolder which) {
  return which == ClassFolder::kInner ? names.size() - 1 : outer;
}

std::vector<FolderMeaning> by_split(std::span<const std::string> folders,
                                    const std::vector<Names>& all, std::size_t first,
                                    ClassFolder which) {
  std::vector<FolderMeaning> meanings;
  std::set<std::string> train, held_out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t at = split_among(all[i], first);
    if (at == all[i].size()) {
      throw DataError(
          fmt::format("there are pictures in {}, but others are below train or test; expected "
                      "train/CLASS and test/CLASS",
                      shown_folder(folders[i])));
    }
    meanings.push_back({split_called(all[i][at]), all[i][class_place(all[i], at + 1, which)]});
    (meanings.back().split == Split::kTrain ? train : held_out).insert(all[i][at]);
  }
  if (held_out.size() > 1) {
    throw DataError(
        fmt::format("there are both {} and {}, but one of them becomes validation.h5: "
                    "name the folders to use, as in PATH/train PATH/{}",
                    *held_out.begin(), *std::next(held_out.begin()), *held_out.begin()));
  }
  if (train.empty()) {
    throw DataError(fmt::format("there is {}, but no folder train beside it", *held_out.begin()));
  }
  return meanings;
}

std::vector<FolderMeaning> by_first_name(std::span<const std::string> folders,
                                         const std::vector<Names>& all, ClassFolder which) {
  std::size_t common = common_names(all);
  if (all.size() == 1 && common > 0) --common;  // the only class
  std::vector<FolderMeaning> meanings;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() == common) {
      throw DataError(
          fmt::format("there are pictures in {}, which is no folder of a class; expected "
                      "CLASS/PICTURE, or train/CLASS/PICTURE and test/CLASS/PICTURE",
                      shown_folder(folders[i])));
    }
    meanings.push_back({Split::kNone, all[i][class_place(all[i], common, which)]});
  }
  return meanings;
}

// The folders that lie in more than half of the classes and hold pictures; none where pictures lie
// in a class itself.
Names shared_inside(std::span<const FolderMeaning> meanings, const std::vector<Names>& all) {
  std::map<std::string, std::set<std::string>> inside;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].back() == meanings[i].class_name) return {};
    inside[meanings[i].class_name].insert(all[i].back());
  }
  std::map<std::string, std::size_t> counts;
  for (const auto& [class_name, names] : inside) {
    for (const std::string& name : names) ++counts[name];
  }
  Names shared;
  for (const auto& [name, count] : counts) {
    if (2 * count > inside.size()) shared.push_back(name);
  }
  return shared;
}

std::string some_of(const Names& names) {
  constexpr std::size_t kMost = 3;
  const std::size_t count = std::min(names.size(), kMost);
  return fmt::format(
      "{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "),
      count < names.size() ? ", ..." : "");
}

// Throws where the outer folders may be splits of unknown names, or the inner ones splits.
void check_clear(std::span<const FolderMeaning> meanings, const std::vector<Names>& all) {
  const Names shared = shared_inside(meanings, all);
  std::set<std::string> classes;
  for (const FolderMeaning& meaning : meanings) classes.insert(meaning.class_name);
  if (shared.size() < 2 || classes.size() < 2) return;
  const std::string outer = some_of({classes.begin(), classes.end()}), inner = some_of(shared);
  if (split_called(shared.front()) != Split::kNone && split_called(shared.back()) != Split::kNone) {
    throw DataError(
        fmt::format("{} are in each of {}; expected train/CLASS and test/CLASS the other way round "
                    "(--class-folder outer takes all pictures of a class to train on)",
                    shown(inner), shown(outer)));
  }
  throw DataError(fmt::format(
      "the same folders ({}) are in each of {}: which of them are classes? --class-folder outer: "
      "{}; inner: {}, and what is to be held out belongs below test, the rest below train",
      shown(inner), shown(outer), shown(outer), shown(inner)));
}

void check_classes(const std::vector<FolderMeaning>& meanings) {
  std::set<std::string> known;
  for (const FolderMeaning& meaning : meanings) {
    check_class_name(meaning.class_name);
    if (meaning.split != Split::kTest) known.insert(meaning.class_name);
  }
  for (const FolderMeaning& meaning : meanings) {
    if (!known.contains(meaning.class_name)) {
      throw DataError(fmt::format("the class {} is to be tested, but train has no such folder",
                                  meaning.class_name));
    }
  }
  if (known.size() == 1) {
    throw DataError(
        fmt::format("all pictures to train on are of one class, {}, so that there is nothing to "
                    "learn; expected a folder for each of several classes, as in CLASS/PICTURE",
                    *known.begin()));
  }
}

}  // namespace

std::vector<FolderMeaning> meanings_of_folders(std::span<const std::string> folders,
                                               ClassFolder class_folder) {
  if (folders.empty()) return {};
  std::vector<Names> all;
  for (const std::string& folder : folders) all.push_back(names_on(folder));
  const std::optional<std::size_t> split = first_split(all);
  std::vector<FolderMeaning> meanings = split ? by_split(folders, all, *split, class_folder)
                                              : by_first_name(folders, all, class_folder);
  if (class_folder == ClassFolder::kClear) check_clear(meanings, all);
  check_classes(meanings);
  return meanings;
}

}  // namespace trireme
