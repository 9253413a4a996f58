// What the folders that pictures lie in say about them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/io/prepare_images.h"

namespace trireme {

struct FolderMeaning {
  enum class Split { kNone, kTrain, kTest };
  Split split = Split::kNone;
  std::string class_name;
};

// Returns the meaning of each folder, all of which hold pictures. Names on a path are joined by
// "/". If a folder of any name but the last is called train or training, or test, testing, val,
// valid, validate, validation, eval, evaluation, dev or develop, in letters of either case, all
// folders must be below such a one; the folder below it is the class. Where the whole set lies
// below such a folder and has others inside, those count. Otherwise the names that all paths begin
// with are dropped, and the next one is the class. With ClassFolder::kInner the last name is the
// class. Throws DataError if a folder fits neither, if there are several splits that are not for
// training, if a class of these is not among those to train on, if there is but one class to train
// on, if the name of a class is no text, or, with kClear, if more than half of the classes have the
// same two or more folders inside: these may be the classes, and what seems to be classes their
// splits.
std::vector<FolderMeaning> meanings_of_folders(std::span<const std::string> folders,
                                               ClassFolder class_folder);

}  // namespace trireme
