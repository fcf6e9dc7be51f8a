// Writing and removing the tree. It is built under another name and renamed into place, so that
// nobody sees half of it, and bears the node's identity, so that one left behind by an earlier node
// of the same path is never taken for it.
#include "sim/kfd/tree.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "sim/kfd/topology_files.h"

namespace sim {
namespace {

namespace fs = std::filesystem;

std::string identity_in(const std::string& tree) {
  std::ifstream file(tree + "/identity");
  std::string text;
  std::getline(file, text);
  return text;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::error_code ignored;
  fs::permissions(path, fs::perms(0444), ignored);
}

// Every user's processes read the tree, whatever the umask of the one that makes it.
void make_folder(const fs::path& path, unsigned mode = 0755) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return;
  if (path.has_parent_path()) make_folder(path.parent_path());
  fs::create_directory(path, ignored);
  fs::permissions(path, fs::perms(mode), ignored);
}

void build(const std::string& tree, const NodeFile& file) {
  make_folder(tree);
  for (const auto& [name, text] : kfd_files(file)) {
    const fs::path path = tree + name;
    make_folder(path.parent_path());
    if (!name.ends_with('/')) write(path, text);
  }
  std::error_code ignored;
  make_folder(tree + "/sys/class/kfd");
  fs::create_directory_symlink("../../devices/virtual/kfd/kfd", tree + "/sys/class/kfd/kfd",
                               ignored);
  // Whoever looks brings these up to date.
  make_folder(tree + kKfdWorkshop);
  for (const char* shared : {kKfdWorkshop, kKfdProcesses})
    fs::permissions(tree + shared, fs::perms(0777), ignored);
}

// Which node, and how it is divided.
std::string identity_of(const NodeFile& file) {
  return std::to_string(file.header.identity) + "." + std::to_string(file.header.generation.load());
}

// What somebody else has made of another division, goes in one step: nobody finds no tree at all.
bool exchange(const std::string& mine, const std::string& tree) {
  return syscall(SYS_renameat2, AT_FDCWD, mine.c_str(), AT_FDCWD, tree.c_str(), 2) == 0;
}

}  // namespace

bool make_kfd_tree(const std::string& node_path, const NodeFile& file) {
  static std::atomic<unsigned> number{0};
  const std::string tree = kfd_tree_of(node_path);
  std::string own = identity_of(file);
  if (identity_in(tree) == own) return true;
  const std::string mine =
      tree + "." + std::to_string(getpid()) + "." + std::to_string(number.fetch_add(1)) + ".new";
  std::error_code error;
  // The rows may change while they are read.
  do {
    own = identity_of(file);
    fs::remove_all(mine, error);
    build(mine, file);
    write(mine + "/identity", own + "\n");
  } while (identity_of(file) != own);
  for (int attempt = 0; attempt < 4 && identity_in(tree) != own; ++attempt) {
    fs::rename(mine, tree, error);
    if (!error) return true;
    exchange(mine, tree);
  }
  fs::remove_all(mine, error);
  return identity_in(tree) == own || identity_of(file) != own;
}

void remove_kfd_tree(const std::string& node_path) {
  std::error_code ignored;
  fs::remove_all(kfd_tree_of(node_path), ignored);
}

}  // namespace sim
