// The two forms in which `fracgpu status` shows tenants.
#pragma once

#include <string>
#include <vector>

#include "tools/ledger_reader.h"

namespace fracgpu::tools {

// How the place looks that the text is written to.
struct Style {
  bool utf8 = false;
  bool colour = false;

  // As standard output has it: the locale's character set, and colour only on a terminal.
  static Style of_stdout();
};

// For people: 80 columns, one block per tenant.
std::string status_text(const std::vector<TenantUse>& tenants, const Style& style);

// For programs: one object, amounts in bytes. Fields may be added, never renamed.
std::string status_json(const std::vector<TenantUse>& tenants);

}  // namespace fracgpu::tools
