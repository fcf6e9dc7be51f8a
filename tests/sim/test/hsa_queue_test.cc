// Signals, handlers, copies and queues: packets are completed in order, waits end, and a queue
// takes and gives back what it should. Loaded code as well, which takes device memory too.
#include <elf.h>

#include <atomic>
#include <cstring>

#include "sim/test/hsa_calls.h"

using namespace simtest;

namespace {

constexpr uint64_t kQueueBytes = 4096;

struct Packet {  // one layout for all that is sent here
  uint16_t header;
  uint16_t setup;
  uint32_t reserved;
  hsa_signal_t awaited[5];
  uint64_t more;
  hsa_signal_t completion;
};
static_assert(sizeof(Packet) == 64);

class Queue {
 public:
  explicit Queue(hsa_agent_t agent) {
    EXPECT_EQ(
        hsa<int(hsa_agent_t, uint32_t, uint32_t, void*, void*, uint32_t, uint32_t, hsa_queue_t**)>(
            "hsa_queue_create")(agent, 64, 0, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue_),
        0);
  }
  ~Queue() { EXPECT_EQ(hsa<int(hsa_queue_t*)>("hsa_queue_destroy")(queue_), 0); }

  void send(uint16_t type, hsa_signal_t awaited, hsa_signal_t completion) {
    const uint64_t index = hsa<uint64_t(const hsa_queue_t*, uint64_t)>(
        "hsa_queue_add_write_index_screlease")(queue_, 1);
    while (index - read() >= 64) sched_yield();
    auto& packet = static_cast<Packet*>(queue_->base_address)[index % 64];
    packet.setup = 0;
    std::memset(packet.awaited, 0, sizeof packet.awaited);
    packet.awaited[2] = awaited;
    packet.completion = completion;
    std::atomic_ref<uint16_t>(packet.header).store(type);
    signal_store(queue_->doorbell_signal, static_cast<int64_t>(index));
  }
  uint64_t read() {
    return hsa<uint64_t(const hsa_queue_t*)>("hsa_queue_load_read_index_scacquire")(queue_);
  }

 private:
  hsa_queue_t* queue_ = nullptr;
};

TEST(SimHsaQueue, TakesAndReturnsItsBuffer) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    {
      Queue first(machine.gpu[0].agent), second(machine.gpu[0].agent);
      EXPECT_EQ(node->used(0), kContext + 2 * kQueueBytes);
    }
    EXPECT_EQ(node->used(0), kContext);
    hsa_queue_t* queue = nullptr;
    auto* create =
        hsa<int(hsa_agent_t, uint32_t, uint32_t, void*, void*, uint32_t, uint32_t, hsa_queue_t**)>(
            "hsa_queue_create");
    EXPECT_EQ(create(machine.gpu[0].agent, 63, 0, nullptr, nullptr, 0, 0, &queue),
              HSA_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(create(machine.processor, 64, 0, nullptr, nullptr, 0, 0, &queue),
              HSA_STATUS_ERROR_INVALID_QUEUE_CREATION);
    // One is left to the end, with a packet that waits for ever.
    auto* left = new Queue(machine.gpu[0].agent);
    left->send(HSA_PACKET_TYPE_BARRIER_AND, signal_make(1), {0});
    EXPECT_EQ(hsa_stop(), 0);
    EXPECT_EQ(node->used(0), 0u);
  });
}

