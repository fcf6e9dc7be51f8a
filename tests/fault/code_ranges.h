// Which addresses of this program belong to the ledger's own functions.
#pragma once

#include <cstdint>
#include <vector>

namespace fracgpu::fault {

// Where the functions of the ledger, its file and its grow lock lie, read from the program's symbol
// table.
class LedgerCode {
 public:
  LedgerCode();
  bool empty() const { return ranges_.empty(); }
  bool contains(uint64_t address) const;

 private:
  struct Range {
    uint64_t begin, end;
  };
  std::vector<Range> ranges_;
};

}  // namespace fracgpu::fault
