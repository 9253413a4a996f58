// The folder that the members of a run share, and the time by which they wait: all that the
// protocol of io/ISLANDS.md knows of the system.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Names are relative to the run's folder. A file is seen whole or not at all, but it may be seen
// late: what another host has made, replaced or removed shows itself after seconds, and a listing
// is older still. link_new alone is decided in one place. Whatever the system refuses is a
// RunFolderError; EIO and ESTALE are tried again first (trireme/base/files.h).
class IslandFolder {
 public:
  virtual ~IslandFolder() = default;

  // What a file is called in messages.
  virtual std::string said(const std::string& name) const { return name; }

  // The contents; nothing where the file, or the folder that it would be in, is absent.
  virtual std::optional<std::string> read(const std::string& name) = 0;
  virtual std::vector<std::string> list(const std::string& folder) = 0;
  // Writes a file that nobody else reads or writes. It is on the disk when this returns.
  virtual void write_private(const std::string& name, const std::string& text) = 0;
  // Replaces a file as a whole; the last writer wins.
  virtual void replace(const std::string& name, const std::string& text) = 0;
  virtual void remove(const std::string& name) = 0;

  enum class Linked {
    kNew,     // the file has this name now, and nobody had it before
    kExists,  // the name was taken, perhaps by this very call, whose first answer was lost
    kGone,    // the private file is not there
  };
  // Gives a private file a name for good: link(2), which never takes a name from another file.
  virtual Linked link_new(const std::string& private_name, const std::string& name) = 0;
};

// The folder on a file system.
class SystemIslandFolder : public IslandFolder {
 public:
  // Makes RUN/outer and RUN/islands/MEMBER. `writer` differs among all processes that use the
  // folder; it marks files that are being replaced.
  SystemIslandFolder(std::string run, const std::string& member, std::string writer);

  // The path of a file, for whoever reads and writes tensors.
  std::string path(const std::string& name) const { return run_ + "/" + name; }

  std::string said(const std::string& name) const override { return path(name); }
  std::optional<std::string> read(const std::string& name) override;
  std::vector<std::string> list(const std::string& folder) override;
  void write_private(const std::string& name, const std::string& text) override;
  void replace(const std::string& name, const std::string& text) override;
  void remove(const std::string& name) override;
  Linked link_new(const std::string& private_name, const std::string& name) override;

 private:
  std::string run_, writer_;
};

class IslandClock {
 public:
  virtual ~IslandClock() = default;
  virtual double seconds() = 0;  // monotonic, since any moment
  virtual void wait(double seconds) = 0;
};

class SystemIslandClock : public IslandClock {
 public:
  // `look` is called several times a second while somebody waits; what it throws ends the wait.
  explicit SystemIslandClock(std::function<void()> look = {}) : look_(std::move(look)) {}
  double seconds() override;
  void wait(double seconds) override;

 private:
  std::function<void()> look_;
};

}  // namespace trireme