// The sizes that libhsakmt's own formula gives for these products, in MiB (src/queues.c), and those
// of two partitioned ones; 4 KiB are the buffer for end-of-pipe events.
TEST(SimHsaQueue, TakesASaveAreaOfTheProductsSize) {
  const struct {
    const char* profile;
    double mib;
  } products[] = {{"mi300x", 177.3},         {"mi300x-cpx-nps4", 22.2}, {"mi210", 60.7},
                  {"mi250x", 64.2},          {"gfx1100", 44.0},         {"tiny-svm", 9.3},
                  {"mi300x-qpx", 2 * 22.17}, {"tiny-cwsr", 20.0}};
  for (const auto& product : products) {
    TestNode node(product.profile);
    in_child([&] {
      const Machine machine = hsa_start();
      const Queue queue(machine.gpu[0].agent);
      const double taken = static_cast<double>(node->used(0) - kContext - kQueueBytes) / kMiB;
      EXPECT_NEAR(taken, product.mib, product.mib / 200) << product.profile;
    });
    EXPECT_EQ(node->used(0), 0u);
  }
}

// 1 KiB for each of 16 * 32 * 64 threads.
TEST(SimHsaQueue, TakesScratchMemoryThatItIsMadeWith) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    auto* create =
        hsa<int(hsa_agent_t, uint32_t, uint32_t, void*, void*, uint32_t, uint32_t, hsa_queue_t**)>(
            "hsa_queue_create");
    hsa_queue_t* queue = nullptr;
    ASSERT_EQ(create(machine.gpu[0].agent, 64, 0, nullptr, nullptr, 1000, 0, &queue), 0);
    EXPECT_EQ(node->used(0), kContext + kQueueBytes + 1008 * 16 * 32 * 64);
    EXPECT_EQ(create(machine.gpu[0].agent, 64, 0, nullptr, nullptr, 1 << 16, 0, &queue),
              HSA_STATUS_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(hsa<int(hsa_queue_t*)>("hsa_queue_destroy")(queue), 0);
    EXPECT_EQ(node->used(0), kContext);
  });
}

TEST(SimHsaQueue, LaterReleasesMakeThemInOtherWaysToo) {
  TestNode node("tiny-amd");
  in_child([&] {
    const hsa_agent_t gpu = hsa_start().gpu[0].agent;
    sim::QueueDescription wanted[3] = {};
    for (auto& one : wanted) {
      one.version = 1;
      one.bytes = 64 * 64;
      one.compute.private_segment = UINT32_MAX;
    }
    wanted[1].version = 9;
    auto* create = hsa<int(hsa_agent_t, sim::QueueDescription*, uint32_t)>("hsa_amd_queue_create");
    EXPECT_EQ(create(gpu, wanted, 0), HSA_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(create(gpu, wanted, 3), HSA_STATUS_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(wanted[0].queue, nullptr) << "the others are there all the same";
    EXPECT_EQ(wanted[1].queue, nullptr);
    EXPECT_NE(wanted[2].queue, nullptr);
    EXPECT_EQ(node->used(0), kContext + 2 * kQueueBytes);
    // Six uses of four queues.
    auto* acquire =
        hsa<int(hsa_agent_t, uint32_t, uint32_t, void*, void*, uint64_t, hsa_queue_t**)>(
            "hsa_amd_counted_queue_acquire");
    auto* release = hsa<int(hsa_queue_t*)>("hsa_amd_counted_queue_release");
    hsa_queue_t* counted[6];
    for (hsa_queue_t*& queue : counted)
      ASSERT_EQ(acquire(gpu, 0, 1, nullptr, nullptr, 0, &queue), 0);
    EXPECT_EQ(node->used(0), kContext + 6 * kQueueBytes);
    for (hsa_queue_t* queue : counted) EXPECT_EQ(release(queue), 0);
    EXPECT_EQ(release(counted[0]), HSA_STATUS_ERROR_INVALID_QUEUE);
    EXPECT_EQ(node->used(0), kContext + 2 * kQueueBytes);
  });
}

TEST(SimHsaQueue, PacketsAreCompletedInTheirTurn) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    Queue queue(machine.gpu[0].agent), other(machine.gpu[0].agent);
    const hsa_signal_t gate = signal_make(1), behind = signal_make(1), across = signal_make(1);
    queue.send(HSA_PACKET_TYPE_BARRIER_AND, gate, {0});
    queue.send(HSA_PACKET_TYPE_KERNEL_DISPATCH, {0}, behind);
    other.send(HSA_PACKET_TYPE_BARRIER_OR, behind, across);
    EXPECT_EQ(queue.read(), 0u);
    EXPECT_EQ(signal_load(behind), 1);
    signal_store(gate, 0);
    EXPECT_TRUE(signal_reaches(across, 0));
    EXPECT_EQ(signal_load(behind), 0);
    const hsa_signal_t many = signal_make(1000);
    for (int i = 0; i < 1000; ++i) queue.send(HSA_PACKET_TYPE_KERNEL_DISPATCH, {0}, many);
    EXPECT_TRUE(signal_reaches(many, 0));
    EXPECT_EQ(queue.read(), 1002u);
  });
}

