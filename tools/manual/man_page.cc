// Writes fracgpu(1) in the macros of man(7).
#include <fmt/core.h>

#include "tools/cli/exit_status.h"
#include "tools/cli/text_list.h"
#include "tools/manual/command_line.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kReleased = "2026-11-21";

// Each row is one paragraph, without what --help says already.
constexpr const char* kEnvironment[][2] = {
    {"FRACGPU_MEMORY_LIMIT",
     "The cap: 8GiB, 50%, or by device 0=8GiB,GPU-<uuid>=50%. Set by run and queue."},
    {"CUDA_DEVICE_MEMORY_LIMIT, HIP_DEVICE_MEMORY_LIMIT, NVIDIA_GPU_MEMORY_LIMIT",
     "Limits as HAMi-core and NVIDIA's container toolkit write them, which hold too."},
    {"FRACGPU_TENANT", "The name of the processes that share one cap. Set by run and queue."},
    {"FRACGPU_LOG", "How much the library says: off, error, warn, info or debug."},
    {"FRACGPU_LOG_FILE", "Where the library says it, instead of standard error."},
    {"FRACGPU_NVML", "off: NVML is neither loaded nor asked, and what it would tell is estimated."},
    {"FRACGPU_RESERVE_LOCAL",
     "Whether room for a CUDA kernel's local memory is kept as soon as a program gets the function "
     "(on), or is taken by the launch, which is refused if it does not fit (off). Not set: off, "
     "but "
     "on if code is loaded lazily by a libcuda whose requests cannot be seen."},
    {"FRACGPU_BOOK", "The claim table, instead of /dev/shm/fracgpu.book."},
    {"LD_PRELOAD", "Names the library, libfracgpu.so. Set by run and queue."},
    {"NO_COLOR", "Set to anything, it keeps colours from a terminal."},
};
constexpr const char* kFiles[][2] = {
    {"/etc/fracgpu/limit.conf",
     "The ceiling: limits, one a line, that the environment can lower and never raise. It counts "
     "only if root owns it and nobody else may write it."},
    {"/etc/fracgpu/tenant",
     "The name of the processes that share one cap, whatever FRACGPU_TENANT is. It counts as the "
     "ceiling does."},
    {"/etc/ld.so.preload",
     "May name the library instead of LD_PRELOAD, for programs with raised "
     "privileges too."},
    {"/dev/shm/fracgpu-TENANT", "A tenant's ledger."},
    {"/dev/shm/fracgpu.book", "Who has claimed which share of which GPU."},
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      // These characters would begin a control line.
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) {
  return "\\fB" + escaped(text) + "\\fR";
}
std::string italic(std::string_view text) {
  return "\\fI" + escaped(text) + "\\fR";
}

// Filled text, or line by line if the text is indented: examples.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool filled = true;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    const bool indented = line.starts_with(' ');
    if (line.empty()) {
      out += filled ? ".PP\n" : ".sp\n";
      continue;
    }
    if (indented == filled) out += indented ? ".PP\n.nf\n" : ".fi\n.PP\n";
    filled = !indented;
    out += escaped(line) + "\n";
  }
  return out + (filled ? "" : ".fi\n");
}

std::string names_of(const Argument& argument) {
  std::string names;
  for (const std::string& name : argument.names) {
    const std::string shown = argument.is_option() ? bold(name) : italic(name);
    if (!names.empty()) names += ", ";
    names += shown;
  }
  const bool has_value = argument.is_option() && !argument.is_flag;
  return has_value ? names + " " + italic(argument.placeholder) : names;
}

std::string arguments_text(const std::vector<Argument>& arguments) {
  std::string out;
  for (const Argument& argument : arguments) {
    out += fmt::format(".TP\n{}\n{}\n", names_of(argument), escaped(argument.description));
  }
  return out;
}

template <size_t N>
std::string list(const char* const (&rows)[N][2]) {
  std::string out;
  for (const auto& [name, text] : rows) {
    out += fmt::format(".TP\n{}\n{}\n", bold(name), escaped(text));
  }
  return out;
}

std::string synopsis(const Subcommand& command) {
  std::string out = bold("fracgpu " + command.name);
  for (const Argument& argument : command.arguments) {
    if (argument.is_option() && out.back() != ']') out += fmt::format(" [{}]", italic("OPTIONS"));
  }
  for (const Argument& argument : command.arguments) {
    if (argument.is_option()) continue;
    std::string text = italic(argument.names[0]);
    if (argument.kind == Kind::command) text.insert(0, bold("--") + " ");
    if (argument.repeats) text += " ...";
    out += argument.required ? " " + text : " [" + text + "]";
  }
  return out + "\n";
}

}  // namespace

std::string man_page(const CommandLine& line) {
  std::string out = fmt::format(".TH FRACGPU 1 {} \"fracgpu {}\" \"User Commands\"\n", kReleased,
                                FRACGPU_VERSION);
  out += ".SH NAME\nfracgpu \\- cap the GPU memory of containers and launch trees\n.SH SYNOPSIS\n";
  for (size_t i = 0; i < line.subcommands.size(); ++i) {
    out += (i == 0 ? "" : ".br\n") + synopsis(line.subcommands[i]);
  }
  out += ".SH DESCRIPTION\n" + escaped(line.description) + "\n";
  out +=
      ".PP\nThe library libfracgpu.so, preloaded into processes, holds what they together have "
      "of each GPU's memory at or under a cap. The processes that share a cap are a tenant. "
      "This command starts tenants, shows and changes them, and says what is wrong.\n";
  out += ".SH OPTIONS\n" + arguments_text(line.arguments) + ".SH COMMANDS\n";
  for (const Subcommand& command : line.subcommands) {
    out += fmt::format(".SS fracgpu {}\n{}.\n{}", escaped(command.name),
                       escaped(command.description), arguments_text(command.arguments));
    if (!command.footer.empty()) out += ".PP\n" + paragraphs(command.footer);
  }
  out += ".SH EXIT STATUS\nOf run it is the command's own, but for those of run below.\n";
  for (const auto& [status, meaning] : kExitStatuses) {
    out += fmt::format(".TP\n{}\n{}\n", bold(std::to_string(status)), escaped(meaning));
  }
  out += ".SH ENVIRONMENT\n" + list(kEnvironment) + ".SH FILES\n" + list(kFiles);
  out += ".SH SEE ALSO\nnvidia\\-smi(1), rocm\\-smi(1), amd\\-smi(1), ld.so(8)\n";
  return out;
}

}  // namespace fracgpu::tools
