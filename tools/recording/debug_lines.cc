// See debug_lines.h. libdw's own look-ups search a table linearly, or need an index that not every
// compiler writes. So this code sorts units and functions once by address.
#include "tools/recording/debug_lines.h"

#include <dwarf.h>

#include <algorithm>

namespace fracgpu::recording {
namespace {

// No compiler nests deeper, but damaged information may nest without end.
constexpr int kDeepest = 128;
constexpr size_t kMostInlined = 256;

template <typename Visit>
void for_each_range(Dwarf_Die& die, Visit visit) {
  Dwarf_Addr base = 0, begin = 0, end = 0;
  ptrdiff_t at = 0;
  while ((at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0) {
    if (begin < end) visit(begin, end);
  }
}

// Goes to the next sibling. Damaged information may lead back and form a circle.
bool go_on(Dwarf_Die& die) {
  const void* const before = die.addr;
  return dwarf_siblingof(&die, &die) == 0 && die.addr > before;
}

template <typename Item>
void sort_by_address(std::vector<Item>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.begin < b.begin; });
}

template <typename Item>
Item* find_by_address(std::vector<Item>& items, uint64_t address) {
  const auto after =
      std::upper_bound(items.begin(), items.end(), address,
                       [](uint64_t wanted, const Item& each) { return wanted < each.begin; });
  if (after == items.begin() || address >= std::prev(after)->end) return nullptr;
  return &*std::prev(after);
}

std::string name_of(Dwarf_Die& die) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    const char* const name = dwarf_formstring(dwarf_attr_integrate(&die, kind, &attribute));
    if (name != nullptr && *name != '\0') return name;
  }
  return "";
}

int number_of(Dwarf_Die& die, unsigned kind) {
  Dwarf_Attribute attribute;
  Dwarf_Word number = 0;
  if (dwarf_formudata(dwarf_attr(&die, kind, &attribute), &number) != 0) return 0;
  return number <= INT32_MAX ? static_cast<int>(number) : 0;
}

std::string file_of_call(Dwarf_Die& unit, Dwarf_Die& inlined) {
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  const int number = number_of(inlined, DW_AT_call_file);
  if (number < 0 || dwarf_getsrcfiles(&unit, &files, &count) != 0) return "";
  if (static_cast<size_t>(number) >= count) return "";
  const char* const path = dwarf_filesrc(files, static_cast<size_t>(number), nullptr, nullptr);
  return path == nullptr ? "" : path;
}

// The functions inlined into this one at the address, the outermost first.
std::vector<Dwarf_Die> inlined_at(Dwarf_Die function, uint64_t address) {
  std::vector<Dwarf_Die> found;
  Dwarf_Die die = function;
  for (int depth = 0; depth < kDeepest && found.size() < kMostInlined; ++depth) {
    Dwarf_Die child;
    bool any = dwarf_child(&die, &child) == 0;
    for (; any; any = go_on(child)) {
      const int tag = dwarf_tag(&child);
      const bool holds_code = tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block ||
                              tag == DW_TAG_try_block || tag == DW_TAG_catch_block;
      if (holds_code && dwarf_haspc(&child, address) == 1) break;
    }
    if (!any) break;
    if (dwarf_tag(&child) == DW_TAG_inlined_subroutine) found.push_back(child);
    die = child;
  }
  return found;
}

}  // namespace

bool has_debug_lines(const ElfFile& file) {
  if (!file) return false;
  Dwarf* const dwarf = dwarf_begin_elf(file.elf(), DWARF_C_READ, nullptr);
  Dwarf_CU* unit = nullptr;
  const bool has = dwarf != nullptr &&
                   dwarf_get_units(dwarf, nullptr, &unit, nullptr, nullptr, nullptr, nullptr) == 0;
  dwarf_end(dwarf);
  return has;
}

DebugLines::DebugLines(const ElfFile& file) {
  if (!file) return;
  dwarf_ = dwarf_begin_elf(file.elf(), DWARF_C_READ, nullptr);
  if (dwarf_ == nullptr) return;
  Dwarf_CU* each = nullptr;
  Dwarf_Die root, apart;
  uint8_t type = 0;
  while (dwarf_get_units(dwarf_, each, &each, nullptr, &type, &root, &apart) == 0) {
    if (type != DW_UT_compile && type != DW_UT_skeleton) continue;
    const size_t unit = units_.size();
    units_.push_back({root, type == DW_UT_skeleton && apart.addr != nullptr ? apart : root});
    for_each_range(root, [&](uint64_t begin, uint64_t end) {
      ranges_.push_back({begin, end, unit});
    });
  }
  sort_by_address(ranges_);
}

void DebugLines::list_functions(Dwarf_Die& parent, int depth, std::vector<Function>& functions) {
  Dwarf_Die child;
  if (depth == 0 || dwarf_child(&parent, &child) != 0) return;
  do {
    switch (dwarf_tag(&child)) {
      case DW_TAG_subprogram:
        for_each_range(child, [&](uint64_t begin, uint64_t end) {
          functions.push_back({begin, end, child});
        });
        break;
      // Rust describes functions where they are declared, C++ at the top level.
      case DW_TAG_namespace:
      case DW_TAG_module:
      case DW_TAG_structure_type:
      case DW_TAG_class_type:
      case DW_TAG_union_type:
      case DW_TAG_enumeration_type:
        list_functions(child, depth - 1, functions);
        break;
      default:
        break;
    }
  } while (go_on(child));
}

DebugLines::Unit* DebugLines::unit_at(uint64_t address) {
  const Range* const range = find_by_address(ranges_, address);
  if (range == nullptr) return nullptr;
  Unit& unit = units_[range->unit];
  if (!unit.listed) {
    unit.listed = true;
    list_functions(unit.content, kDeepest, unit.functions);
    sort_by_address(unit.functions);
  }
  return &unit;
}

std::vector<Place> DebugLines::at(uint64_t address) {
  Unit* const unit = unit_at(address);
  if (unit == nullptr) return {};
  Place place;
  if (Dwarf_Line* const line = dwarf_getsrc_die(&unit->root, address)) {
    const char* const file = dwarf_linesrc(line, nullptr, nullptr);
    place.file = file == nullptr ? "" : file;
    dwarf_lineno(line, &place.line);
  }
  std::vector<Place> places;
  if (Function* const function = find_by_address(unit->functions, address)) {
    std::vector<Dwarf_Die> inlined = inlined_at(function->die, address);
    for (auto each = inlined.rbegin(); each != inlined.rend(); ++each) {
      place.function = name_of(*each);
      places.push_back(place);
      // The next place is at the line where this function was called.
      place = {"", file_of_call(unit->root, *each), number_of(*each, DW_AT_call_line), ""};
    }
    place.function = name_of(function->die);
  }
  places.push_back(place);
  return places;
}

}  // namespace fracgpu::recording