TEST(SimHsaQueue, HandlersRunAndStayAsTheyWish) {
  TestNode node("tiny-amd");
  in_child([&] {
    hsa_start();
    const hsa_signal_t signal = signal_make(3), done = signal_make(3);
    // Lowers both, and stays while there is more.
    static hsa_signal_t signals[2];
    signals[0] = signal;
    signals[1] = done;
    EXPECT_EQ(hsa<int(hsa_signal_t, int, int64_t, bool (*)(int64_t, void*), void*)>(
                  "hsa_amd_signal_async_handler")(
                  signal, HSA_SIGNAL_CONDITION_LT, 3,
                  [](int64_t value, void*) {
                    signal_store(signals[0], value - 1);
                    signal_store(signals[1], value);
                    return value > 0;
                  },
                  nullptr),
              0);
    EXPECT_EQ(signal_load(done), 3);
    signal_store(signal, 2);
    EXPECT_TRUE(signal_reaches(done, 0));
    EXPECT_EQ(signal_load(signal), -1);
  });
}

TEST(SimHsaQueue, CopiesWaitForTheirTurn) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    const hsa_agent_t agent = machine.gpu[0].agent;
    void* device = nullptr;
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 3 * kMiB, &device), 0);
    std::vector<char> from(3 * kMiB, 5), to(3 * kMiB, 0);
    auto* copy = hsa<int(void*, hsa_agent_t, const void*, hsa_agent_t, size_t, uint32_t,
                         const hsa_signal_t*, hsa_signal_t)>("hsa_amd_memory_async_copy");
    const hsa_signal_t gate = signal_make(1), up = signal_make(1), down = signal_make(1);
    EXPECT_EQ(copy(to.data(), machine.processor, device, agent, to.size(), 1, &up, down), 0);
    EXPECT_EQ(copy(device, agent, from.data(), machine.processor, from.size(), 1, &gate, up), 0);
    EXPECT_EQ(signal_load(down), 1);
    signal_store(gate, 0);
    EXPECT_TRUE(signal_reaches(down, 0));
    EXPECT_EQ(from, to);
    hsa_amd_profiling_async_copy_time_t times = {};
    EXPECT_EQ(hsa<int(hsa_signal_t, void*)>("hsa_amd_profiling_get_async_copy_time")(down, &times),
              0);
    EXPECT_LE(times.start, times.end);
    EXPECT_GT(times.start, 0u);
  });
}

// The smallest code object that has a segment of 10000 bytes at 0x1000, a kernel and a variable.
struct CodeFile {
  Elf64_Ehdr header;
  Elf64_Phdr segment;
  Elf64_Shdr sections[2];  // symbols, their names
  Elf64_Sym symbols[2];
  char names[24];
  uint32_t descriptor[16];
};

