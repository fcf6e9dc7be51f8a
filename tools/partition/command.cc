// `fracgpu partition`; see command.h.
//
// This command claims all partitions of a board before it changes the board, so that no launch gets
// one meanwhile. The claim ends with this process, however that ends. The driver keeps the modes;
// no part of a change is recorded anywhere else.
#include "tools/partition/command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "tools/claims/claim_table.h"
#include "tools/cli/arguments.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/plain_text.h"
#include "tools/launch/member.h"
#include "tools/partition/smi_setter.h"
#include "tools/partition/wish.h"

namespace fracgpu::tools {
namespace {

constexpr const char* kExamples = R"(Examples:
  fracgpu partition                      AMD's GPUs, their modes and what they could have
  fracgpu partition 0 --compute CPX      eight GPUs of the first MI300X
  fracgpu partition 0 --compute CPX --dry-run
                                         says what would be, and what is in the way
  fracgpu partition 0 --memory NPS4 --yes
                                         reloads the kernel driver: all GPUs get NPS4

GPUs are numbered here by their bus ids, from 0, each with all its partitions: a number stays the same
whatever the modes are. A bus id, or the name of a partition (GPU-<uuid>, AMD-<gpu_id>), is accepted too.
A GPU is changed only while no process has it open and no launch has or awaits a part of it. The
compute mode needs nothing else. A memory mode is one for all GPUs of the machine: the kernel driver is
reloaded, by libamd_smi of ROCm 6.4 to 7, or by you where the library leaves it to modprobe.
What has changed is read again from the kernel. Changing needs root and libamd_smi of ROCm 6.4 or later.
Exit status: 0 shown, changed, or so already; 1 not changed, a line says why; 2 wrong usage.)";

struct PartitionOptions {
  std::string gpu, compute, memory;
  bool yes = false, dry_run = false, json = false;
};

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

Json json_of(const Board& board) {
  Json indices = Json::array(), keys = Json::array();
  for (const Gpu& gpu : board.partitions) {
    indices.push_back(gpu.index);
    keys.push_back(gpu.key);
  }
  const bool told = !board.modes.compute.empty();
  return {{"gpu", board.number},
          {"bus_id", board.bus_id()},
          {"compute", told ? Json(board.modes.compute) : Json(nullptr)},
          {"memory", told ? Json(board.modes.memory) : Json(nullptr)},
          {"compute_modes", Json::array(board.modes.all_compute)},
          {"memory_modes", Json::array(board.modes.all_memory)},
          {"partitions", board.partitions.size()},
          {"partition_bytes", board.partitions[0].physical},
          {"indices", indices},
          {"keys", keys}};
}

std::string text_of(const Board& board) {
  const PartitionModes& modes = board.modes;
  std::string text = board.text() + "\n";
  if (!modes.compute.empty()) {
    text += fmt::format("  compute modes {}; memory modes {}\n", any_of_text(modes.all_compute),
                        any_of_text(modes.all_memory));
  }
  return text;
}

int show(const std::vector<Board>& boards, bool json) {
  Json list = Json::array();
  std::string text;
  for (const Board& board : boards) {
    list.push_back(json_of(board));
    text += text_of(board);
  }
  if (text.empty()) text = "this machine shows no GPU of AMD's (/sys/class/kfd)\n";
  print(json ? Json{{"gpus", list}}.dump() + "\n" : text);
  return kOk;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == text.npos;
}

// The board with this number, or with a whole or a part of this name.
Board choose_board(const std::string& text, const std::vector<Gpu>& gpus) {
  const std::vector<Board> boards = amd_boards(gpus);
  if (boards.empty()) refuse("this machine shows no GPU of AMD's, and others are not divided so");
  if (is_number(text)) {
    const auto number = static_cast<size_t>(std::stoul(text));
    if (number < boards.size()) return boards[number];
    refuse(
        fmt::format("there is no GPU {} of AMD's here; accepted: 0 to {}, a bus id, GPU-<uuid> "
                    "or AMD-<gpu_id>",
                    number, boards.size() - 1));
  }
  int found = -1;
  for (const size_t place : choose_gpu(text, gpus)) {
    const Gpu& gpu = gpus[place];
    if (gpu.board < 0) {
      refuse(fmt::format("{} is not AMD's; fracgpu run --mig makes MIG instances", gpu.label()));
    }
    if (found >= 0 && found != gpu.board) {
      refuse(fmt::format("{} names more than one GPU", fracgpu::quoted(text).view()));
    }
    found = gpu.board;
  }
  return boards.at(static_cast<size_t>(found));
}

void check_processes(const Board& board) {
  const std::vector<KfdUser> users = kfd_users(board);
  if (users.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(users.size(), 4); ++i) {
    list += fmt::format("{}PID {} ({}, {})", i == 0 ? "" : "; ", users[i].pid,
                        command_of(users[i].pid), human_bytes(users[i].bytes).c_str());
  }
  if (users.size() > 4) list += fmt::format("; and {} more", users.size() - 4);
  refuse(fmt::format("{} is in use by {}; it can be divided when these have ended", board.label(),
                     list));
}

bool concerns(const Launch& launch, const Board& board) {
  return std::ranges::any_of(board.partitions, [&](const Gpu& gpu) {
    return std::ranges::find(launch.shares, gpu.key, &Share::key) != launch.shares.end() ||
           std::ranges::find(launch.awaited, gpu.key) != launch.awaited.end();
  });
}

// A claim on all partitions of these boards, for as long as the object lives.
class Hold {
 public:
  explicit Hold(const std::vector<Board>& boards) {
    ClaimRequest wanted;
    for (const Board& board : boards) {
      for (const Gpu& gpu : board.partitions) {
        wanted.gpus.push_back(gpu.key);
        wanted.exact.push_back(claim_table_layout::kEighths);
      }
    }
    wanted.tenant = "partition-" + tenant_or_new("");
    wanted.command = "fracgpu partition";
    wanted.asked = "all of " + boards[0].label();
    claim_ = table_.enter(wanted);
    std::vector<Share> shares;
    const bool served = table_.served(claim_, shares);
    const std::string others = others_on(boards, wanted.tenant);
    if (served && others.empty()) return;
    table_.leave(std::move(claim_));
    refuse(fmt::format("{}; it can be divided when these have ended",
                       others.empty() ? boards[0].label() + " was claimed just now" : others));
  }
  ~Hold() {
    try {
      table_.leave(std::move(claim_));
    } catch (const std::exception&) {  // the claim ends with this process anyway
    }
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  // Describes other launches that hold or await a part, for the first board that has such; else
  // empty.
  std::string others_on(const std::vector<Board>& boards, const std::string& own) {
    const std::vector<Launch> launches = table_.launches();
    for (const Board& board : boards) {
      std::string text;
      for (const Launch& launch : launches) {
        if (launch.tenant == own || !concerns(launch, board)) continue;
        text += fmt::format("{} tenant {} (PID {}, {}) {}", text.empty() ? "" : ";", launch.tenant,
                            launch.pid, launch.command,
                            launch.waiting ? "waits for it" : "has claimed it");
      }
      if (!text.empty()) return board.label() + " is taken:" + text;
    }
    return {};
  }

  ClaimTable table_{};
  Claim claim_{Descriptor()};
};

Board read_again(const Board& board) {
  for (Board& now : amd_boards(list_gpus())) {
    if (now.bus_id() == board.bus_id()) return now;
  }
  refuse(fmt::format("{} is not there any more; look with amd-smi list", board.label()));
}

// Changes the modes that differ, and returns the board as it is afterwards.
Board change(Board board, const PartitionWish& wish) {
  if (wish.reloads(board)) {
    SmiSetter().set_memory(board, wish.memory);
    board = read_again(board);
    if (board.modes.memory != wish.memory) {
      refuse(fmt::format(
          "{} will have {} when the kernel driver is reloaded, which this libamd_smi does not do; "
          "run modprobe -r amdgpu && modprobe amdgpu, and then this again",
          board.label(), wish.memory));
    }
  }
  if (!wish.compute.empty() && wish.compute != board.modes.compute) {
    SmiSetter().set_compute(board, wish.compute);
    board = read_again(board);
  }
  if (!wish.is_met_by(board)) {
    refuse(fmt::format("libamd_smi reports success, and yet the kernel says that {} is in {}",
                       board.label(), board.modes.text()));
  }
  return board;
}

std::string plan_text(const Board& board, const PartitionWish& wish, size_t boards, bool json) {
  const std::string compute = compute_then(board, wish);
  const std::string then = compute + "/" + (wish.memory.empty() ? board.modes.memory : wish.memory);
  const uint32_t count = board.partitions_in(compute);
  const bool reloads = wish.reloads(board);
  if (json) {
    return Json{{"gpu", board.number},
                {"from", board.modes.text()},
                {"to", then},
                {"partitions", count != 0 ? Json(count) : Json(nullptr)},
                {"partition_bytes", count != 0 ? Json(board.bytes() / count) : Json(nullptr)},
                {"reloads_driver", reloads}}
               .dump() +
           "\n";
  }
  std::string text =
      fmt::format("{} would go from {} to {}", board.label(), board.modes.text(), then);
  if (count != 0) text += ": " + parts_text(count, board.bytes() / count);
  if (reloads) {
    text += fmt::format("; the kernel driver would be reloaded, so that {} AMD GPU{} got {}",
                        boards == 1 ? "the" : fmt::format("all {}", boards), boards == 1 ? "" : "s",
                        wish.memory);
  }
  return text + "\n";
}

int divide(const PartitionOptions& options, const std::vector<Gpu>& gpus, const Board& board) {
  const PartitionWish wish = wish_for(board, options.compute, options.memory);
  const std::vector<Board> all = amd_boards(gpus);
  if (wish.is_met_by(board)) {
    return options.json
               ? show({board}, true)
               : (print(fmt::format("{} is in {} already\n", board.label(), board.modes.text())),
                  kOk);
  }
  const bool reloads = wish.reloads(board);
  if (reloads && !options.yes && !options.dry_run) {
    refuse(
        fmt::format("{} needs the kernel driver to be reloaded, which gives it to all {} of "
                    "AMD's GPUs here and takes them from whatever uses them; add --yes",
                    wish.memory, all.size()));
  }
  const std::vector<Board> concerned = reloads ? all : std::vector{board};
  for (const Board& each : concerned) check_processes(each);
  const Hold hold(concerned);
  if (options.dry_run) {
    print(plan_text(board, wish, all.size(), options.json));
    return kOk;
  }
  if (geteuid() != 0) {
    refuse(fmt::format("only root may divide a GPU; this is user {}", user_name(geteuid())));
  }
  if (reloads)
    complain(
        fmt::format("AMD's kernel driver is to be reloaded: all its GPUs get {}", wish.memory));
  const Board now = change(board, wish);
  return show({now}, options.json);
}

int partition(const PartitionOptions& options) {
  const bool changes = !options.compute.empty() || !options.memory.empty();
  if (options.gpu.empty() && (changes || options.yes || options.dry_run)) {
    refuse("which GPU? Name it, as in: fracgpu partition 0 --compute CPX");
  }
  const std::vector<Gpu> gpus = list_gpus();
  if (options.gpu.empty()) return show(amd_boards(gpus), options.json);
  const Board board = choose_board(options.gpu, gpus);
  return changes ? divide(options, gpus, board) : show({board}, options.json);
}

}  // namespace

void add_partition_command(Command program) {
  const auto options = std::make_shared<PartitionOptions>();
  Command command =
      program.add_subcommand("partition", "Show how AMD's GPUs are divided, or divide one anew");
  command.add_option("GPU", options->gpu, "This one; all are shown when none is named");
  command.add_option("--compute", options->compute, "Its compute mode: SPX, DPX, TPX, QPX or CPX");
  command.add_option("--memory", options->memory, "The memory mode: NPS1, NPS2, NPS4 or NPS8");
  command.add_flag("--yes", options->yes, "The kernel driver may be reloaded, for a memory mode");
  command.add_flag("--dry-run", options->dry_run, "Only say what would be");
  command.add_flag("--json", options->json, "For programs");
  command.set_footer(kExamples);
  command.set_body([options] { return partition(*options); });
}

}  // namespace fracgpu::tools