CodeFile code_file() {
  CodeFile file = {};
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_phoff = offsetof(CodeFile, segment);
  file.header.e_phnum = 1;
  file.header.e_shoff = offsetof(CodeFile, sections);
  file.header.e_shnum = 2;
  file.segment.p_type = PT_LOAD;
  file.segment.p_vaddr = 0x1000;
  file.segment.p_filesz = sizeof file;
  file.segment.p_memsz = 10000;
  file.sections[0].sh_type = SHT_DYNSYM;
  file.sections[0].sh_offset = offsetof(CodeFile, symbols);
  file.sections[0].sh_size = sizeof file.symbols;
  file.sections[0].sh_link = 1;
  file.sections[1].sh_offset = offsetof(CodeFile, names);
  std::memcpy(file.names, "\0kernel.kd\0variable", 20);
  file.symbols[0] = {1, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),   0,
                     1, 0x1000 + offsetof(CodeFile, descriptor), 64};
  file.symbols[1] = {11, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 0, 1, 0x2000, 100};
  file.descriptor[0] = 512;  // group memory
  file.descriptor[2] = 40;   // arguments
  return file;
}

TEST(SimHsaCode, LoadingTakesTheSegmentsMemory) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    const CodeFile file = code_file();
    uint64_t reader = 0, executable = 0, symbol = 0;
    auto* open =
        hsa<int(const void*, size_t, uint64_t*)>("hsa_code_object_reader_create_from_memory");
    auto* load = hsa<int(uint64_t, hsa_agent_t, uint64_t, const char*, void*)>(
        "hsa_executable_load_agent_code_object");
    auto* find = hsa<int(uint64_t, const char*, const hsa_agent_t*, uint64_t*)>(
        "hsa_executable_get_symbol_by_name");
    auto* ask = hsa<int(uint64_t, int, void*)>("hsa_executable_symbol_get_info");
    ASSERT_EQ(open(&file, sizeof file, &reader), 0);
    ASSERT_EQ(hsa<int(int, int, const char*, uint64_t*)>("hsa_executable_create_alt")(
                  HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR, nullptr, &executable),
              0);
    ASSERT_EQ(load(executable, machine.gpu[0].agent, reader, nullptr, nullptr), 0);
    EXPECT_EQ(node->used(0), kContext + 16 * kKiB) << "from address 0 to the segment's end";
    EXPECT_EQ(hsa<int(uint64_t, const char*)>("hsa_executable_freeze")(executable, nullptr), 0);
    EXPECT_EQ(find(executable, "nothing", &machine.gpu[0].agent, &symbol),
              HSA_STATUS_ERROR_INVALID_SYMBOL_NAME);
    ASSERT_EQ(find(executable, "kernel.kd", &machine.gpu[0].agent, &symbol), 0);
    uint32_t number = 0;
    EXPECT_EQ(ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_TYPE, &number), 0);
    EXPECT_EQ(number, static_cast<uint32_t>(HSA_SYMBOL_KIND_KERNEL));
    EXPECT_EQ(ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &number), 0);
    EXPECT_EQ(number, 40u);
    EXPECT_EQ(ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &number), 0);
    EXPECT_EQ(number, 512u);
    ASSERT_EQ(find(executable, "variable", &machine.gpu[0].agent, &symbol), 0);
    uint64_t address = 0;
    EXPECT_EQ(ask(symbol, HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS, &address), 0);
    std::memset(reinterpret_cast<void*>(address), 1, 100);
    EXPECT_EQ(hsa<int(uint64_t)>("hsa_executable_destroy")(executable), 0);
    EXPECT_EQ(node->used(0), kContext);
    // Not a code object, or one that ends too early.
    ASSERT_EQ(hsa<int(int, int, const char*, uint64_t*)>("hsa_executable_create_alt")(
                  HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_NEAR, nullptr, &executable),
              0);
    ASSERT_EQ(open(&file, sizeof file - 1, &reader), 0);
    EXPECT_EQ(load(executable, machine.gpu[0].agent, reader, nullptr, nullptr),
              HSA_STATUS_ERROR_INVALID_CODE_OBJECT);
    EXPECT_EQ(node->used(0), kContext);
  });
}

}  // namespace
